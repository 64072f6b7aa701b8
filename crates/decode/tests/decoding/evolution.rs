//! What decoding finds beyond the plan, and the spec that follows (R-E1, R-E2).

use tidegate_change::Code;
use tidegate_change::spec::ResolvedSpec;
use tidegate_decode::evolve;

use super::{decode, resolved};

const SPEC: &str = "name: t\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  \
    - {name: seq, type: long}\n";

fn found(spec: &ResolvedSpec, lines: &str, first: bool) -> Option<ResolvedSpec> {
    let whole = decode(spec, None, lines.as_bytes().to_vec());
    evolve(spec, &whole.findings, first).unwrap()
}

fn types(spec: &ResolvedSpec) -> Vec<(String, String, u32)> {
    let columns = spec.columns.iter();
    columns
        .map(|c| (c.column.name.clone(), c.column.type_name.clone(), c.since))
        .collect()
}

#[test]
fn the_first_batch_fixes_what_is_not_declared() {
    let lines = "{\"id\":1,\"seq\":1,\"v\":1,\"w\":null,\"o\":{\"a\":[1]}}\n{\"id\":1,\"seq\":1,\"v\":1.5}\n";
    let spec = resolved(&format!("{SPEC}schema_evolution: none\n"));
    let next = found(&spec, lines, true).unwrap();
    assert_eq!(next.schema_number, 0);
    assert_eq!(
        types(&next)[2..],
        [
            ("v".into(), "double".into(), 0),
            ("o".into(), "struct<a:array<long>>".into(), 0),
        ]
    );
    assert_eq!(found(&next, lines, false), None);
}

#[test]
fn later_columns_raise_the_schema_number() {
    let lines = "{\"id\":1,\"seq\":1,\"v\":\"x\"}\n";
    let next = found(&resolved(SPEC), lines, false).unwrap();
    assert_eq!(next.schema_number, 1);
    assert_eq!(types(&next)[2], ("v".into(), "string".into(), 1));
    let none = resolved(&format!("{SPEC}schema_evolution: none\n"));
    assert_eq!(found(&none, lines, false), None);
}

#[test]
fn types_widen_only_where_the_spec_says_so() {
    let columns = "  - {name: a, type: byte}\n  - {name: b, type: 'decimal(4,1)'}\n";
    let lines = "{\"id\":1,\"seq\":1,\"a\":300,\"b\":\"12345.678\"}\n{\"id\":1,\"seq\":1,\"a\":1,\"b\":1}\n";
    assert_eq!(
        found(&resolved(&format!("{SPEC}{columns}")), lines, false),
        None
    );
    let widening = resolved(&format!("{SPEC}{columns}schema_evolution: widen_types\n"));
    let next = found(&widening, lines, false).unwrap();
    assert_eq!(
        types(&next)[2..],
        [
            ("a".into(), "long".into(), 0),
            ("b".into(), "decimal(8,3)".into(), 0),
        ]
    );
    assert_eq!(next.schema_number, 1);
    let whole = decode(&next, None, lines.as_bytes().to_vec());
    assert_eq!(whole.invalid(), [""; 0]);
}

#[test]
fn names_that_no_column_can_have_are_refused() {
    for (name, code) in [
        ("__START_AT", Code::ReservedColumn),
        ("__tidegate_seq", Code::ReservedColumn),
        ("ID", Code::InvalidRecord),
    ] {
        let lines = format!("{{\"id\":1,\"seq\":1,\"{name}\":1}}\n");
        let spec = resolved(SPEC);
        let whole = decode(&spec, None, lines.into_bytes());
        let error = evolve(&spec, &whole.findings, false).unwrap_err();
        assert_eq!(error.code(), code);
        let place = format!("events line 1, field {name}: ");
        assert!(error.to_string().contains(&place), "{error}");
    }
}

#[test]
fn metadata_columns_come_from_the_envelope() {
    let yaml = "name: t\nkeys: [id]\nschema: [{name: id, type: long}]\nsource:\n  format: debezium\n  \
        metadata_columns: {op: _op, lsn: _lsn, commit_time: _at, table: _table, txid: _tx}\n";
    let line = r#"{"before":null,"after":{"id":1},"source":{"connector":"postgresql","schema":"s","table":"t","ts_ms":1796076701193,"txId":868,"lsn":7},"op":"c","ts_ms":2}"#;
    let spec = resolved(yaml);
    let next = found(&spec, line, true).unwrap();
    let whole = decode(&next, None, line.as_bytes().to_vec());
    assert_eq!(whole.column("_op"), ["\"c\""]);
    assert_eq!(whole.column("_lsn"), ["7"]);
    assert_eq!(whole.column("_at"), ["\"2026-11-30T22:11:41.193000Z\""]);
    assert_eq!(whole.column("_table"), ["\"t\""]);
    assert_eq!(whole.column("_tx"), ["868"]);
}

#[test]
fn one_event_that_changes_the_key_becomes_two() {
    let yaml = "name: t\nkeys: [id]\nschema: [{name: id, type: long}, {name: v, type: string}]\nsource: {format: debezium}\n";
    let line = r#"{"before":{"id":1,"v":"a"},"after":{"id":2,"v":"a"},"source":{"connector":"mysql","db":"d","table":"t","file":"b.01","pos":3,"row":0},"op":"u"}"#;
    let whole = decode(&resolved(yaml), None, line.as_bytes().to_vec());
    assert_eq!(whole.column("id"), ["1", "2"]);
    assert_eq!(whole.old_keys(), ["{\"id\":1}"]);
    assert_eq!(whole.positions()[0], whole.positions()[1]);
    let same = line.replace("\"id\":2", "\"id\":1");
    assert_eq!(
        decode(&resolved(yaml), None, same.into_bytes())
            .operations()
            .len(),
        1
    );
}

//! What is wrong with a source is said once, by file, line and field, and never taken for data.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::harness::{EventFile, Harness, Refusal};

const FLAT: &str = "name: t\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  \
    - {name: seq, type: long}\n  - {name: note, type: string}\n";

const ENVELOPED: &str = "name: t\nkeys: [id]\nsource: {format: debezium}\nschema:\n  \
    - {name: id, type: long}\n  - {name: note, type: string}\n";

fn file(name: &str, bytes: impl Into<Vec<u8>>) -> EventFile {
    EventFile {
        name: name.to_owned(),
        bytes: bytes.into(),
    }
}

/// A table on a directory of its own.
fn table(spec: &str) -> Result<InProcess> {
    let tidegate = InProcess::new()?;
    tidegate.create(spec)?;
    Ok(tidegate)
}

fn refused(tidegate: &InProcess, file: EventFile) -> Result<Refusal> {
    let answer = tidegate.apply("t", "refused", &[file]);
    answer.err().context("the file was taken")
}

/// Checks a refusal: its code, what its sentence says, and that it names the file once.
fn check(refusal: &Refusal, code: &str, file: &str, says: &str) -> Result<()> {
    ensure!(refusal.code == code, "{refusal}");
    ensure!(refusal.message.contains(says), "{refusal}");
    ensure!(refusal.message.matches(file).count() == 1, "{refusal}");
    Ok(())
}

/// A record as a connector of PostgreSQL writes it.
fn postgres(id: Value, lsn: Value, rest: Value) -> Value {
    let mut record = json!({"before": null, "op": "c", "ts_ms": 1,
        "after": {"id": id, "note": "x"},
        "source": {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", "lsn": lsn}});
    if let (Some(record), Some(rest)) = (record.as_object_mut(), rest.as_object()) {
        record.extend(rest.clone());
    }
    record
}

fn mysql(id: i64) -> Value {
    json!({"before": null, "op": "c", "ts_ms": 1, "after": {"id": id, "note": "x"},
        "source": {"connector": "mysql", "db": "d", "table": "t", "file": "binlog.000001", "pos": 4, "row": 0}})
}

#[test]
fn a_null_key_is_refused_by_physical_line_and_field() -> Result<()> {
    let tidegate = table(FLAT)?;
    let lines = "{\"id\":1,\"seq\":1}\n\n\n{\"id\":null,\"seq\":2}\n";
    let refusal = refused(&tidegate, file("a.jsonl", lines))?;
    check(
        &refusal,
        "NULL_KEY",
        "a.jsonl",
        "a.jsonl line 4, field id: ",
    )?;
    // The header, a blank line, and a record of two lines come first.
    let cells = "id,seq,note\n\n1,1,\"a\nb\"\n2,,x\n";
    let refusal = refused(&tidegate, file("b.csv", cells))?;
    check(
        &refusal,
        "NULL_SEQUENCE",
        "b.csv",
        "b.csv line 5, field seq: ",
    )
}

#[test]
fn rejects_hold_the_events_as_they_came() -> Result<()> {
    let tidegate = table(&format!("{FLAT}on_invalid: quarantine\n"))?;
    let event = "{\"note\": 1.50, \"id\":null,  \"other\":[1], \"seq\":2}";
    let lines = format!("\n{event}\n{{\"id\":1,\"seq\":1}}\n");
    let cells = "id,seq,note,more\n,3,\"a\"\"b\",z\n";
    tidegate.apply("t", "b", &[file("a.jsonl", lines), file("b.csv", cells)])?;
    let rejects = tidegate.rejects("t")?;
    let of = |name: &str| -> Vec<Value> {
        let column = rejects.iter().map(|reject| reject.get(name).cloned());
        column.map(Option::unwrap_or_default).collect()
    };
    ensure!(
        of("event") == [event, r#"{"id":null,"seq":"3","note":"a\"b","more":"z"}"#],
        "{rejects:?}"
    );
    ensure!(of("source_row") == [1, 1], "{rejects:?}");
    ensure!(of("field") == ["id", "id"], "{rejects:?}");
    let detail = "line 2, field id: a key column is NULL";
    ensure!(of("detail") == [detail, detail], "{rejects:?}");
    Ok(())
}

#[test]
fn rejects_tell_partition_and_offset() -> Result<()> {
    let tidegate = table(&format!("{ENVELOPED}on_invalid: quarantine\n"))?;
    let record = |offset: i64, value: Value| {
        json!({"topic": "s.t", "partition": 3, "offset": offset, "key": {"id": 1}, "value": value})
            .to_string()
    };
    let no_key = record(41, postgres(Value::Null, json!(7), json!({})));
    let no_position = record(42, postgres(json!(1), Value::Null, json!({})));
    let no_number = record(43, postgres(json!("x"), json!(7), json!({})));
    let no_row = record(44, postgres(json!(1), json!(7), json!({"after": null})));
    let taken = record(45, postgres(json!(1), json!(7), json!({})));
    let lines = [&no_key, &no_position, &no_number, &no_row, &taken].map(String::as_str);
    tidegate.apply("t", "b", &[EventFile::json_lines("a.jsonl", lines)])?;
    let rejects = tidegate.rejects("t")?;
    let found: Vec<Value> = rejects
        .iter()
        .map(|reject| {
            let of = |name: &str| reject.get(name).cloned().unwrap_or_default();
            json!([
                of("reason"),
                of("source_partition"),
                of("source_offset"),
                of("field"),
                of("event")
            ])
        })
        .collect();
    let expected = [
        json!(["NULL_KEY", 3, 41, "id", no_key]),
        json!(["NULL_SEQUENCE", 3, 42, "source", no_position]),
        json!(["INVALID_VALUE", 3, 43, "id", no_number]),
        json!(["INVALID_RECORD", 3, 44, "after", no_row]),
    ];
    ensure!(found == expected, "{found:?}");
    Ok(())
}

/// The schema of a value; `fields` are those of its envelope that it tells.
fn with_schema(fields: Value, payload: &Value) -> String {
    let schema = json!({"type": "struct", "name": "s.t.Envelope", "fields": fields});
    json!({"schema": schema, "payload": payload}).to_string()
}

#[test]
fn an_envelope_is_known_by_its_payload() -> Result<()> {
    let row = |field: &str| {
        json!({"type": "struct", "optional": true, "field": field, "fields": [
            {"type": "int64", "field": "id"}, {"type": "string", "optional": true, "field": "note"}]})
    };
    let op = json!({"type": "string", "field": "op"});
    let whole = postgres(json!(1), json!(7), json!({}));
    // Without `source`; without `op`; with `before` alone; with nothing of the row.
    for fields in [
        json!([row("before"), row("after"), op]),
        json!([row("after")]),
        json!([row("before"), op]),
        json!([op]),
        json!([]),
    ] {
        let tidegate = table(ENVELOPED)?;
        let line = with_schema(fields.clone(), &whole);
        tidegate.apply("t", "b", &[EventFile::json_lines("a.jsonl", [&*line])])?;
        let rows = tidegate.read("t", None)?;
        ensure!(
            rows == [json!({"id": 1, "note": "x"})],
            "{fields}: {rows:?}"
        );
    }
    Ok(())
}

#[test]
fn what_a_schema_does_not_tell_is_not_lost() -> Result<()> {
    let after = json!({"type": "struct", "field": "after", "fields": [
        {"type": "int64", "field": "id"}, {"type": "int32", "field": "days", "name": "io.debezium.time.Date"}]});
    let payload = postgres(
        json!(1),
        json!(7),
        json!({"after": {"id": 1, "days": 0, "extra": 5}}),
    );
    let tidegate = table(ENVELOPED)?;
    let line = with_schema(json!([after]), &payload);
    tidegate.apply("t", "b", &[EventFile::json_lines("a.jsonl", [&*line])])?;
    let rows = tidegate.read("t", None)?;
    let expected = json!({"id": 1, "note": null, "days": "1970-01-01", "extra": 5});
    ensure!(rows == [expected], "{rows:?}");

    let tidegate = table(ENVELOPED)?;
    let unread =
        json!({"type": "struct", "field": "after", "fields": [{"type": "uuid", "field": "id"}]});
    let lines = [
        postgres(json!(1), json!(7), json!({})).to_string(),
        with_schema(json!([unread]), &payload),
    ];
    let lines = lines.iter().map(String::as_str);
    let refusal = refused(&tidegate, EventFile::json_lines("a.jsonl", lines))?;
    let says = "a.jsonl line 2, field schema: ";
    check(&refusal, "INVALID_RECORD", "a.jsonl", says)
}

#[test]
fn a_header_must_name_keys_and_sequence() -> Result<()> {
    let tidegate = table(&format!("{FLAT}on_invalid: quarantine\n"))?;
    for (name, text, says) in [
        (
            "a.csv",
            "seq,note\n1,x\n2,y\n",
            "line 1: the CSV header lacks the key column id",
        ),
        (
            "b.csv",
            "\nid,note\n1,x\n",
            "line 2: the CSV header lacks the sequence column seq",
        ),
        (
            "c.csv",
            "id;seq;note\n1;1;x\n",
            "line 1: the CSV header lacks the key column id",
        ),
        (
            "d.csv",
            "{\"id\":1}\n",
            "line 1: the CSV header lacks the key column id",
        ),
        (
            "README",
            "hi,there\n",
            "line 1: the CSV header lacks the key column id",
        ),
    ] {
        check(
            &refused(&tidegate, file(name, text))?,
            "UNKNOWN_COLUMN",
            name,
            says,
        )?;
    }
    let spec = FLAT.replace(
        "{name: id, type: long}",
        "{name: id, type: long, default: 5}",
    );
    let tidegate = table(&spec)?;
    tidegate.apply("t", "b", &[file("a.csv", "seq,note\n1,x\n")])?;
    let rows = tidegate.read("t", None)?;
    ensure!(
        rows == [json!({"id": 5, "seq": 1, "note": "x"})],
        "{rows:?}"
    );
    Ok(())
}

#[test]
fn a_file_that_is_no_source_is_refused() -> Result<()> {
    for spec in [FLAT, ENVELOPED, "name: t\nmode: append\n"] {
        let tidegate = table(spec)?;
        for (name, text) in [
            ("README.md", "hi\n"),
            ("notes.md", "a,b\n1,2\n"),
            ("README", "hi\n"),
            ("list.out", "[\n{\"id\":1}\n]\n"),
        ] {
            let refusal = refused(&tidegate, file(name, text))?;
            let code = match (spec, name) {
                (ENVELOPED, "README") => "UNSUPPORTED",
                _ => "INVALID_RECORD",
            };
            check(&refusal, code, name, name)?;
        }
        ensure!(tidegate.apply("t", "none", &[file("_SUCCESS", "")]).is_ok());
    }
    Ok(())
}

#[test]
fn positions_of_another_connector_are_refused_either_way() -> Result<()> {
    let own = postgres(json!(1), json!(7), json!({})).to_string();
    let other = mysql(1).to_string();
    for (first, second) in [(&own, &other), (&other, &own)] {
        let tidegate = table(ENVELOPED)?;
        tidegate.apply("t", "b", &[EventFile::json_lines("a.jsonl", [&**first])])?;
        let lines = ["null", &**second];
        let refusal = refused(&tidegate, EventFile::json_lines("b.jsonl", lines))?;
        let says = "b.jsonl line 2, field source: positions are struct<";
        check(&refusal, "INVALID_RECORD", "b.jsonl", says)?;
        // Both in one file, before any of them is fixed.
        let tidegate = table(ENVELOPED)?;
        let lines = [&**first, &**second];
        let refusal = refused(&tidegate, EventFile::json_lines("c.jsonl", lines))?;
        let says = "c.jsonl line 2, field source: positions of two kinds of connector are mixed";
        check(&refusal, "INVALID_RECORD", "c.jsonl", says)?;
        let files = ["d.jsonl", "e.jsonl"];
        let files = [(files[0], first), (files[1], second)]
            .map(|(name, line)| EventFile::json_lines(name, [&**line]));
        let refusal = tidegate.apply("t", "two", &files).err().context("taken")?;
        let says = "e.jsonl line 1, field source: positions of two kinds of connector are mixed";
        check(&refusal, "INVALID_RECORD", "e.jsonl", says)?;
    }
    Ok(())
}

#[test]
fn damaged_files_are_named_once() -> Result<()> {
    let tidegate = table(FLAT)?;
    let mut zipped = Vec::new();
    let line = b"{\"id\":1,\"seq\":1,\"note\":\"some text\"}\n".repeat(2000);
    for block in zstd::encode_all(&line[..], 1)?.chunks(16) {
        zipped.extend_from_slice(block);
    }
    zipped.truncate(zipped.len() - 8);
    for (name, bytes) in [
        ("a.jsonl.zst", zipped),
        (
            "b.jsonl.gz",
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03rubbish".to_vec(),
        ),
        ("c.parquet", b"PAR1 this is no Parquet file PAR1".to_vec()),
        ("d.csv", b"id,seq\n\xff\xfe,1\n".to_vec()),
    ] {
        let refusal = refused(&tidegate, file(name, bytes))?;
        check(&refusal, "INVALID_RECORD", name, name)?;
    }
    Ok(())
}

#[test]
fn names_that_differ_only_in_case_are_a_fault_of_the_data() -> Result<()> {
    let tidegate = table(FLAT)?;
    let lines = "{\"id\":1,\"seq\":1}\n\n{\"id\":2,\"seq\":1,\"Note\":\"x\"}\n";
    let refusal = refused(&tidegate, file("a.jsonl", lines))?;
    let says = "a.jsonl line 3, field Note: the name differs from column note only in case";
    check(&refusal, "INVALID_RECORD", "a.jsonl", says)?;
    let lines = "{\"id\":1,\"seq\":1,\"Amt\":1}\n{\"id\":2,\"seq\":1,\"amt\":1}\n";
    let refusal = refused(&tidegate, file("b.jsonl", lines))?;
    let says = "b.jsonl line 2, field amt: the name differs from column Amt only in case";
    check(&refusal, "INVALID_RECORD", "b.jsonl", says)
}

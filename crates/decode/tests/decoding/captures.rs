//! Real Debezium output: counts and key facts of `tests/captures`, in every shape of a line.

use serde_json::Value;
use tidegate_change::source::SourceOperation;

use super::{Whole, capture, decode, resolved};

/// How a capture's records are written as lines.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// As captured: a dumped Kafka record.
    Dump,
    /// The value alone, as file sinks write it.
    Value,
    /// Key, value and headers as `kcat -J` dumps them.
    Kcat,
}

fn lines(path: &str, shape: Shape) -> Vec<u8> {
    let bytes = capture(path);
    let text = String::from_utf8(bytes).unwrap();
    let mut out = String::new();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let line = match shape {
            Shape::Dump => line.to_owned(),
            Shape::Value => record["value"].to_string(),
            Shape::Kcat => {
                let text = |value: &Value| match value {
                    Value::Null => Value::Null,
                    value => Value::from(value.to_string()),
                };
                let mut headers = Vec::new();
                for (name, value) in record["headers"].as_object().unwrap() {
                    headers.extend([Value::from(name.as_str()), text(value)]);
                }
                serde_json::json!({
                    "topic": record["topic"], "partition": 0, "offset": record["offset"],
                    "headers": headers, "key": text(&record["key"]), "payload": text(&record["value"]),
                })
                .to_string()
            }
        };
        out.push_str(&line);
        out.push('\n');
    }
    out.into_bytes()
}

fn docs(set: &str) -> String {
    format!(
        "name: docs\nkeys: [id]\nschema:\n  - {{name: id, type: long}}\n  - {{name: rev, type: integer}}\n  \
         - {{name: body, type: string}}\n  - {{name: meta, type: string}}\n  - {{name: bin, type: binary}}\n  \
         - {{name: tags, type: array<string>}}\nsource: {{format: debezium, table: {set}.docs}}\n"
    )
}

fn total(whole: &Whole) -> usize {
    whole.operations().len() + whole.invalid().len()
}

#[test]
fn records_are_classified_as_the_captures_say() {
    for kind in ["sch", "nosch"] {
        for shape in [Shape::Dump, Shape::Value, Shape::Kcat] {
            let lines = lines(
                &format!("small-pg/pg_default/events.{kind}.jsonl.zst"),
                shape,
            );
            let whole = decode(&resolved(&docs("shop")), None, lines);
            let classes = ["null", "heartbeat", "transaction", "message", "other_table"];
            let counts = classes.map(|class| whole.other(class));
            assert_eq!(counts, [55, 132, 446, 4, 354], "{kind} {shape:?}");
            assert_eq!(total(&whole), 29, "{kind} {shape:?}");
            assert_eq!(whole.invalid(), [""; 0], "{kind} {shape:?}");
            assert_eq!(whole.count(SourceOperation::Copy), 4);
            assert_eq!(whole.count(SourceOperation::Delete), 4);
            assert_eq!(whole.findings.tables.len(), 1);
        }
    }
}

#[test]
fn unavailable_values_are_not_authored() {
    for kind in ["sch", "nosch"] {
        let lines = lines(
            &format!("small-pg/pg_default/events.{kind}.jsonl.zst"),
            Shape::Dump,
        );
        let whole = decode(&resolved(&docs("shop")), None, lines);
        let upserts: Vec<bool> = whole
            .operations()
            .iter()
            .map(|op| *op != SourceOperation::Delete)
            .collect();
        for (column, expected) in [("body", 15), ("meta", 13), ("bin", 15), ("tags", 15)] {
            let values = whole.column(column);
            let count = values
                .iter()
                .zip(&upserts)
                .filter(|(v, up)| *v == "-" && **up)
                .count();
            assert_eq!(count, expected, "{kind} {column}");
        }
    }
}

#[test]
fn an_unavailable_value_is_not_the_default() {
    let spec = docs("shop").replace(
        "{name: body, type: string}",
        "{name: body, type: string, default: x}",
    );
    let whole = decode(
        &resolved(&spec),
        None,
        lines("small-pg/pg_default/events.sch.jsonl.zst", Shape::Dump),
    );
    assert!(!whole.column("body").contains(&"\"x\"".to_owned()));
}

#[test]
fn key_changes_know_their_old_key_with_and_without_headers() {
    for shape in [Shape::Dump, Shape::Value, Shape::Kcat] {
        for kind in ["sch", "nosch"] {
            let path = format!("small-pg/pg_default/events.{kind}.jsonl.zst");
            let whole = decode(&resolved(&docs("shop")), None, lines(&path, shape));
            assert_eq!(
                whole.old_keys(),
                ["{\"id\":4}", "{\"id\":4}"],
                "{kind} {shape:?}"
            );
        }
    }
}

#[test]
fn a_key_that_gains_a_column_takes_the_default() {
    let spec = "name: counters\nkeys: [id, k2]\nschema:\n  - {name: id, type: long}\n  \
                - {name: k2, type: integer, default: 0}\n  - {name: n, type: long}\n  \
                - {name: last_tx, type: string}\nsource: {format: debezium, table: shop.counters}\n";
    for shape in [Shape::Dump, Shape::Value] {
        let path = "small-pg/pg_default/events.sch.jsonl.zst";
        let whole = decode(&resolved(spec), None, lines(path, shape));
        assert!(!whole.column("k2").contains(&"null".to_owned()));
        assert!(!whole.column("k2").contains(&"-".to_owned()));
        assert_eq!(whole.old_keys().len(), 10, "{shape:?}");
        assert_eq!(whole.invalid(), [""; 0]);
    }
}

#[test]
fn a_key_that_changes_its_encoding_decodes_to_the_declared_type() {
    let spec = "name: orders\nkeys: [region, order_no]\nschema:\n  - {name: region, type: string}\n  \
                - {name: order_no, type: 'decimal(30,0)'}\n  - {name: amount, type: 'decimal(18,4)'}\n  \
                - {name: placed_on, type: date}\n  - {name: placed_at, type: string}\n\
                source: {format: debezium, table: shop.orders}\n";
    let whole = decode(
        &resolved(spec),
        None,
        lines("small-pg/pg_default/events.sch.jsonl.zst", Shape::Dump),
    );
    assert_eq!(whole.invalid(), [""; 0]);
    let numbers = whole.column("order_no");
    assert!(numbers.iter().all(|v| v.starts_with('"')), "{numbers:?}");
    assert!(
        whole
            .column("placed_on")
            .contains(&"\"2024-02-29\"".to_owned())
    );
    assert_eq!(whole.old_keys().len(), 2);
}

#[test]
fn incremental_copies_have_a_position_and_rank_lowest() {
    let spec = "name: late\nkeys: [id]\nschema: [{name: id, type: long}]\n\
                source: {format: debezium, table: shop.late_table}\n";
    let whole = decode(
        &resolved(spec),
        None,
        lines("small-pg/pg_default/events.nosch.jsonl.zst", Shape::Dump),
    );
    assert_eq!(whole.count(SourceOperation::Copy), 36);
    let positions = whole.positions();
    assert_eq!(positions.len(), 48);
    for (position, operation) in positions.iter().zip(whole.operations()) {
        let rank = if operation == SourceOperation::Copy {
            "\"rank\":0}"
        } else {
            "\"rank\":1}"
        };
        assert!(
            position.starts_with("{\"lsn\":3") && position.ends_with(rank),
            "{position}"
        );
    }
    let offsets = whole
        .batches
        .iter()
        .filter_map(|b| b.offsets.get("pgshop.shop.late_table/0"));
    assert_eq!(offsets.max(), Some(&50));
}

#[test]
fn truncates_are_events_of_their_table() {
    let spec = "name: t\nkeys: [id]\nschema: [{name: id, type: long}, {name: v, type: string}]\n\
                source: {format: debezium, table: shop.trunc_me}\n";
    let whole = decode(
        &resolved(spec),
        None,
        lines("small-pg/pg_default/events.sch.jsonl.zst", Shape::Value),
    );
    assert_eq!(whole.count(SourceOperation::Truncate), 4);
}

#[test]
fn fifty_types_infer_and_decode_by_the_event_schema() {
    let yaml = "name: types\nkeys: [id]\nsource: {format: debezium, table: shop.types_all}\n";
    for set in ["pg_default", "pg_string"] {
        let input = || lines(&format!("small-pg/{set}/events.sch.jsonl.zst"), Shape::Dump);
        let spec = resolved(yaml);
        let first = decode(&spec, None, input());
        let spec = tidegate_decode::evolve(&spec, &first.findings, true)
            .unwrap()
            .unwrap();
        assert_eq!(
            spec.sequence_type.as_deref(),
            Some("struct<lsn:long,rank:integer>")
        );
        let whole = decode(&spec, None, input());
        assert_eq!(whole.invalid(), [""; 0], "{set}");
        assert_eq!(whole.findings.fields, []);
        let type_of = |name: &str| {
            let column = spec.columns.iter().find(|c| c.column.name == name).unwrap();
            column.column.type_name.clone()
        };
        let at = |name: &str, row: usize| whole.column(name)[row].clone();
        assert_eq!(at("c_i8", 0), "9223372036854775807");
        assert_eq!(at("c_f4", 3), "\"NaN\"");
        assert_eq!(at("c_date", 0), "\"9999-12-31\"");
        assert_eq!(at("c_ts", 0), "\"9999-12-31T23:59:59.999999\"");
        assert_eq!(at("c_tstz", 1), "\"1900-01-01T00:00:00.000001Z\"");
        assert_eq!(at("c_time", 0), "86399999999");
        assert_eq!(at("a_int", 0), "[1,null,-3]");
        assert_eq!(at("c_json", 1), "\"null\"");
        // A generated column is in the copy only (R-N5).
        assert_eq!(at("g_len", 0), "5");
        assert_eq!(at("g_len", 5), "-");
        if set == "pg_default" {
            assert_eq!(type_of("c_num38"), "decimal(38,10)");
            assert_eq!(
                at("c_num", 0),
                "\"123456789012345678901234567890.123456789\""
            );
            assert_eq!(
                at("c_num38", 0),
                "\"9999999999999999999999999999.9999999999\""
            );
            assert_eq!(at("c_money", 0), "\"92233720368547758.07\"");
            assert_eq!(at("a_num", 0), "[\"1.10\",null]");
            assert_eq!(type_of("c_intv"), "long");
        } else {
            assert_eq!(
                at("c_num38", 0),
                "\"9999999999999999999999999999.9999999999\""
            );
            assert_eq!(type_of("c_intv"), "string");
        }
    }
}

#[test]
fn infinities_read_null_and_are_counted() {
    let yaml = "name: types\nkeys: [id]\nsource: {format: debezium, table: shop.types_all}\nschema:\n  \
                - {name: id, type: string}\n  - {name: c_date, type: date}\n  - {name: c_ts, type: timestamp_ntz}\n  \
                - {name: c_tstz, type: timestamp}\n  - {name: c_num38, type: 'decimal(38,10)'}\n";
    for set in ["pg_default", "pg_string"] {
        let input = || lines(&format!("small-pg/{set}/events.sch.jsonl.zst"), Shape::Dump);
        let whole = decode(&resolved(yaml), None, input());
        let count: u64 = whole
            .batches
            .iter()
            .map(|batch| batch.unrepresentable)
            .sum();
        assert!(count > 0, "{set}");
        let refusing = format!("{yaml}on_unrepresentable: quarantine\n");
        let refused = decode(&resolved(&refusing), None, input());
        assert!(!refused.invalid().is_empty());
        let policies = refused
            .batches
            .iter()
            .flat_map(|batch| &batch.invalid)
            .map(|e| e.policy);
        assert!(policies.into_iter().all(|p| p.is_some()));
    }
}

#[test]
fn mysql_positions_have_file_row_and_rank() {
    let spec = "name: customers\nkeys: [id]\nschema: [{name: id, type: long}, {name: bal, type: 'decimal(10,2)', scale: 2}]\n\
                source: {format: debezium, table: inv.customers}\n";
    for kind in ["sch", "nosch"] {
        let whole = decode(
            &resolved(spec),
            None,
            lines(&format!("small-mysql/events.{kind}.jsonl.zst"), Shape::Dump),
        );
        assert_eq!(whole.invalid(), [""; 0]);
        assert_eq!(whole.other("schema_change"), 23);
        assert_eq!(whole.operations().len(), 15);
        assert_eq!(
            whole.positions()[0],
            "{\"file\":2,\"pos\":8596,\"rank\":0,\"row\":0}"
        );
        assert_eq!(whole.old_keys(), ["{\"id\":3}"]);
        assert!(whole.column("bal").contains(&"\"3.00\"".to_owned()));
    }
}

#[test]
fn mixed_tables_need_a_filter() {
    let spec =
        "name: x\nkeys: [id]\nschema: [{name: id, type: long}]\nsource: {format: debezium}\n";
    let error = super::try_decode(
        &resolved(spec),
        None,
        lines("small-pg/pg_default/events.nosch.jsonl.zst", Shape::Dump),
    );
    assert_eq!(
        error.err().unwrap().code(),
        tidegate_change::Code::InvalidRecord
    );
}

//! JSON lines and CSV without envelope.

use tidegate_change::source::SourceOperation;
use tidegate_decode::FileFormat;

use super::{decode, resolved, try_decode};

const SPEC: &str = "name: t\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  \
    - {name: seq, type: long}\n  - {name: amount, type: 'decimal(38,2)'}\n  - {name: note, type: string}\n";

#[test]
fn numbers_keep_all_digits() {
    let lines = br#"{"id":9223372036854775807,"seq":1,"amount":123456789012345678901234567890123456.70,"note":"x"}
{"note":null, "amount":"0.10","seq":9007199254740993,"id":-9223372036854775808}

{"id":3,"seq":3,"amount":1e2,"note":12.50}
"#;
    let whole = decode(&resolved(SPEC), None, lines.to_vec());
    assert_eq!(whole.invalid(), [""; 0]);
    assert_eq!(
        whole.column("id"),
        ["9223372036854775807", "-9223372036854775808", "3"]
    );
    assert_eq!(whole.column("seq"), ["1", "9007199254740993", "3"]);
    let amounts = [
        "\"123456789012345678901234567890123456.70\"",
        "\"0.10\"",
        "\"100.00\"",
    ];
    assert_eq!(whole.column("amount"), amounts);
    assert_eq!(whole.column("note"), ["\"x\"", "null", "\"12.50\""]);
    assert_eq!(whole.operations(), [SourceOperation::Unspecified; 3]);
    assert_eq!(whole.batches[0].origin.rows, [0, 1, 2]);
}

#[test]
fn faults_name_line_and_field_and_keep_the_record() {
    let lines = b"{\"id\":1,\"seq\":1}\n\n{\"id\":\"x\",\"seq\":1}\n[1]\n{\"id\":2,\"seq\":1,\"amount\":0.001}\n{\"id\":3,\"seq\":\xff}\n{\"id\":1} x\n";
    let whole = decode(&resolved(SPEC), None, lines.to_vec());
    assert_eq!(whole.column("id"), ["1"]);
    assert_eq!(
        whole.invalid(),
        [
            "INVALID_VALUE row 1 line 3, field id: the value is no long",
            "INVALID_RECORD row 2 line 4: no JSON object",
            "INVALID_VALUE row 3 line 5, field amount: the value is no decimal(38,2)",
            "INVALID_RECORD row 4 line 6: no UTF-8",
            "INVALID_RECORD row 5 line 7: no JSON object",
        ]
    );
    assert_eq!(whole.batches[0].invalid[0].raw, "{\"id\":\"x\",\"seq\":1}");
    assert_eq!(whole.batches[0].origin.rows, [0]);
}

#[test]
fn absent_fields_are_null_and_counted_or_not_authored() {
    let lines = b"{\"id\":1,\"seq\":1}\n{\"id\":2,\"seq\":1,\"note\":\"a\"}\n".to_vec();
    let whole = decode(&resolved(SPEC), None, lines.clone());
    assert_eq!(whole.column("note"), ["null", "\"a\""]);
    assert_eq!(whole.batches[0].absent, 3);
    let whole = decode(
        &resolved(&format!("{SPEC}absent_fields: keep\n")),
        None,
        lines,
    );
    assert_eq!(whole.column("note"), ["-", "\"a\""]);
    assert!(whole.batches[0].columns.column_by_name("amount").is_none());
    assert_eq!(whole.batches[0].absent, 0);
}

#[test]
fn defaults_fill_absent_columns() {
    let spec = SPEC.replace(
        "{name: note, type: string}",
        "{name: note, type: string, default: web}",
    );
    let whole = decode(&resolved(&spec), None, b"{\"id\":1,\"seq\":1}\n".to_vec());
    assert_eq!(whole.column("note"), ["\"web\""]);
}

#[test]
fn nested_values_decode_by_the_declared_type() {
    let spec = "name: t\nkeys: [id]\nsequence_by: id\nschema:\n  - {name: id, type: long}\n  \
        - {name: info, type: 'struct<city:string,zip:string,at:struct<d:date>>'}\n  \
        - {name: tags, type: 'array<decimal(5,1)>'}\n  - {name: m, type: 'map<string,array<long>>'}\n";
    let lines = br#"{"id":1,"info":{"zip":"1","city":null,"at":{"d":"2026-01-01"},"x":1},"tags":[1,"2.5",null],"m":{"a":[1],"b":null}}
{"id":2,"info":{},"tags":[],"m":{}}
{"id":3,"info":null,"tags":[1.55],"m":null}
{"id":4,"info":null,"tags":null,"m":{"a":["x"]}}
{"id":5,"info":null,"tags":[9],"m":{"z":[7]}}
"#;
    let whole = decode(&resolved(spec), None, lines.to_vec());
    assert_eq!(whole.column("id"), ["1", "2", "5"]);
    let infos = whole.column("info");
    assert_eq!(
        infos[0],
        "{\"at\":{\"d\":\"2026-01-01\"},\"city\":null,\"zip\":\"1\"}"
    );
    assert_eq!(
        whole.column("tags"),
        ["[\"1.0\",\"2.5\",null]", "[]", "[\"9.0\"]"]
    );
    assert_eq!(
        whole.column("m"),
        ["{\"a\":[1],\"b\":null}", "{}", "{\"z\":[7]}"]
    );
    assert_eq!(whole.invalid().len(), 2);
}

#[test]
fn csv_tells_null_from_the_empty_string() {
    let spec = format!("{SPEC}source: {{null_value: \"NULL\"}}\n");
    let text = "\u{feff}note,id,seq,extra\r\n,1,10,\r\n\"\",2,20,7\r\nNULL,3,30,8\r\n\"a,\"\"b\"\"\nc\",4,40,9\r\nx,5\r\ny,z,60,1\r\n";
    let whole = decode(
        &resolved(&spec),
        Some(FileFormat::Csv),
        text.as_bytes().to_vec(),
    );
    assert_eq!(
        whole.column("note"),
        ["null", "\"\"", "null", "\"a,\\\"b\\\"\\nc\""]
    );
    assert_eq!(whole.column("amount"), ["-"; 4]);
    assert_eq!(
        whole.invalid(),
        [
            "INVALID_RECORD row 4 line 7: another number of cells than the header has",
            "INVALID_VALUE row 5 line 8, field id: the value is no long",
        ]
    );
    assert_eq!(
        whole.batches[0].invalid[1].raw,
        "{\"note\":\"y\",\"id\":\"z\",\"seq\":\"60\",\"extra\":\"1\"}"
    );
    assert_eq!(
        whole.findings.fields[0].data_type().unwrap().to_string(),
        "Int64"
    );
}

#[test]
fn timestamps_and_encodings_follow_the_declaration() {
    let spec = "name: t\nkeys: [id]\nsequence_by: id\nschema:\n  - {name: id, type: long}\n  \
        - {name: a, type: timestamp}\n  - {name: b, type: timestamp_ntz}\n  - {name: c, type: timestamp, encoding: epoch_ms}\n  \
        - {name: d, type: binary, encoding: hex}\n  - {name: e, type: 'decimal(6,2)', scale: 2}\n  - {name: f, type: date}\n";
    let lines = br#"{"id":1,"a":"2026-01-01 02:00:00+02","b":"2026-01-01T00:00:00.5","c":1767225600000,"d":"DEad","e":"AYag","f":0}
{"id":2,"a":"2026-01-01T00:00:00","b":"2026-01-01T00:00:00Z"}
{"id":3,"a":1767225600}
{"id":4,"a":"infinity","f":"10000-01-01"}
"#;
    let whole = decode(&resolved(spec), None, lines.to_vec());
    assert_eq!(whole.column("id"), ["1", "4"]);
    assert_eq!(whole.column("a")[0], "\"2026-01-01T00:00:00.000000Z\"");
    assert_eq!(whole.column("b")[0], "\"2026-01-01T00:00:00.500000\"");
    assert_eq!(whole.column("c")[0], "\"2026-01-01T00:00:00.000000Z\"");
    assert_eq!(whole.column("d")[0], "\"3q0=\"");
    assert_eq!(whole.column("e")[0], "\"1000.00\"");
    assert_eq!(whole.column("f"), ["\"1970-01-01\"", "null"]);
    assert_eq!(whole.batches[0].unrepresentable, 2);
}

#[test]
fn renames_apply_before_everything_else() {
    let spec = format!("{SPEC}source: {{columns: {{Identifier: id}}}}\n");
    let whole = decode(
        &resolved(&spec),
        None,
        b"{\"Identifier\":7,\"seq\":1}\n".to_vec(),
    );
    assert_eq!(whole.column("id"), ["7"]);
    assert_eq!(whole.findings.fields, []);
}

#[test]
fn a_reserved_or_unread_format_is_refused_clearly() {
    for format in ["debezium-flat", "dms", "canal"] {
        let spec = format!("{SPEC}source: {{format: {format}}}\n");
        let error = try_decode(&resolved(&spec), None, Vec::new())
            .err()
            .unwrap();
        assert_eq!(error.code(), tidegate_change::Code::Unsupported);
    }
    let avro = try_decode(&resolved(SPEC), None, b"Obj\x01rest".to_vec())
        .err()
        .unwrap();
    assert_eq!(avro.code(), tidegate_change::Code::Unsupported);
}

#[test]
fn chunks_are_cut_at_records_and_numbered_through() {
    let line = format!(
        "{{\"id\":1,\"seq\":1,\"note\":\"{}\"}}\n\n",
        "x".repeat(5000)
    );
    let lines = line.repeat(5000).into_bytes();
    let whole = decode(&resolved(SPEC), None, lines);
    assert!(whole.batches.len() > 2);
    let rows: Vec<u64> = whole
        .batches
        .iter()
        .flat_map(|b| b.origin.rows.clone())
        .collect();
    assert_eq!(rows, (0..5000).collect::<Vec<u64>>());
    let mut csv = b"id,seq,note\n".to_vec();
    for row in 0..5000 {
        csv.extend(format!("{row},1,\"{}\n\"\"\"\n", "y".repeat(5000)).into_bytes());
    }
    let whole = decode(&resolved(SPEC), Some(FileFormat::Csv), csv);
    assert_eq!(whole.operations().len(), 5000);
    let rows: Vec<u64> = whole
        .batches
        .iter()
        .flat_map(|b| b.origin.rows.clone())
        .collect();
    assert_eq!(rows, (0..5000).collect::<Vec<u64>>());
    assert_eq!(whole.invalid(), [""; 0]);
}

#[test]
fn records_of_a_broker_are_rows_with_topic_and_offset() {
    let line = |offset: i64, value: serde_json::Value| {
        let record =
            serde_json::json!({"topic": "shop", "partition": 2, "offset": offset, "value": value});
        format!("{record}\n")
    };
    let lines = [
        line(7, "{\"id\": 1,\n \"seq\": 1, \"note\": \"\\u00e4\"}".into()),
        line(9, serde_json::Value::Null),
        line(8, "no row".into()),
        "no record\n".to_owned(),
    ];
    let bytes = lines.concat().into_bytes();
    let whole = decode(&resolved(SPEC), Some(FileFormat::Records), bytes);
    assert_eq!(
        (whole.column("id"), whole.column("note")),
        (vec!["1".into()], vec!["\"ä\"".into()])
    );
    assert_eq!(
        whole.invalid(),
        [
            "INVALID_RECORD row 2 line 3: no JSON object",
            "INVALID_RECORD row 3 line 4: no JSON object",
        ]
    );
    assert!(whole.batches[0].invalid[0].raw.contains("no row"));
    assert_eq!(whole.other("null"), 1);
    let origin = &whole.batches[0].origin;
    assert_eq!(origin.offsets.as_deref(), Some(&[Some(7)][..]));
    assert_eq!(origin.partitions.as_deref(), Some(&[Some(2)][..]));
    let offsets: Vec<_> = whole.batches[0].offsets.iter().collect();
    assert_eq!(offsets, [(&"shop/2".to_owned(), &10)]);
}

//! What tables without keys need of a record: its place, and whether it is an insert (R-K7).

use tidegate_change::source::SourceOperation::{Copy, Delete, Update, Upsert};

use super::{decode, resolved};

const SPEC: &str =
    "name: t\nmode: append\nsource: {format: debezium}\nschema:\n  - {name: v, type: long}\n";

fn record(place: &str, op: &str, images: &str) -> String {
    let source = "\"source\":{\"connector\":\"postgresql\",\"table\":\"t\",\"lsn\":9}";
    format!("{{{place}\"value\":{{{images},{source},\"op\":\"{op}\"}}}}\n")
}

#[test]
fn records_tell_their_topic_where_they_have_one() {
    let row = "\"after\":{\"v\":1}";
    let lines = [
        record("\"topic\":\"a\",\"partition\":2,\"offset\":5,", "c", row),
        record("", "c", row),
        record("\"topic\":\"b\",\"offset\":6,", "r", row),
        record(
            "\"topic\":\"b\",\"offset\":7,",
            "c",
            "\"after\":{\"v\":\"x\"}",
        ),
        record("\"topic\":\"b\",\"offset\":8,", "c", row),
    ];
    let whole = decode(&resolved(SPEC), None, lines.concat().into_bytes());
    assert_eq!(whole.invalid().len(), 1);
    let origin = &whole.batches[0].origin;
    let topics = origin.topics.as_ref().unwrap().iter();
    let topics: Vec<_> = topics.map(Option::as_deref).collect();
    assert_eq!(topics, [Some("a"), None, Some("b"), Some("b")]);
    assert_eq!(
        origin.offsets.as_deref().unwrap(),
        [Some(5), None, Some(6), Some(8)]
    );
    assert_eq!(
        origin.partitions.as_deref().unwrap(),
        [Some(2), None, None, None]
    );
    assert_eq!(origin.rows, [0, 1, 2, 4]);
}

#[test]
fn bare_values_have_no_topic() {
    let whole = decode(
        &resolved(SPEC),
        None,
        record("", "c", "\"after\":{\"v\":1}").into_bytes(),
    );
    let origin = &whole.batches[0].origin;
    assert!(origin.topics.is_none() && origin.partitions.is_none() && origin.offsets.is_none());
}

#[test]
fn an_update_is_told_from_an_insert() {
    let lines = [
        record("", "r", "\"after\":{\"v\":1}"),
        record("", "c", "\"after\":{\"v\":1}"),
        record("", "u", "\"before\":{\"v\":1},\"after\":{\"v\":2}"),
        record("", "d", "\"before\":{\"v\":2},\"after\":null"),
    ];
    let whole = decode(&resolved(SPEC), None, lines.concat().into_bytes());
    assert_eq!(whole.operations(), [Copy, Upsert, Update, Delete]);
    assert!(whole.old_keys().is_empty());
}

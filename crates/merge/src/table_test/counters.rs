//! What a batch counts (interface document: the result of a batch).

use serde_json::{Value, json};

use super::{Table, spec};

fn counts(table: &mut Table, events: Value) -> [u64; 3] {
    let counters = table.apply(events).counters;
    [counters.late, counters.duplicates, counters.ties]
}

#[test]
fn an_event_beaten_inside_its_batch_counts_nowhere() {
    let mut table = Table::new(spec(&[("v", "string")], json!({})));
    let batch = json!([{"id": 1, "seq": 1, "v": "a"}, {"id": 1, "seq": 2, "v": "b"}]);
    assert_eq!(counts(&mut table, batch), [0, 0, 0]);
}

#[test]
fn equal_events_are_one_and_the_rest_are_duplicates_r_u1() {
    let mut table = Table::new(spec(&[("v", "string")], json!({})));
    let batch = json!([
        {"id": 1, "seq": 1, "v": "a"}, {"id": 1, "seq": 1, "v": "a"}, {"id": 1, "seq": 1, "v": "a"},
        {"id": 2, "seq": 1, "op": "D"}, {"id": 2, "seq": 1, "op": "D"},
    ]);
    assert_eq!(counts(&mut table, batch.clone()), [0, 3, 0]);
    assert_eq!(counts(&mut table, batch), [0, 5, 0]);
}

#[test]
fn ties_count_all_contents_but_one_however_they_are_cut_into_batches_r_t4() {
    let tie = |value: &str| json!({"id": 1, "seq": 1, "v": value});
    let delete = json!({"id": 1, "seq": 1, "op": "D"});
    let mut whole = Table::new(spec(&[("v", "string")], json!({"absent_fields": "null"})));
    let all = json!([tie("a"), tie("c"), delete, tie("b"), tie("a")]);
    let applied = whole.apply(all);
    assert_eq!((applied.counters.ties, applied.counters.duplicates), (3, 1));
    assert_eq!(applied.tie_example, Some(0));
    let mut cut = Table::new(spec(&[("v", "string")], json!({"absent_fields": "null"})));
    let parts = [
        json!([tie("b"), tie("a")]),
        json!([delete]),
        json!([tie("c")]),
    ];
    let ties: Vec<u64> = parts
        .into_iter()
        .map(|part| counts(&mut cut, part)[2])
        .collect();
    assert_eq!(ties, [1, 1, 1]);
    assert_eq!(counts(&mut cut, json!([tie("c"), delete])), [0, 2, 0]);
}

#[test]
fn late_is_below_the_state_before_the_batch() {
    let mut table = Table::new(spec(&[("v", "string")], json!({})));
    counts(
        &mut table,
        json!([{"id": 1, "seq": 5, "v": "a"}, {"id": 2, "seq": 5, "op": "D"}]),
    );
    let batch = json!([
        {"id": 1, "seq": 9, "v": "b"}, {"id": 1, "seq": 7, "v": "c"}, {"id": 1, "seq": 4, "v": "d"},
        {"id": 2, "seq": 4, "v": "e"}, {"id": 2, "seq": 5, "v": "f"}, {"id": 3, "seq": 1, "v": "g"},
    ]);
    assert_eq!(counts(&mut table, batch), [2, 0, 1]);
}

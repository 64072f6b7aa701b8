//! Key changes (R-K6). An event's `old` is the key it had before.

use serde_json::json;

use super::{Table, spec};

fn table() -> Table {
    Table::new(spec(&[("a", "string"), ("big", "string")], json!({})))
}

#[test]
fn an_unavailable_value_is_carried_from_the_stored_row_r_k6() {
    let mut table = table();
    table.apply(json!([{"id": 1, "seq": 1, "a": "a", "big": "toast"}]));
    let moved = json!([{"id": 1, "seq": 2, "op": "D"}, {"id": 2, "seq": 2, "old": 1, "a": "b"}]);
    let applied = table.apply(moved.clone());
    assert_eq!(
        table.visible(),
        [json!({"id": 2, "a": "b", "big": "toast"})]
    );
    assert_eq!(applied.unresolved, 0);
    let state = table.state();
    let row = state.iter().find(|row| row["id"] == json!(2)).unwrap();
    assert_eq!(
        row["__tidegate_leaves"],
        json!(null),
        "a carried value is authored at the change"
    );
    let again = table.apply(moved);
    assert_eq!((again.written, again.feed.len()), (0, 0));
    assert_eq!(
        table.visible(),
        [json!({"id": 2, "a": "b", "big": "toast"})]
    );
}

#[test]
fn chains_carry_in_sequence_order_whatever_the_order_of_arrival_r_k6() {
    let mut table = table();
    let applied = table.apply(json!([
        {"id": 3, "seq": 3, "old": 2, "a": "c"},
        {"id": 2, "seq": 3, "op": "D"},
        {"id": 2, "seq": 2, "old": 1, "a": "b"},
        {"id": 1, "seq": 2, "op": "D"},
        {"id": 1, "seq": 1, "a": "a", "big": "toast"},
    ]));
    assert_eq!(
        table.visible(),
        [json!({"id": 3, "a": "c", "big": "toast"})]
    );
    assert_eq!(applied.unresolved, 0);
}

#[test]
fn a_stored_row_at_or_above_the_change_carries_nothing_r_k6() {
    let mut table = table();
    table.apply(json!([{"id": 1, "seq": 2, "a": "a", "big": "reused"}]));
    let applied = table.apply(json!([
        {"id": 1, "seq": 1, "a": "a", "big": "replayed"},
        {"id": 2, "seq": 2, "old": 1, "a": "b", "x": 1},
    ]));
    let moved = table
        .visible()
        .into_iter()
        .find(|row| row["id"] == json!(2))
        .unwrap();
    assert_eq!(moved["big"], json!(null));
    assert_eq!(applied.unresolved, 1);
}

#[test]
fn an_unresolved_value_keeps_what_the_new_key_has_r_k6() {
    let mut table = table();
    table.apply(json!([{"id": 2, "seq": 5, "a": "b", "big": "kept"}]));
    let applied = table.apply(json!([
        {"id": 2, "seq": 6, "old": 1, "a": "c"}, {"id": 7, "seq": 1, "a": "", "big": ""},
    ]));
    assert_eq!(applied.unresolved, 1);
    assert_eq!(
        table.visible()[0],
        json!({"id": 2, "a": "c", "big": "kept"})
    );
}

#[test]
fn a_value_below_a_delete_of_the_old_key_is_gone_r_k6() {
    let mut table = table();
    let applied = table.apply(json!([
        {"id": 1, "seq": 1, "a": "a", "big": "cleared"},
        {"id": 1, "seq": 2, "op": "D"},
        {"id": 1, "seq": 3, "a": "again"},
        {"id": 1, "seq": 4, "op": "D"},
        {"id": 2, "seq": 4, "old": 1, "a": "b"},
    ]));
    assert_eq!(applied.unresolved, 1);
    assert_eq!(table.visible(), [json!({"id": 2, "a": "b", "big": null})]);
}

#[test]
fn nested_leaves_are_carried_one_by_one_r_k6() {
    let columns = [("s", "struct<x:string,y:string>"), ("a", "string")];
    let mut table = Table::new(spec(&columns, json!({"ignore_null_updates": ["s"]})));
    table.apply(json!([{"id": 1, "seq": 1, "s": {"x": "x", "y": null}, "a": "1"}]));
    table.apply(json!([
        {"id": 1, "seq": 2, "s": {"x": null, "y": "y"}, "a": "2"},
        {"id": 2, "seq": 3, "old": 1, "a": "3"}, {"id": 1, "seq": 3, "op": "D"},
    ]));
    assert_eq!(
        table.visible(),
        [json!({"id": 2, "s": {"x": "x", "y": "y"}, "a": "3"})]
    );
}

//! Tables without keys: rows are known by their position (R-K7).

use serde_json::{Value, json};
use tidegate_change::hidden;

use super::{Table, sorted, spec};

fn table(more: Value) -> Table {
    let mut fields = json!({"mode": "append", "keys": [], "sequence_by": null});
    for (name, value) in more.as_object().unwrap() {
        fields[name] = value.clone();
    }
    Table::new(spec(&[("v", "string")], fields))
}

fn event(position: &str, v: &str) -> Value {
    json!({hidden::POSITION: position, "id": 7, "v": v})
}

fn shown(values: &[&str]) -> Vec<Value> {
    sorted(values.iter().map(|v| json!({"id": 7, "v": v})).collect())
}

#[test]
fn each_position_is_appended_once_whatever_else_is_equal_r_k7() {
    let mut table = table(json!({}));
    let first = table.apply(json!([
        event("01", "a"),
        event("02", "a"),
        event("01", "a")
    ]));
    assert_eq!((first.counters.inserted, first.counters.duplicates), (2, 1));
    assert_eq!(table.visible(), shown(&["a", "a"]));
    let again = table.apply(json!([
        event("02", "a"),
        event("03", "b"),
        event("01", "a")
    ]));
    let counters = again.counters;
    assert_eq!(
        (counters.inserted, counters.duplicates, counters.unchanged),
        (1, 2, 2)
    );
    assert_eq!((again.written, again.feed.len()), (1, 1));
    assert_eq!(table.visible(), shown(&["a", "a", "b"]));
    assert_eq!(table.tombstones.num_rows(), 0);
}

#[test]
fn a_stored_row_is_never_touched_r_k7() {
    let mut table = table(json!({"sequence_by": "seq"}));
    let at = |seq: i64, v: &str| {
        let mut event = event("05", v);
        event["seq"] = json!(seq);
        event
    };
    table.apply(json!([at(5, "b"), at(5, "a")]));
    assert_eq!(table.visible(), shown(&["a"]));
    for later in [at(9, "z"), at(1, "0"), at(5, "c")] {
        let applied = table.apply(json!([later]));
        let counters = applied.counters;
        assert_eq!(
            (counters.inserted, counters.updated, counters.deleted),
            (0, 0, 0)
        );
        assert!(applied.feed.is_empty());
    }
    assert_eq!(table.visible(), shown(&["a"]));
}

#[test]
fn rows_keep_their_position_and_come_in_its_order_r_k7() {
    let mut table = table(json!({}));
    table.apply(json!([
        event("0b", "2"),
        event("0a", "3"),
        event("0a00", "1")
    ]));
    let stored = super::to_json(&table.rows);
    let positions: Vec<&Value> = stored.iter().map(|row| &row[hidden::POSITION]).collect();
    assert_eq!(positions, [&json!("0a"), &json!("0a00"), &json!("0b")]);
}

#[test]
fn a_column_that_comes_later_is_null_in_the_rows_before_r_e1() {
    let mut table = table(json!({}));
    table.apply(json!([event("01", "a")]));
    table.add_column("w", "string");
    let mut second = event("02", "b");
    second["w"] = json!("x");
    let again = table.apply(json!([event("01", "a"), second]));
    assert_eq!((again.counters.inserted, again.counters.updated), (1, 0));
    let row = |v: &str, w: Option<&str>| json!({"id": 7, "v": v, "w": w});
    assert_eq!(
        table.visible(),
        sorted(vec![row("a", None), row("b", Some("x"))])
    );
}

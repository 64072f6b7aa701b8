//! Rows of other engines among those of events.

use std::sync::Arc;

use arrow::compute::concat_batches;
use serde_json::{Value, json};
use tidegate_change::hidden;

use super::{Table, keep, named, read, row_places, spec, to_json};
use crate::foreign::{ForeignRows, adopt, bury};

/// Replaces the table's rows by others, as another engine does; those whose key is gone are buried.
fn replace(table: &mut Table, rows: Vec<Value>) {
    let rows = read(&table.layout.table_schema(), &rows);
    let known = row_places(&table.rows, &table.layout);
    let new = row_places(&rows, &table.layout);
    let mut predecessors = vec![None; rows.num_rows()];
    let mut gone = vec![true; table.rows.num_rows()];
    for (key, at) in &new {
        if let Some(stored) = known.get(key) {
            predecessors[*at] = Some(u32::try_from(*stored).unwrap());
            gone[*stored] = false;
        }
    }
    let foreign = ForeignRows {
        rows: &rows,
        stored: &table.rows,
        predecessors: &predecessors,
    };
    let adopted = adopt(&table.layout, foreign).unwrap();
    let buried = bury(&table.layout, &keep(&table.rows, |row| gone[row]), 5).unwrap();
    let schema = table.tombstones.schema();
    let buried = buried.tombstones.with_schema(Arc::clone(&schema)).unwrap();
    table.tombstones = concat_batches(&schema, [&table.tombstones, &buried]).unwrap();
    table.rows = adopted.rows;
    table.folded = table.visible();
}

fn values(table: &Table) -> Vec<(i64, Value)> {
    let rows = table.visible();
    rows.iter()
        .map(|row| (row["id"].as_i64().unwrap(), row["a"].clone()))
        .collect()
}

fn flat(more: Value) -> Table {
    Table::new(spec(&[("a", "long")], more))
}

#[test]
fn every_event_beats_a_row_that_came_from_outside() {
    let mut table = flat(json!({}));
    replace(
        &mut table,
        vec![json!({"id": 1, "a": 9}), json!({"id": 2, "a": 9})],
    );
    table.apply(json!([{"id": 1, "seq": -5, "a": 1}]));
    assert_eq!(values(&table), [(1, json!(1)), (2, json!(9))]);
    table.apply(json!([{"id": 2, "op": "D", "seq": -5}]));
    assert_eq!(values(&table), [(1, json!(1))]);
}

#[test]
fn a_changed_row_keeps_its_sequence_and_wins_the_tie() {
    let mut table = flat(json!({}));
    table.apply(json!([{"id": 1, "seq": 5, "a": 1}, {"id": 2, "seq": 5, "a": 1}]));
    replace(
        &mut table,
        vec![json!({"id": 1, "a": 3}), json!({"id": 2, "a": 1})],
    );
    // The rewritten row is as it was: the greater payload wins its tie.
    table.apply(json!([{"id": 1, "seq": 5, "a": 8}, {"id": 2, "seq": 5, "a": 8}]));
    assert_eq!(values(&table), [(1, json!(3)), (2, json!(8))]);
    table.apply(json!([{"id": 1, "seq": 4, "a": 7}, {"id": 1, "op": "D", "seq": 4}]));
    assert_eq!(values(&table), [(1, json!(3)), (2, json!(8))]);
    // A floor was written: the mark stays with the values.
    table.apply(json!([{"id": 1, "seq": 5, "a": 8}]));
    assert_eq!(values(&table), [(1, json!(3)), (2, json!(8))]);
    table.apply(json!([{"id": 1, "seq": 6, "a": 4}]));
    table.apply(json!([{"id": 1, "seq": 6, "a": 8}]));
    assert_eq!(values(&table), [(1, json!(8)), (2, json!(8))]);
}

#[test]
fn a_row_that_went_leaves_a_tombstone_at_its_sequence() {
    let mut table = flat(json!({}));
    table.apply(json!([{"id": 1, "seq": 5, "a": 1}, {"id": 2, "seq": 5, "a": 1}]));
    replace(&mut table, vec![]);
    table.apply(json!([{"id": 1, "seq": 4, "a": 7}, {"id": 2, "seq": 6, "a": 7}]));
    assert_eq!(values(&table), [(2, json!(7))]);
    // What no event ever named is forgotten.
    replace(
        &mut table,
        vec![json!({"id": 2, "a": 7}), json!({"id": 3, "a": 7})],
    );
    replace(&mut table, vec![json!({"id": 2, "a": 7})]);
    let named: Vec<_> = to_json(&table.tombstones)
        .iter()
        .map(|row| row["id"].clone())
        .collect();
    assert_eq!(named, [json!(1)]);
}

#[test]
fn leaves_that_others_changed_count_at_the_rows_sequence() {
    let mut table = Table::new(spec(
        &[("a", "long"), ("b", "long"), ("c", "long")],
        json!({"ignore_null_updates": true}),
    ));
    table.apply(json!([{"id": 1, "seq": 1, "a": 1, "b": 1, "c": 1}]));
    table.apply(json!([{"id": 1, "seq": 9, "a": 2, "b": null, "c": null}]));
    table.add_column("late", "long");
    // b changes, c keeps its author at 1, nobody ever authored the late column.
    replace(
        &mut table,
        vec![json!({"id": 1, "a": 2, "b": 7, "c": 1, "late": null})],
    );
    table.apply(json!([{"id": 1, "seq": 5, "a": 5, "b": 5, "c": 5, "late": 5}]));
    let row = &table.visible()[0];
    assert_eq!(*row, json!({"id": 1, "a": 2, "b": 7, "c": 5, "late": 5}));
    // A late column that another engine filled is its own from then on.
    let mut other = flat(json!({"ignore_null_updates": true}));
    other.apply(json!([{"id": 1, "seq": 9, "a": 1}]));
    other.add_column("late", "long");
    replace(&mut other, vec![json!({"id": 1, "a": 1, "late": 3})]);
    other.apply(json!([{"id": 1, "seq": 5, "a": 5, "late": 5}]));
    other.apply(json!([{"id": 1, "seq": 10, "a": 6, "late": null}]));
    assert_eq!(other.visible(), [json!({"id": 1, "a": 6, "late": 3})]);
}

#[test]
fn values_from_outside_outlive_partial_events() {
    let mut table = Table::new(spec(
        &[("a", "long"), ("b", "long")],
        json!({"ignore_null_updates": true}),
    ));
    replace(&mut table, vec![json!({"id": 1, "a": 1, "b": 2})]);
    for seq in 1..4 {
        table.apply(json!([{"id": 1, "seq": seq, "a": seq, "b": null}]));
        assert_eq!(table.visible(), [json!({"id": 1, "a": seq, "b": 2})]);
    }
}

#[test]
fn soft_deletes_are_remembered_whatever_others_do() {
    let mut table = flat(json!({"delete_mode": "soft"}));
    table.apply(json!([
        {"id": 1, "seq": 5, "a": 1}, {"id": 1, "op": "D", "seq": 7}, {"id": 1, "op": "D", "seq": 3},
    ]));
    let flagged = table.visible();
    assert_eq!(flagged[0]["deleted_at"], json!(7));
    let mut changed = flagged[0].clone();
    changed["a"] = json!(2);
    replace(&mut table, vec![changed.clone()]);
    table.apply(json!([{"id": 1, "seq": 4, "a": 9}]));
    assert_eq!(table.visible(), [changed.clone()]);
    replace(&mut table, vec![]);
    table.apply(json!([{"id": 1, "seq": 4, "a": 9}]));
    assert_eq!(table.visible()[0]["deleted_at"], json!(7));
    table.apply(json!([{"id": 1, "seq": 8, "a": 9}]));
    assert_eq!(table.visible()[0]["deleted_at"], Value::Null);
    // Flags that no event gave are refused.
    let rows = read(
        &table.layout.table_schema(),
        &[json!({"id": 9, "a": 1, "is_deleted": true})],
    );
    let foreign = ForeignRows {
        rows: &rows,
        stored: &table.rows,
        predecessors: &[None],
    };
    let error = adopt(&table.layout, foreign).unwrap_err();
    assert_eq!(error.code(), tidegate_change::Code::ForeignRewrite);
    assert!(table.rows.column_by_name(hidden::DELETES).is_some());
    assert_eq!(named(&rows, "id").len(), 1);
}

//! One test a rule.

use serde_json::json;

use super::{Table, spec};

fn one_column(more: serde_json::Value) -> Table {
    Table::new(spec(&[("v", "string")], more))
}

fn two_columns(more: serde_json::Value) -> Table {
    Table::new(spec(&[("a", "string"), ("b", "string")], more))
}

#[test]
fn the_greatest_sequence_stands_whatever_came_first_r_d3() {
    let mut table = one_column(json!({}));
    table.apply(json!([{"id": 1, "seq": 5, "v": "new"}, {"id": 1, "seq": 3, "v": "old"}]));
    let late = table.apply(json!([{"id": 1, "seq": 4, "v": "late"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "v": "new"})]);
    assert_eq!(
        (late.written, late.counters.late, late.counters.unchanged),
        (0, 1, 1)
    );
}

#[test]
fn in_a_tie_the_delete_goes_first_and_the_row_lives_r_t1() {
    for batches in [
        vec![json!([{"id": 1, "seq": 5, "v": "x"}, {"id": 1, "seq": 5, "op": "D"}])],
        vec![
            json!([{"id": 1, "seq": 5, "v": "x"}]),
            json!([{"id": 1, "seq": 5, "op": "D"}]),
        ],
        vec![
            json!([{"id": 1, "seq": 5, "op": "D"}]),
            json!([{"id": 1, "seq": 5, "v": "x"}]),
        ],
    ] {
        let mut table = one_column(json!({}));
        for batch in batches {
            table.apply(batch);
        }
        assert_eq!(table.visible(), [json!({"id": 1, "v": "x"})]);
    }
}

#[test]
fn in_row_mode_the_greatest_payload_wins_as_a_whole_r_t2() {
    let mut table = two_columns(json!({"absent_fields": "null"}));
    table.apply(json!([
        {"id": 1, "seq": 5, "a": "b", "b": "a"}, {"id": 1, "seq": 5, "a": "a", "b": "z"},
    ]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "b", "b": "a"})]);
    table.apply(json!([{"id": 1, "seq": 5, "a": "b", "b": null}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "b", "b": "a"})]);
    table.apply(json!([{"id": 1, "seq": 5, "a": "b", "b": "b"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "b", "b": "b"})]);
}

#[test]
fn in_partial_mode_each_leaf_takes_its_greatest_value_r_t3() {
    let mut table = two_columns(json!({}));
    table.apply(json!([
        {"id": 1, "seq": 5, "a": "b", "b": "a"}, {"id": 1, "seq": 5, "a": "a", "b": "z"},
    ]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "b", "b": "z"})]);
    table.apply(json!([{"id": 1, "seq": 5, "a": "c"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "c", "b": "z"})]);
}

#[test]
fn payloads_compare_numbers_by_value_and_nan_on_top_r_t2() {
    let more = json!({"absent_fields": "null"});
    let mut table = Table::new(spec(&[("n", "double"), ("l", "array<long>")], more));
    table.apply(json!([
        {"id": 1, "seq": 1, "n": -0.0, "l": [2]}, {"id": 1, "seq": 1, "n": 0.0, "l": [10]},
        {"id": 2, "seq": 1, "n": 9.5, "l": []}, {"id": 2, "seq": 1, "n": 10.0, "l": null},
    ]));
    let visible = table.visible();
    assert_eq!(visible[0]["l"], json!([10]));
    assert_eq!(visible[1]["n"], json!(10.0));
}

#[test]
fn maps_that_differ_only_in_the_order_of_entries_are_equal_r_u1() {
    let more = json!({"absent_fields": "null"});
    let mut table = Table::new(spec(&[("m", "map<string,long>")], more));
    table.apply(json!([{"id": 1, "seq": 1, "m": {"a": 1, "b": 2}}]));
    let text = r#"{"id": 1, "seq": 1, "m": {"b": 2, "a": 1}}"#;
    let again = table.apply(json!([
        serde_json::from_str::<serde_json::Value>(text).unwrap()
    ]));
    assert_eq!(
        (
            again.counters.duplicates,
            again.counters.ties,
            again.written
        ),
        (1, 0, 0)
    );
}

#[test]
fn an_unauthored_column_never_hides_an_older_author_r_t3b() {
    let mut table = two_columns(json!({"absent_fields": "null"}));
    table.apply(json!([{"id": 1, "seq": 5, "a": "new"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "new", "b": null})]);
    table.apply(json!([{"id": 1, "seq": 3, "a": "old", "b": "filled"}]));
    assert_eq!(
        table.visible(),
        [json!({"id": 1, "a": "new", "b": "filled"})]
    );
}

#[test]
fn a_late_delete_stays_as_the_floor_of_the_row_r_d4() {
    let mut table = two_columns(json!({}));
    table.apply(json!([{"id": 1, "seq": 5, "a": "new"}]));
    let floor = table.apply(json!([{"id": 1, "seq": 4, "op": "D"}]));
    assert_eq!(
        (floor.written, floor.feed.len(), floor.counters.unchanged),
        (1, 0, 1)
    );
    table.apply(json!([{"id": 1, "seq": 3, "a": "old", "b": "cleared"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "new", "b": null})]);
    table.apply(json!([{"id": 1, "seq": 4, "b": "lives"}]));
    assert_eq!(
        table.visible(),
        [json!({"id": 1, "a": "new", "b": "lives"})]
    );
}

#[test]
fn a_delete_of_a_missing_key_is_remembered_r_d5() {
    let mut table = one_column(json!({}));
    table.apply(json!([{"id": 1, "seq": 5, "op": "D"}]));
    assert_eq!(table.tombstones.num_rows(), 1);
    table.apply(json!([{"id": 1, "seq": 4, "v": "x"}]));
    assert!(table.visible().is_empty());
}

#[test]
fn an_upsert_revives_and_older_events_stay_dropped_r_d6() {
    let mut table = one_column(json!({}));
    table.apply(json!([{"id": 1, "seq": 5, "op": "D"}]));
    table.apply(json!([{"id": 1, "seq": 3, "op": "D"}, {"id": 1, "seq": 9, "v": "x"}]));
    assert_eq!(table.tombstones.num_rows(), 0);
    table.apply(json!([{"id": 1, "seq": 7, "v": "y"}, {"id": 1, "seq": 8, "op": "D"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "v": "x"})]);
}

#[test]
fn a_no_op_raises_the_sequence_without_a_change_row_r_d7() {
    let mut table = one_column(json!({}));
    table.apply(json!([{"id": 1, "seq": 1, "v": "x"}]));
    let same = table.apply(json!([{"id": 1, "seq": 9, "v": "x"}]));
    assert_eq!(
        (same.written, same.feed.len(), same.counters.unchanged),
        (1, 0, 1)
    );
    table.apply(json!([{"id": 1, "seq": 5, "v": "y"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "v": "x"})]);
}

#[test]
fn a_replayed_batch_writes_nothing_r_u2() {
    let mut table = one_column(json!({}));
    let batch = json!([
        {"id": 1, "seq": 1, "v": "x"}, {"id": 2, "seq": 5, "op": "D"}, {"id": 2, "seq": 3, "v": "y"},
    ]);
    table.apply(batch.clone());
    let again = table.apply(batch);
    assert_eq!((again.written, again.feed.len()), (0, 0));
    assert_eq!((again.counters.duplicates, again.counters.late), (2, 1));
}

#[test]
fn nulls_of_ignored_columns_are_not_authored_leaf_by_leaf_r_n2() {
    let columns = [
        ("s", "struct<x:string,y:struct<z:string>>"),
        ("t", "struct<x:string>"),
    ];
    let more = json!({"ignore_null_updates": ["s"], "absent_fields": "null"});
    let mut table = Table::new(spec(&columns, more));
    table.apply(json!([
        {"id": 1, "seq": 1, "s": {"x": "x1", "y": {"z": "z1"}}, "t": {"x": null}},
        {"id": 2, "seq": 1, "s": {"x": null, "y": {"z": null}}, "t": null},
    ]));
    table.apply(json!([{"id": 1, "seq": 2, "s": {"x": "x2", "y": null}, "t": {"x": "t2"}}]));
    table.apply(json!([{"id": 1, "seq": 3, "s": null, "t": null}]));
    assert_eq!(
        table.visible(),
        [
            json!({"id": 1, "s": {"x": "x2", "y": {"z": "z1"}}, "t": null}),
            json!({"id": 2, "s": null, "t": null}),
        ]
    );
}

#[test]
fn leaf_paths_escape_dots_so_that_names_cannot_meet_r_n2() {
    let columns = [("s", "struct<a:string,b:string>"), ("s.a", "string")];
    let mut table = Table::new(spec(&columns, json!({"ignore_null_updates": true})));
    table.apply(json!([{"id": 1, "seq": 1, "s": {"a": "1", "b": "1"}, "s.a": "1"}]));
    table.apply(json!([{"id": 1, "seq": 2, "s": {"a": "2", "b": null}, "s.a": null}]));
    table.apply(json!([{"id": 1, "seq": 1, "s.a": "late"}]));
    let expected = json!({"id": 1, "s": {"a": "2", "b": "1"}, "s.a": "late"});
    assert_eq!(table.visible(), [expected]);
    let leaves = table.state()[0]["__tidegate_leaves"].clone();
    assert_eq!(leaves, json!({"s.b": 1, "s\\.a": 1}));
}

#[test]
fn nothing_older_than_a_delete_is_inherited_r_n4() {
    let mut table = two_columns(json!({"ignore_null_updates": true}));
    table.apply(json!([{"id": 1, "seq": 1, "a": "a", "b": "b"}]));
    table.apply(json!([{"id": 1, "seq": 2, "op": "D"}, {"id": 1, "seq": 3, "a": "c", "b": null}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "c", "b": null})]);
}

#[test]
fn a_column_that_came_later_is_not_authored_by_older_rows_r_e1() {
    let mut table = one_column(json!({"absent_fields": "null"}));
    table.apply(json!([{"id": 1, "seq": 5, "v": "x"}]));
    table.add_column("w", "string");
    table.apply(json!([{"id": 1, "seq": 3, "v": "old", "w": "filled"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "v": "x", "w": "filled"})]);
    let state = table.state();
    assert_eq!(state[0]["__tidegate_leaves"], json!({"w": 3}));
    table.apply(json!([{"id": 1, "seq": 4, "op": "D"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "v": "x", "w": null})]);
}

#[test]
fn scd_0_keeps_the_first_upsert_and_is_corrected_by_an_older_one_r_0() {
    let mut table = two_columns(json!({"stored_as_scd_type": 0, "absent_fields": "null"}));
    table.apply(json!([{"id": 1, "seq": 5, "a": "5", "b": "5"}, {"id": 1, "seq": 9, "op": "D"}]));
    table.apply(json!([{"id": 1, "seq": 7, "a": "7", "b": "7"}, {"id": 1, "seq": 1, "op": "D"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "5", "b": "5"})]);
    let corrected = table.apply(json!([{"id": 1, "seq": 3, "a": "3", "b": null}]));
    assert_eq!((corrected.counters.updated, corrected.feed.len()), (1, 2));
    table.apply(json!([{"id": 1, "seq": 3, "a": "3", "b": "3"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "3", "b": "3"})]);
    assert_eq!(table.tombstones.num_rows(), 0);
}

#[test]
fn insert_only_takes_the_lowest_payload_and_never_touches_a_row_r_i1() {
    let mut table = one_column(json!({"mode": "insert_only", "sequence_by": null}));
    table.apply(json!([{"id": 1, "v": "b"}, {"id": 1, "v": "a"}, {"id": 1, "v": "c", "op": "D"}]));
    let again = table.apply(json!([{"id": 1, "v": "0"}, {"id": 1, "v": "a"}, {"id": 2, "v": "x"}]));
    assert_eq!(
        table.visible(),
        [json!({"id": 1, "v": "a"}), json!({"id": 2, "v": "x"})]
    );
    assert_eq!(
        (again.counters.duplicates, again.counters.unchanged),
        (1, 1)
    );
    assert_eq!(again.counters.inserted, 1);
}

#[test]
fn a_soft_delete_flags_and_every_delete_is_a_floor_r_l0_r_l1() {
    let mut table = two_columns(json!({"delete_mode": "soft"}));
    table.apply(json!([{"id": 1, "seq": 1, "a": "1", "b": "1"}, {"id": 1, "seq": 5, "op": "D"}]));
    let row = |a, b, at: Option<i64>| json!({"id": 1, "a": a, "b": b, "is_deleted": at.is_some(), "deleted_at": at});
    assert_eq!(table.visible(), [row("1", json!("1"), Some(5))]);
    table.apply(json!([{"id": 1, "seq": 3, "op": "D"}]));
    table.apply(json!([{"id": 1, "seq": 4, "a": "4"}]));
    assert_eq!(table.visible(), [row("4", json!(null), Some(5))]);
    table.apply(json!([{"id": 1, "seq": 6, "b": "6"}]));
    assert_eq!(table.visible()[0]["is_deleted"], json!(false));
    assert_eq!(table.visible()[0]["a"], json!(null));
}

#[test]
fn a_soft_delete_of_a_missing_key_flags_its_older_upsert_r_l1() {
    let mut table = one_column(json!({"delete_mode": "soft"}));
    table.apply(json!([{"id": 1, "seq": 5, "op": "D"}, {"id": 1, "seq": 9, "op": "D"}]));
    assert!(table.visible().is_empty());
    table.apply(json!([{"id": 1, "seq": 6, "v": "x"}]));
    let expected = json!({"id": 1, "v": "x", "is_deleted": true, "deleted_at": 9});
    assert_eq!(table.visible(), [expected]);
    assert_eq!(table.state()[0]["__tidegate_floor"], json!(5));
    assert_eq!(table.tombstones.num_rows(), 0);
}

#[test]
fn a_truncate_removes_what_is_older_for_keys_seen_or_not_r_x2() {
    let mut table = one_column(json!({}));
    table.apply(json!([{"id": 1, "seq": 1, "v": "a"}, {"id": 2, "seq": 5, "v": "b"}]));
    let truncated = table.apply(json!([{"op": "T", "seq": 5}, {"id": 3, "seq": 4, "v": "c"}]));
    assert_eq!(table.visible(), [json!({"id": 2, "v": "b"})]);
    assert_eq!((truncated.counters.deleted, truncated.feed.len()), (1, 1));
    let late = table.apply(json!([{"id": 9, "seq": 4, "v": "late"}]));
    assert_eq!(late.counters.late, 1);
    assert_eq!(table.visible().len(), 1);
}

#[test]
fn a_truncate_clears_older_leaves_of_rows_that_no_event_names_r_n4() {
    let mut table = two_columns(json!({}));
    table.apply(json!([{"id": 1, "seq": 1, "a": "a", "b": "b"}, {"id": 1, "seq": 7, "a": "c"}]));
    let truncated = table.apply(json!([{"op": "T", "seq": 5}]));
    assert_eq!(table.visible(), [json!({"id": 1, "a": "c", "b": null})]);
    assert_eq!((truncated.counters.updated, truncated.feed.len()), (1, 2));
}

#[test]
fn a_truncate_flags_rows_of_a_soft_delete_table_r_x3() {
    let mut table = one_column(json!({"delete_mode": "soft"}));
    table.apply(json!([{"id": 1, "seq": 1, "v": "a"}, {"id": 2, "seq": 9, "v": "b"}]));
    table.apply(json!([{"op": "T", "seq": 5}]));
    table.apply(json!([{"op": "T", "seq": 4}]));
    let visible = table.visible();
    assert_eq!(
        visible[0],
        json!({"id": 1, "v": "a", "is_deleted": true, "deleted_at": 5})
    );
    assert_eq!(visible[1]["is_deleted"], json!(false));
}

#[test]
fn upserts_of_unknown_keys_below_the_horizon_are_rejected_r_g4() {
    let mut table = one_column(json!({"tombstone_retention": "100s"}));
    table.apply_at(json!([{"id": 1, "seq": 10, "op": "D"}]), 0);
    let events = json!([
        {"id": 1, "seq": 10, "v": "x"}, {"id": 1, "seq": 11, "v": "y"}, {"id": 1, "seq": 10, "v": "x"},
        {"id": 2, "seq": 3, "v": "z"}, {"id": 2, "seq": 3, "op": "D"},
    ]);
    let applied = table.apply_at(events, 100_001);
    assert_eq!(applied.rejects, [0, 2, 3]);
    assert_eq!(
        (applied.counters.quarantined, applied.counters.duplicates),
        (3, 0)
    );
    assert_eq!((applied.counters.ties, applied.counters.late), (0, 0));
    assert_eq!(table.visible(), [json!({"id": 1, "v": "y"})]);
    assert_eq!(table.tombstones.num_rows(), 1);
}

#[test]
fn leaves_of_rejected_events_do_not_fill_newer_rows_r_g4() {
    let mut table = two_columns(json!({"tombstone_retention": "100s"}));
    table.apply_at(json!([{"id": 9, "seq": 10, "op": "D"}]), 0);
    table.apply_at(
        json!([{"id": 1, "seq": 5, "b": "b"}, {"id": 1, "seq": 12, "a": "a"}]),
        200_000,
    );
    assert_eq!(table.visible(), [json!({"id": 1, "a": "a", "b": null})]);
}

#[test]
fn under_the_policy_apply_late_events_come_back_r_g5() {
    let more = json!({"tombstone_retention": "100s", "late_after_retention": "apply"});
    let mut table = one_column(more);
    table.apply_at(json!([{"id": 1, "seq": 10, "op": "D"}]), 0);
    let applied = table.apply_at(json!([{"id": 1, "seq": 5, "v": "ghost"}]), 200_000);
    assert_eq!((applied.rejects.len(), applied.counters.inserted), (0, 1));
}

#[test]
fn a_tombstone_keeps_the_first_arrival_of_its_deciding_delete_r_g2() {
    let mut table = one_column(json!({"tombstone_retention": "100s"}));
    table.apply_at(json!([{"id": 1, "seq": 10, "op": "D"}]), 0);
    table.apply_at(
        json!([{"id": 1, "seq": 10, "op": "D"}, {"id": 1, "seq": 7, "op": "D"}]),
        90_000,
    );
    table.apply_at(json!([]), 100_000);
    assert_eq!(table.tombstones.num_rows(), 1, "the boundary is strict");
    table.apply_at(json!([]), 100_001);
    assert_eq!(table.tombstones.num_rows(), 0);
}

#[test]
fn many_events_of_a_key_give_at_most_one_pair_of_images_r_c1_r_c2() {
    let mut table = one_column(json!({}));
    let gone = table.apply(json!([{"id": 1, "seq": 1, "v": "a"}, {"id": 1, "seq": 2, "op": "D"}]));
    assert!(gone.feed.is_empty());
    table.apply(json!([{"id": 2, "seq": 1, "v": "a"}]));
    let pair = table.apply(json!([{"id": 2, "seq": 2, "v": "b"}, {"id": 2, "seq": 3, "v": "c"}]));
    let types: Vec<_> = pair
        .feed
        .iter()
        .map(|row| row["_change_type"].clone())
        .collect();
    assert_eq!(types, ["update_preimage", "update_postimage"]);
    let back = table.apply(json!([{"id": 2, "seq": 4, "v": "b"}, {"id": 2, "seq": 5, "v": "c"}]));
    assert!(back.feed.is_empty());
}

#[test]
fn struct_sequences_compare_null_members_first_r_s4() {
    let mut spec = spec(&[("n", "long"), ("v", "string")], json!({}));
    spec["sequence_by"] = json!(["seq", "n"]);
    let mut table = Table::new(spec);
    table.apply(json!([{"id": 1, "seq": 1, "n": null, "v": "null"}]));
    table.apply(json!([{"id": 1, "seq": 1, "n": -5, "v": "value"}]));
    table.apply(json!([{"id": 1, "seq": null, "n": 9, "v": "lower"}]));
    assert_eq!(table.visible(), [json!({"id": 1, "n": -5, "v": "value"})]);
}

#[test]
fn newer_full_events_leave_the_stored_row_unread() {
    let mut table = two_columns(json!({"change_data_feed": "inferred"}));
    let full = |seq| json!([{"id": 1, "seq": seq, "a": "x", "b": "y"}]);
    table.apply(full(1));
    let unread = table.apply(full(2));
    assert_eq!((table.unread, unread.counters.updated), (1, 1));
    table.apply(json!([{"id": 1, "seq": 3, "a": "x"}]));
    assert_eq!(table.unread, 1, "a partial event needs the other leaves");
    table.apply(full(4));
    assert_eq!(table.unread, 1, "a file with sparse hidden state is read");
    table.apply(json!([{"id": 1, "seq": 5, "op": "D"}]));
    assert_eq!(table.unread, 2, "a newer delete needs nothing");
    assert!(table.visible().is_empty());
}

#[test]
fn arrays_and_maps_are_whole_values_beside_others_r_n2() {
    let columns = [
        ("l", "array<struct<x:string>>"),
        ("m", "map<string,array<long>>"),
        ("d", "decimal(10,2)"),
        ("t", "timestamp_ntz"),
        ("s", "struct<l:array<string>,n:struct<z:long>>"),
    ];
    let mut table = Table::new(spec(&columns, json!({"ignore_null_updates": true})));
    let (d, t) = ("12.50", "2020-01-02T03:04:05");
    table.apply(json!([
        {"id": 1, "seq": 1, "l": [{"x": "a"}, null], "m": {"k": [1, null]}, "d": d, "t": t, "s": null},
        {"id": 2, "seq": 1, "l": null, "m": null, "d": d, "t": t, "s": {"l": ["q"], "n": null}},
    ]));
    table.apply(json!([
        {"id": 1, "seq": 2, "l": [], "s": {"l": ["p"], "n": null}},
        {"id": 2, "seq": 2, "m": {"b": [], "a": [3]}, "s": {"l": null, "n": {"z": 7}}},
    ]));
    let before = table.visible();
    assert_eq!(
        (&before[0]["l"], &before[0]["m"]),
        (&json!([]), &json!({"k": [1, null]}))
    );
    assert_eq!(before[0]["s"], json!({"l": ["p"], "n": null}));
    assert_eq!(
        (&before[1]["l"], &before[1]["t"]),
        (&json!(null), &json!(t))
    );
    assert_eq!(before[1]["s"], json!({"l": ["q"], "n": {"z": 7}}));
    let same = table.apply(json!([{"id": 2, "seq": 3, "m": {"a": [3], "b": []}, "d": d}]));
    assert_eq!(
        (same.counters.unchanged, same.feed.len(), same.written),
        (1, 0, 1)
    );
    table.apply(json!([{"id": 1, "seq": 3, "op": "D"}, {"op": "T", "seq": 9}]));
    assert!(table.visible().is_empty());
}

#[test]
fn groups_come_in_the_order_of_bucket_and_key() {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Int64Type;
    use tidegate_change::KeyBucket;
    let table = one_column(json!({}));
    let rules = table.rules(vec![], 0);
    let objects: Vec<_> = [5, -3, 9, 5, 0]
        .iter()
        .map(|id| json!({"id": id, "seq": 1}))
        .collect();
    let mut events = table.events(&objects);
    events.buckets = [1, 1, 0, 1, 0].map(KeyBucket).to_vec();
    let grouped = crate::group(&rules, events).unwrap();
    let keys = grouped.key_columns()[0].as_primitive::<Int64Type>();
    assert_eq!(keys.values().as_ref(), [0, 9, -3, 5]);
    assert_eq!(grouped.buckets(), [0, 0, 1, 1].map(KeyBucket));
    assert_eq!(grouped.event_rows(3).collect::<Vec<_>>(), [0, 3]);
    assert_eq!((grouped.len(), keys.null_count()), (4, 0));
}

#[test]
fn string_keys_with_a_shared_prefix_are_told_apart_r_k4() {
    let mut spec = spec(&[("v", "string")], json!({}));
    spec["schema"][0]["type"] = json!("string");
    let mut table = Table::new(spec);
    let long = "a-prefix-that-is-longer-than-sixteen-bytes-";
    let ids = ["", " ", "x", "x ", "X", "y1", "y2"].map(|end| format!("{long}{end}"));
    let events: Vec<_> = ids
        .iter()
        .map(|id| json!({"id": id, "seq": 1, "v": id}))
        .collect();
    table.apply(json!(events));
    let again: Vec<_> = ids
        .iter()
        .rev()
        .map(|id| json!({"id": id, "seq": 1, "v": id}))
        .collect();
    assert_eq!(table.apply(json!(again)).counters.duplicates, 7);
    assert_eq!(table.visible().len(), 7);
}

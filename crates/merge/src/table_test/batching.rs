//! The result does not depend on order, batching or duplication.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Table, sorted, spec, to_json};

/// What an event says of a column.
type Cell = Option<Option<&'static str>>;

fn cell(with_absent: bool) -> BoxedStrategy<Cell> {
    let known =
        prop_oneof![2 => Just(Some(Some("p"))), 2 => Just(Some(Some("q"))), 1 => Just(Some(None))];
    match with_absent {
        true => prop_oneof![3 => known, 2 => Just(None)].boxed(),
        false => known.boxed(),
    }
}

fn event(with_absent: bool) -> impl Strategy<Value = Value> {
    let kind = prop_oneof![6 => Just("U"), 2 => Just("D"), 1 => Just("T")];
    let cells = proptest::collection::vec(cell(with_absent), 4);
    (0..3i64, 0..8i64, kind, cells).prop_map(|(id, seq, op, cells)| {
        let mut event = json!({"id": id, "seq": seq, "op": op});
        for (name, cell) in ["a", "b"].iter().zip(&cells) {
            if let Some(value) = cell {
                event[*name] = json!(value);
            }
        }
        if let (Some(x), Some(y)) = (cells[2], cells[3]) {
            event["s"] = json!({"x": x, "y": y});
        }
        event
    })
}

/// A history and another telling of it: shuffled, cut, some of it twice.
fn history(with_absent: bool) -> impl Strategy<Value = (Vec<Value>, Vec<Vec<Value>>)> {
    proptest::collection::vec(event(with_absent), 1..14).prop_flat_map(|events| {
        let twice = proptest::sample::subsequence(events.clone(), 0..=events.len());
        let told = (twice, Just(events.clone())).prop_flat_map(|(twice, mut events)| {
            events.extend(twice);
            let len = events.len();
            (
                Just(events).prop_shuffle(),
                proptest::collection::vec(any::<bool>(), len),
            )
        });
        let batches = told.prop_map(|(events, cuts)| {
            let mut batches = vec![vec![]];
            for (event, cut) in events.into_iter().zip(cuts) {
                if cut {
                    batches.push(vec![]);
                }
                batches.last_mut().unwrap().push(event);
            }
            batches
        });
        (Just(events), batches)
    })
}

fn columns() -> [(&'static str, &'static str); 3] {
    [
        ("a", "string"),
        ("b", "string"),
        ("s", "struct<x:string,y:string>"),
    ]
}

fn check(more: &Value, events: Vec<Value>, batches: Vec<Vec<Value>>) -> Result<(), TestCaseError> {
    let mut more = more.clone();
    let mut whole = Table::new(spec(&columns(), more.clone()));
    whole.apply(Value::Array(events));
    let mut cut = Table::new(spec(&columns(), more.clone()));
    more["change_data_feed"] = json!(false);
    let mut unread = Table::new(spec(&columns(), more));
    for batch in batches {
        cut.apply(Value::Array(batch.clone()));
        unread.apply(Value::Array(batch));
    }
    prop_assert_eq!(whole.visible(), cut.visible());
    prop_assert_eq!(whole.state(), cut.state());
    prop_assert_eq!(cut.visible(), unread.visible());
    prop_assert_eq!(
        cut.state(),
        unread.state(),
        "state where rows are left unread"
    );
    prop_assert_eq!(sorted(cut.folded.clone()), cut.visible(), "the folded feed");
    let rules = cut.rules(vec![], 0);
    let again = crate::truncate(&rules, &cut.rows).unwrap();
    prop_assert!(
        to_json(&again.rows).is_empty(),
        "rows at rest hold all truncates"
    );
    Ok(())
}

macro_rules! histories {
    ($($name:ident: $absent:literal, $more:tt;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(128))]
            $(#[test]
            fn $name((events, batches) in history($absent)) {
                check(&json!($more), events, batches)?;
            })*
        }
    };
}

histories! {
    whole_rows_do_not_depend_on_batching_r_t2: false, {"absent_fields": "null"};
    partial_rows_do_not_depend_on_batching_r_t3: true, {};
    nested_leaves_do_not_depend_on_batching_r_n3: true, {"ignore_null_updates": true};
    some_nested_leaves_do_not_depend_on_batching_r_n7: true, {"ignore_null_updates": ["s", "b"]};
    soft_deletes_do_not_depend_on_batching_r_l0: true, {"delete_mode": "soft"};
    soft_deletes_of_whole_rows_do_not_depend_on_batching_r_l1: false,
        {"delete_mode": "soft", "absent_fields": "null"};
    soft_deletes_of_nested_leaves_do_not_depend_on_batching_r_n4: true,
        {"delete_mode": "soft", "ignore_null_updates": true};
    first_rows_do_not_depend_on_batching_r_0: true, {"stored_as_scd_type": 0};
    first_whole_rows_do_not_depend_on_batching_r_0: false,
        {"stored_as_scd_type": 0, "absent_fields": "null"};
    struct_sequences_do_not_depend_on_batching_r_s4: true, {"sequence_by": ["seq", "id"]};
}

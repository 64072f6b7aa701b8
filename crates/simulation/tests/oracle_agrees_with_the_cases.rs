//! The model itself is validated first: rows, feed, errors and rejects of every scenario case with
//! SCD 0 or 1 must come out, and `order_free` cases also shuffled, split anew and duplicated.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

use std::path::Path;

use tidegate_simulation::oracle::{Change, ChangeType, Outcome, Row};
use tidegate_simulation::scenario::{Batch, Expect, JsonRow};
use tidegate_simulation::{Dice, Oracle, Scenario};

fn cases() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    let read = |path: &std::path::PathBuf| -> Scenario {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap())
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    // The model reads flat events.
    let covered = |case: &Scenario| {
        case.spec.scd < 2 && case.spec.from_snapshot.is_none() && case.spec.source.is_none()
    };
    files.iter().map(read).filter(covered).collect()
}

fn bag(oracle: &Oracle, rows: &[JsonRow]) -> Vec<Row> {
    let mut rows: Vec<Row> = rows
        .iter()
        .map(|row| oracle.row_from_json(row).unwrap())
        .collect();
    rows.sort();
    rows
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort();
    rows
}

fn changes(oracle: &Oracle, rows: &[JsonRow]) -> Vec<Change> {
    let kinds = [
        ChangeType::Insert,
        ChangeType::Preimage,
        ChangeType::Postimage,
        ChangeType::Delete,
    ];
    let mut changes: Vec<Change> = rows
        .iter()
        .map(|row| {
            let name = row["_change_type"].as_str().unwrap();
            let kind = kinds
                .into_iter()
                .find(|kind| kind.as_str() == name)
                .unwrap();
            (kind, oracle.row_from_json(row).unwrap())
        })
        .collect();
    changes.sort();
    changes
}

fn check(case: &Scenario, expect: &Expect) {
    let id = &case.id;
    let error = expect.error.as_ref();
    let mut oracle = match Oracle::new(case) {
        Ok(oracle) => oracle,
        Err(code) => {
            let error = error.unwrap_or_else(|| panic!("{id}: refused with {code}"));
            assert_eq!(
                (error.batch, error.code.as_str()),
                (None, code.as_str()),
                "{id}"
            );
            return;
        }
    };
    let (mut rejects, mut refused) = (Vec::new(), false);
    for (i, batch) in case.batches.iter().enumerate() {
        let outcome: Outcome = match oracle.apply(batch) {
            Ok(outcome) => outcome,
            Err(refusal) => {
                let error = error.unwrap_or_else(|| panic!("{id}: batch {i} refused"));
                assert_eq!(error.batch, Some(i), "{id}");
                assert!(
                    refusal.0.iter().any(|code| code.as_str() == error.code),
                    "{id}"
                );
                refused = true;
                break;
            }
        };
        if let Some(cdf) = &expect.cdf {
            assert_eq!(
                outcome.feed,
                changes(&oracle, &cdf[i]),
                "{id}: feed of batch {i}"
            );
        }
        rejects.extend(outcome.rejects);
    }
    assert_eq!(
        refused,
        error.is_some(),
        "{id}: the model takes what is to be refused"
    );
    assert_eq!(
        sorted(oracle.rows()),
        bag(&oracle, &expect.rows),
        "{id}: rows"
    );
    if let Some(expected) = &expect.rejects {
        assert_eq!(&rejects, expected, "{id}: rejects");
    }
}

#[test]
fn every_case_comes_out() {
    let cases = cases();
    assert!(cases.len() >= 72, "only {} cases found", cases.len());
    for case in &cases {
        check(case, case.expect.as_ref().unwrap());
    }
}

#[test]
fn order_batching_and_duplication_of_free_cases_do_not_matter() {
    for case in cases().iter().filter(|case| case.order_free) {
        let expected = case.expect.as_ref().unwrap();
        for seed in 0..20 {
            let dice = Dice::new(seed);
            let mut events: Vec<JsonRow> = case
                .batches
                .iter()
                .flat_map(|batch| batch.events.clone())
                .collect();
            events.extend(dice.some_of(&events.clone(), 30));
            dice.shuffle(&mut events);
            let mut shuffled = case.clone();
            shuffled.spec.absent_fields = case
                .spec
                .keeps_absent_fields(&case.batches)
                .then(|| "keep".to_owned());
            shuffled.batches.clear();
            while !events.is_empty() {
                let rest = events.split_off(dice.between(1, events.len()));
                shuffled.batches.push(Batch {
                    events,
                    files: 1,
                    ..Batch::default()
                });
                events = rest;
            }
            let mut oracle = Oracle::new(&shuffled).unwrap();
            for batch in &shuffled.batches {
                oracle.apply(batch).unwrap();
            }
            let id = &case.id;
            assert_eq!(
                sorted(oracle.rows()),
                bag(&oracle, &expected.rows),
                "{id} seed {seed}"
            );
        }
    }
}

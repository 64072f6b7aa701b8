//! Random histories must reach the rules: each seed names one history, most are accepted by the spec's
//! own checks, and together they show every kind of outcome.

use tidegate_simulation::histories::{random_history, shrink};
use tidegate_simulation::oracle::ChangeType;
use tidegate_simulation::{Oracle, Scenario};

#[test]
fn a_seed_names_one_history() {
    let text = |seed| serde_json::to_string(&random_history(seed)).unwrap();
    for seed in 0..50 {
        assert_eq!(text(seed), text(seed));
    }
}

#[test]
fn every_spec_is_accepted_by_the_product_and_the_model() {
    for seed in 0..2_000 {
        let history = random_history(seed);
        if let Err(error) = history.table_spec("t") {
            panic!(
                "seed {seed}: {error} ({:?})\n{:#}",
                error.hint(),
                history.table_spec_json("t")
            );
        }
        Oracle::new(&history).unwrap();
    }
}

#[test]
fn histories_reach_every_kind_of_outcome() {
    let mut changes = [0usize; 4];
    let (mut refused, mut rejects, mut silent, mut late) = (0, 0, 0, 0);
    for seed in 0..2_000 {
        let history = random_history(seed);
        let mut oracle = Oracle::new(&history).unwrap();
        for batch in &history.batches {
            match oracle.apply(batch) {
                Err(_) => refused += 1,
                Ok(outcome) => {
                    assert!(
                        oracle.unsettled().is_empty(),
                        "seed {seed}: {:?}",
                        oracle.unsettled()
                    );
                    outcome
                        .feed
                        .iter()
                        .for_each(|(kind, _)| changes[*kind as usize] += 1);
                    rejects += outcome.rejects.len();
                    late += outcome
                        .rejects
                        .iter()
                        .filter(|r| r.starts_with("LATE"))
                        .count();
                    silent += usize::from(outcome.feed.is_empty() && outcome.events > 0);
                }
            }
        }
    }
    let kinds = [
        ChangeType::Insert,
        ChangeType::Preimage,
        ChangeType::Postimage,
        ChangeType::Delete,
    ];
    for kind in kinds {
        assert!(changes[kind as usize] > 300, "{kind:?}: {changes:?}");
    }
    assert!(
        refused > 100 && rejects > 500 && silent > 300 && late > 20,
        "refused {refused}, rejects {rejects}, silent {silent}, late {late}"
    );
}

#[test]
fn append_histories_deliver_records_again_and_refuse_deletes() {
    let (mut appended, mut again, mut refused, mut rejects) = (0, 0, 0, 0);
    for seed in 0..2_000 {
        let history = random_history(seed);
        if !history.spec.append {
            continue;
        }
        let mut oracle = Oracle::new(&history).unwrap();
        for batch in &history.batches {
            match oracle.apply(batch) {
                Err(_) => refused += 1,
                Ok(outcome) => {
                    let valid = outcome.events - outcome.rejects.len() as u64;
                    appended += outcome.inserted;
                    again += valid - outcome.inserted;
                    rejects += outcome.rejects.len();
                    assert_eq!((outcome.updated, outcome.deleted), (0, 0), "seed {seed}");
                }
            }
        }
    }
    assert!(
        appended > 2_000 && again > 500 && refused > 10 && rejects > 50,
        "appended {appended}, again {again}, refused {refused}, rejects {rejects}"
    );
}

#[test]
fn shrinking_keeps_what_fails_and_little_else() {
    let has_delete = |scenario: &Scenario| {
        scenario
            .batches
            .iter()
            .flat_map(|batch| &batch.events)
            .any(|event| event.get("op").is_some_and(|op| op == "D"))
    };
    let seed = (0..)
        .find(|seed| has_delete(&random_history(*seed)))
        .unwrap();
    let small = shrink(&random_history(seed), 10_000, has_delete);
    let events: usize = small.batches.iter().map(|batch| batch.events.len()).sum();
    assert_eq!((small.batches.len(), events), (1, 1));
}

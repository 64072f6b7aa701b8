//! The store that lies does what its rules say, and a coordinator over it settles every answer by the slot.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tidegate_change::clock::FixedClock;
use tidegate_change::{BatchResult, Code, Result};
use tidegate_cluster::metadata::NodeId;
use tidegate_cluster::{Coordinator, CoordinatorOptions, CoordinatorParts};
use tidegate_delta::store::{CheckedStore, probe};
use tidegate_simulation::Dice;
use tidegate_simulation::commits::ledger::{self, LedgerWorkers, OneStore, Raise, TABLE};
use tidegate_simulation::commits::log::{LogFaults, SimulatedLog};
use tidegate_simulation::toxic::{Operation, Points, Rule, ToxicStore, Toxin};

struct Lake {
    store: ToxicStore,
    log: SimulatedLog,
    coordinator: Coordinator,
}

async fn lake() -> Lake {
    let store = ToxicStore::new(Arc::new(InMemory::new()), 1);
    let log = SimulatedLog::new(1, 1, Arc::new(Points::default())).unwrap();
    let parts = CoordinatorParts {
        consensus: Arc::new(log.clone()),
        workers: Arc::new(LedgerWorkers),
        stores: Arc::new(OneStore::new(Arc::new(store.clone()))),
        clock: Arc::new(FixedClock { now_ms: 1_000 }),
        random: Arc::new(Dice::new(1)),
        node: NodeId(1),
    };
    let coordinator = Coordinator::start(parts, CoordinatorOptions::default());
    let coordinator = coordinator.await.unwrap();
    coordinator
        .create(ledger::spec(0).unwrap(), TABLE)
        .await
        .unwrap();
    Lake {
        store,
        log,
        coordinator,
    }
}

impl Lake {
    async fn submit(&self, place: i64) -> Result<BatchResult> {
        let raise = Raise::new(format!("b{place}"), 1);
        let request = raise.request("source", Some(place)).unwrap();
        self.coordinator.submit(&request).await
    }

    fn poison_slots(&self, toxin: Toxin, doses: u64) {
        let rule = Rule::new(toxin).at(&[Operation::Create]);
        self.store
            .poison(vec![rule.keys_with("_delta_log").doses(doses)]);
    }
}

/// Faults 39, 40, 41 and 42.
#[tokio::test]
async fn ambiguous_answers_are_settled_by_the_slot() {
    for toxin in [
        Toxin::AnswerLost,
        Toxin::OwnConflict,
        Toxin::FalseConflict,
        Toxin::Late,
        Toxin::Fails,
    ] {
        let lake = lake().await;
        lake.poison_slots(toxin, 2);
        let mut versions = Vec::new();
        for place in 0..3 {
            versions.push(lake.submit(place).await.unwrap().version.0);
        }
        assert_eq!(versions, [1, 2, 3], "{toxin:?}");
        assert_eq!(lake.store.hits()[&toxin], 2);
    }
}

/// A table takes eight open attempts: those whose opening nobody heard of must not fill it.
#[tokio::test]
async fn lost_answers_of_the_log_do_not_fill_a_table() {
    let lake = lake().await;
    let lossy = LogFaults {
        answer_lost: 100,
        ..LogFaults::default()
    };
    for _ in 0..10 {
        lake.log.set_faults(lossy);
        let error = lake.submit(0).await.unwrap_err();
        assert_eq!(error.code(), Code::OutcomeUnknown);
        lake.log.set_faults(LogFaults::default());
        let opened = lake.log.state();
        assert!(opened.table_named(TABLE).unwrap().1.attempts.len() <= 2);
    }
    assert_eq!(lake.submit(0).await.unwrap().version.0, 1);
}

/// Fault 44.
#[tokio::test]
async fn a_store_that_is_down_leaves_the_batch_prepared() {
    let lake = lake().await;
    lake.poison_slots(Toxin::Fails, 6);
    lake.submit(0).await.unwrap_err();
    let state = lake.log.state();
    let (_, table) = state.table_named(TABLE).unwrap();
    assert!(
        table.pending.is_some(),
        "a prepared batch is never given up for an error"
    );
    lake.store.heal();
    assert_eq!(lake.submit(0).await.unwrap().version.0, 1);
    assert_eq!(lake.submit(1).await.unwrap().version.0, 2);
}

/// Fault 46.
#[tokio::test]
async fn a_stale_listing_is_no_reason_for_quarantine() {
    let lake = lake().await;
    lake.submit(0).await.unwrap();
    let rule = Rule::new(Toxin::StaleList).keys_with("_delta_log");
    lake.store.poison(vec![rule.doses(1)]);
    assert_eq!(lake.submit(1).await.unwrap_err().code(), Code::Io);
    assert_eq!(lake.submit(1).await.unwrap().version.0, 2);
}

/// Fault 48: a store on which a taken name can be taken again is refused.
#[tokio::test]
async fn the_probe_tells_stores_apart() {
    let store = ToxicStore::new(Arc::new(InMemory::new()), 1);
    let root = Path::from("lake");
    let dice = Dice::new(1);
    probe(&store, &root, &dice).await.unwrap();
    // Creates that are done and say that they were not: seventeen conflicts, no winner.
    store.poison(vec![Rule::new(Toxin::OwnConflict)]);
    let error = probe(&store, &root, &dice).await.unwrap_err();
    assert_eq!(error.code(), Code::UnsafeStore);
}

/// Fault 45: lengths are checked.
#[tokio::test]
async fn short_answers_are_failures() {
    let toxic = ToxicStore::new(Arc::new(InMemory::new()), 1);
    let store = CheckedStore::new(Arc::new(toxic.clone()));
    let key = Path::from("a");
    store
        .put(&key, PutPayload::from("0123456789"))
        .await
        .unwrap();
    assert_eq!(store.get_range(&key, 2..5).await.unwrap(), "234");
    for toxin in [Toxin::Truncated, Toxin::ShortRange] {
        toxic.poison(vec![Rule::new(toxin)]);
        assert!(store.get_range(&key, 2..8).await.is_err(), "{toxin:?}");
        let whole = match store.get(&key).await {
            Ok(result) => result.bytes().await.map(drop),
            Err(error) => Err(error),
        };
        assert!(whole.is_err(), "{toxin:?}");
        assert!(store.head(&key).await.is_ok());
    }
    toxic.heal();
    assert_eq!(
        store.get(&key).await.unwrap().bytes().await.unwrap(),
        "0123456789"
    );
}

#[tokio::test]
async fn a_late_write_lands_behind_others_and_never_over_a_create() {
    let toxic = ToxicStore::new(Arc::new(InMemory::new()), 1);
    let key = Path::from("a");
    let create = |text: &'static str| {
        let toxic = toxic.clone();
        let key = key.clone();
        async move {
            let options = PutMode::Create.into();
            toxic.put_opts(&key, PutPayload::from(text), options).await
        }
    };
    toxic.poison(vec![Rule::new(Toxin::Late).doses(1)]);
    assert!(create("late").await.is_err());
    create("first").await.unwrap();
    toxic.land_late().await;
    assert_eq!(
        toxic.get(&key).await.unwrap().bytes().await.unwrap(),
        "first"
    );
    assert!(toxic.loose().contains(&key));
    // What cannot be deleted stays, and what is read-only cannot be written.
    toxic.poison(vec![
        Rule::new(Toxin::SilentDelete),
        Rule::new(Toxin::ReadOnly),
    ]);
    toxic.delete(&key).await.unwrap();
    assert!(toxic.head(&key).await.is_ok());
    assert!(create("again").await.is_err());
    assert_eq!(toxic.hits()[&Toxin::SilentDelete], 1);
}

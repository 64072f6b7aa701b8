//! Each answer of the log is lost once, with the entry in it and without.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use tidegate_change::{Code, Error, Result, TableVersion, WriterId};

use super::support::{FakeWorkers, TABLE, check, member, parts, request, spec};
use crate::consensus::{Applied, Consensus};
use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::metadata::replicated::Member;
use crate::metadata::{Entry, State};

/// Loses the answer to one proposal.
#[derive(Debug)]
struct Lossy {
    member: Arc<Member>,
    proposals_count: AtomicU32,
    lost: u32,
    is_applied: bool,
}

#[async_trait]
impl Consensus for Lossy {
    fn writer(&self) -> WriterId {
        self.member.writer()
    }

    async fn propose(&self, entry: Entry) -> Result<Applied> {
        let number = self.proposals_count.fetch_add(1, Ordering::SeqCst);
        if number != self.lost {
            return self.member.propose(entry).await;
        }
        if self.is_applied {
            self.member.propose(entry).await?;
        }
        Err(Error::new(Code::OutcomeUnknown, "the answer was lost"))
    }

    async fn read(&self) -> Result<Arc<State>> {
        self.member.read().await
    }
}

/// A table's whole life; returns how many proposals it took.
async fn live(lost: u32, is_applied: bool) -> u32 {
    let dir = tempfile::tempdir().unwrap();
    let member = member(dir.path()).await;
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let workers = Arc::new(FakeWorkers::default());
    let lossy = Arc::new(Lossy {
        member: Arc::clone(&member),
        proposals_count: AtomicU32::new(0),
        lost,
        is_applied,
    });
    let mut parts = parts(&member, &store, &workers, 0);
    parts.consensus = Arc::clone(&lossy) as Arc<dyn Consensus>;
    let coordinator = Coordinator::new(parts, CoordinatorOptions::default());
    if lost == 0 {
        // The grant of an epoch is asked for again by whoever needs it.
        let epoch = coordinator.create(spec(), TABLE).await.unwrap_err();
        assert_eq!(epoch.code(), Code::OutcomeUnknown);
    }
    coordinator.create(spec(), TABLE).await.unwrap();
    for n in 1..=2_u64 {
        let result = coordinator.submit(&request(&format!("b{n}"), "x")).await;
        assert_eq!(
            result.unwrap().version,
            TableVersion(n),
            "{lost} {is_applied}"
        );
    }
    assert_eq!(check(&store).await.len(), 2, "{lost} {is_applied}");
    let state = member.state();
    let table = state.tables.values().next().unwrap();
    assert!(table.attempts.is_empty(), "{lost} {is_applied}: {table:?}");
    drop(state);
    coordinator.drop_table(TABLE, false).await.unwrap();
    assert!(member.state().tables.is_empty(), "{lost} {is_applied}");
    lossy.proposals_count.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_lost_answer_of_the_log_loses_and_doubles_nothing() {
    let count = live(u32::MAX, false).await;
    assert!(count >= 10, "only {count} proposals");
    for lost in 0..count {
        for is_applied in [false, true] {
            live(lost, is_applied).await;
        }
    }
}

//! A process that ends at any durable step of log or store, before or after the step is done.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::ObjectStore;
use tidegate_change::clock::SystemRandom;
use tidegate_change::{BatchId, BatchResult, Code, Result};
use tidegate_delta::store::{LocalStore, Step, StepHook};

use super::support::{FakeWorkers, TABLE, check, objects, parts, request, spec};
use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::metadata::replicated::{Member, MemberOptions};

/// Fails from one step on, as if the process had ended there.
#[derive(Debug)]
struct EndsAt {
    step: u64,
    next: AtomicU64,
    after: bool,
}

impl EndsAt {
    fn new(step: u64, after: bool) -> Arc<Self> {
        Arc::new(Self {
            step,
            next: AtomicU64::new(0),
            after,
        })
    }

    fn ended() -> io::Result<()> {
        Err(io::Error::other("the process ended"))
    }
}

impl StepHook for EndsAt {
    fn before(&self, _: &Step<'_>) -> io::Result<()> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        if n > self.step || (n == self.step && !self.after) {
            Self::ended()
        } else {
            Ok(())
        }
    }

    fn after(&self, _: &Step<'_>) -> io::Result<()> {
        if self.next.load(Ordering::Relaxed) > self.step {
            Self::ended()
        } else {
            Ok(())
        }
    }
}

/// A directory whose syncs cost nothing, where there is one: what is tested is order, not the disk.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

struct Process {
    coordinator: Coordinator,
    store: Arc<dyn ObjectStore>,
    member: Arc<Member>,
}

async fn start(dir: &Path, hook: Option<Arc<dyn StepHook>>, inline: usize) -> Result<Process> {
    let options = MemberOptions {
        step_hook: hook.clone(),
        ..MemberOptions::alone(Arc::new(SystemRandom))
    };
    let member = Arc::new(Member::open(&dir.join("raft"), &options).await?);
    let store: Arc<dyn ObjectStore> = Arc::new(LocalStore::new(dir.join("lake")).with_hook(hook));
    let parts = parts(&member, &store, &Arc::new(FakeWorkers::default()), 0);
    let coordinator = Coordinator::start(
        parts,
        CoordinatorOptions {
            inline_bytes_max: inline,
            ..CoordinatorOptions::default()
        },
    )
    .await?;
    coordinator.recover().await?;
    Ok(Process {
        coordinator,
        store,
        member,
    })
}

/// The work of a process: a table, two batches, one of them again. Every step may be repeated.
async fn work(process: &Process) -> Result<Vec<BatchResult>> {
    match process.coordinator.create(spec(), TABLE).await {
        Ok(_) => {}
        Err(error) if error.code() == Code::TableExists => {}
        Err(error) => return Err(error),
    }
    let mut results = Vec::new();
    for id in ["b1", "b2", "b1"] {
        results.push(process.coordinator.submit(&request(id, id)).await?);
    }
    Ok(results)
}

/// A directory whose group is founded: crashes while it is founded are the log's own test.
async fn founded() -> tempfile::TempDir {
    let dir = directory();
    drop(super::support::member(&dir.path().join("raft")).await);
    dir
}

async fn crash_everywhere(inline: usize) -> u64 {
    let mut step = 0;
    loop {
        let mut ended = false;
        for after in [false, true] {
            let dir = founded().await;
            let hook = EndsAt::new(step, after);
            let first = match start(dir.path(), Some(Arc::clone(&hook) as _), inline).await {
                Ok(process) => work(&process).await.unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            ended |= hook.next.load(Ordering::Relaxed) > step;

            let process = start(dir.path(), None, inline).await.unwrap();
            let results = work(&process).await.unwrap();
            assert_eq!(results[0], results[2], "a retry gets the same answer");
            for (earlier, now) in first.iter().zip(&results) {
                assert_eq!(earlier, now, "step {step}: an acknowledged answer changed");
            }
            let batches = check(&process.store).await;
            assert_eq!(batches.len(), 2, "step {step}");
            assert_eq!(batches[&BatchId("b1".into())], results[0].version);
            // Nothing is left but the files of the two versions.
            let left = objects(&process.store).await;
            assert_eq!(left.len(), 2, "step {step}: {left:?}");
            let table = process.member.state();
            let table = table.table_named(TABLE).unwrap().1;
            assert!(
                table.attempts.is_empty()
                    && table.uncollected.is_empty()
                    && table.pending.is_none()
            );
        }
        if !ended {
            return step;
        }
        step += 1;
    }
}

#[tokio::test]
async fn no_crash_loses_or_doubles_a_batch() {
    let steps = crash_everywhere(usize::MAX).await;
    assert!(steps > 60, "only {steps} steps were seen");
}

#[tokio::test]
async fn no_crash_loses_or_doubles_a_batch_with_staged_commits() {
    let steps = crash_everywhere(0).await;
    assert!(steps > 80, "only {steps} steps were seen");
}

#[tokio::test]
async fn a_crash_while_recovering_is_recovered() {
    // The first process ends where a commit is prepared and not yet published; the second anywhere.
    for step in (0..).step_by(3) {
        let dir = directory();
        {
            let process = start(dir.path(), None, 0).await.unwrap();
            process.coordinator.create(spec(), TABLE).await.unwrap();
            let ends = EndsAt::new(step % 90, false);
            drop(process);
            if let Ok(process) = start(dir.path(), Some(ends as _), 0).await {
                let _ = work(&process).await;
            }
        }
        let second = EndsAt::new(step / 2, true);
        let _ = start(dir.path(), Some(Arc::clone(&second) as _), 0).await;
        let process = start(dir.path(), None, 0).await.unwrap();
        work(&process).await.unwrap();
        assert_eq!(check(&process.store).await.len(), 2, "step {step}");
        if step > 120 {
            break;
        }
    }
}

#[tokio::test]
async fn a_lost_staged_commit_is_fenced() {
    // Find a crash that leaves a prepared commit with a staged file, then lose the file.
    let mut fenced = 0;
    for step in 0..160 {
        let dir = directory();
        if let Ok(process) = start(dir.path(), Some(EndsAt::new(step, false) as _), 0).await {
            let _ = work(&process).await;
        }
        let member = super::support::member(&dir.path().join("raft")).await;
        let state = member.state();
        let pending = state
            .table_named(TABLE)
            .is_some_and(|(_, table)| table.head.is_some() && table.pending.is_some());
        drop((member, state));
        let staged = dir.path().join("lake").join(TABLE).join("_tidegate/staged");
        if !pending {
            continue;
        }
        std::fs::remove_dir_all(&staged).unwrap();
        let process = start(dir.path(), None, 0).await.unwrap();
        work(&process).await.unwrap();
        assert_eq!(check(&process.store).await.len(), 2, "step {step}");
        fenced += 1;
    }
    assert!(fenced > 5, "the fence was needed only {fenced} times");
}

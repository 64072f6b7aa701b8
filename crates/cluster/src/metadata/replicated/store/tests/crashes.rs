//! The process ends at any durable step, before or after the step is done; then the file is opened again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_change::Code;
use tidegate_delta::store::{Step, StepHook};

use super::super::WriteMode;
use super::support::{Call, Model, directory, open, options};

/// Fails the step with a given number, and every later one, as if the process had ended there.
#[derive(Debug)]
struct CrashAt {
    step: u64,
    next: AtomicU64,
    /// Whether the step itself is done before the end.
    after: bool,
}

impl StepHook for CrashAt {
    fn before(&self, _: &Step<'_>) -> io::Result<()> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let ended = if self.after {
            n > self.step
        } else {
            n >= self.step
        };
        if ended {
            Err(io::Error::other("the process ended"))
        } else {
            Ok(())
        }
    }

    fn after(&self, _: &Step<'_>) -> io::Result<()> {
        let n = self.next.load(Ordering::Relaxed);
        if self.after && n > self.step {
            Err(io::Error::other("the process ended"))
        } else {
            Ok(())
        }
    }
}

/// A life of a store: every kind of write, leaders that change, two snapshots.
const CALLS: [Call; 16] = [
    Call::Vote(1),
    Call::Append { term: 1, count: 3 },
    Call::Append { term: 1, count: 4 },
    Call::Apply(4),
    Call::Truncate(4),
    Call::Vote(2),
    Call::Append { term: 2, count: 6 },
    Call::Apply(8),
    Call::Snapshot,
    Call::Purge(6),
    Call::Append { term: 2, count: 1 },
    Call::Vote(3),
    Call::Apply(11),
    Call::Snapshot,
    Call::Purge(11),
    Call::Append { term: 3, count: 5 },
];

/// Makes calls until one fails; returns what the store must hold, and may hold.
async fn live(dir: &std::path::Path, hook: Arc<dyn StepHook>, mode: WriteMode) -> [Model; 2] {
    let mut model = Model::default();
    let Ok(mut opened) = open(dir, &options(Some(hook), mode)) else {
        return [model.clone(), model];
    };
    for call in CALLS {
        let next = model.after(call);
        if let Err(error) = model.make(&mut opened, call).await {
            assert!(error.to_string().contains("a write failed"), "{error}");
            assert_eq!(opened.store.failure().unwrap().code(), Code::Io);
            let again = Model::default().make(&mut opened, Call::Vote(9)).await;
            assert!(again.is_err(), "a failed store takes nothing more");
            return [model, next];
        }
        model = next;
    }
    [model.clone(), model]
}

async fn crash_everywhere(mode: WriteMode) {
    for step in 0.. {
        let mut crashed = false;
        for after in [false, true] {
            let dir = directory();
            let hook = Arc::new(CrashAt {
                step,
                next: AtomicU64::new(0),
                after,
            });
            let hooked: Arc<dyn StepHook> = Arc::<CrashAt>::clone(&hook);
            let may_hold = live(dir.path(), hooked, mode).await;
            crashed |= hook.next.load(Ordering::Relaxed) > step;
            let mut opened = open(dir.path(), &options(None, mode)).unwrap();
            let found = Model::read(&mut opened).await;
            assert!(
                may_hold.iter().any(|model| model.allows(&found)),
                "step {step}, after {after}: {found:?} is none of {may_hold:?}"
            );
            drop(opened);
            let mut opened = open(dir.path(), &options(None, mode)).unwrap();
            assert_eq!(
                Model::read(&mut opened).await,
                found,
                "reading changes nothing"
            );
            found.make(&mut opened, Call::Vote(9)).await.unwrap();
        }
        if !crashed {
            assert!(step > 60, "only {step} steps were seen");
            println!("{step} durable steps");
            return;
        }
    }
}

#[tokio::test]
async fn every_crash_point_keeps_what_was_acknowledged() {
    crash_everywhere(WriteMode::Thread).await;
}

#[tokio::test]
async fn every_crash_point_keeps_what_was_acknowledged_without_a_thread() {
    crash_everywhere(WriteMode::Inline).await;
}

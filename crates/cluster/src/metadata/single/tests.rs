//! The log survives every crash with all that it acknowledged.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_change::Code;
use tidegate_change::clock::SystemRandom;
use tidegate_delta::store::Step;

use super::*;
use crate::metadata::{CreateTable, Grant, NodeId, Outcome, Role, TableId};

fn options() -> SingleMemberOptions {
    SingleMemberOptions {
        snapshot_entries: 5,
        ..SingleMemberOptions::new(Arc::new(SystemRandom))
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn create(n: u64) -> Entry {
    Entry::CreateTable(CreateTable {
        table: TableId(format!("id{n}")),
        name: format!("t{n}"),
        location: format!("t{n}"),
    })
}

#[test]
fn entries_survive_reopening_and_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = None;
    for round in 0..4 {
        let member = SingleMember::open(dir.path(), &options()).unwrap();
        assert_eq!(
            *writer.get_or_insert_with(|| member.writer()),
            member.writer()
        );
        assert_eq!(member.state().tables.len(), round * 7);
        for n in 0..7 {
            let applied = run(member.propose(create((round * 7 + n) as u64))).unwrap();
            assert_eq!(applied.outcome, Outcome::Done);
            assert_eq!(applied.index, (round * 7 + n) as u64 + 1);
        }
    }
    let log = fs::metadata(dir.path().join("raft.redb")).unwrap().len();
    assert!(log < 4 << 20, "{log}");
}

#[test]
fn a_held_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let held = SingleMember::open(dir.path(), &options()).unwrap();
    let error = SingleMember::open(dir.path(), &options()).unwrap_err();
    assert_eq!(error.code(), Code::DirectoryHeld);
    drop(held);
    SingleMember::open(dir.path(), &options()).unwrap();
}

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

/// Proposes until the log fails; returns how many entries were acknowledged.
fn work(dir: &Path, hook: Arc<dyn StepHook>) -> usize {
    let options = SingleMemberOptions {
        step_hook: Some(hook),
        ..options()
    };
    let Ok(member) = SingleMember::open(dir, &options) else {
        return 0;
    };
    let first = member.state().tables.len();
    for n in 0..12 {
        if let Err(error) = run(member.propose(create((first + n) as u64))) {
            assert_eq!(error.code(), Code::Io);
            let again = run(member.propose(create(999)));
            assert!(again.is_err(), "a failed log takes no more entries");
            return first + n;
        }
    }
    first + 12
}

#[test]
fn every_crash_point_keeps_what_was_acknowledged() {
    let mut step = 0;
    loop {
        let mut crashed = false;
        for after in [false, true] {
            let dir = tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .unwrap();
            let hook = Arc::new(CrashAt {
                step,
                next: AtomicU64::new(0),
                after,
            });
            let acknowledged = work(dir.path(), Arc::clone(&hook) as Arc<dyn StepHook>);
            crashed |= hook.next.load(Ordering::Relaxed) > step;
            let member = SingleMember::open(dir.path(), &options()).unwrap();
            let found = member.state().tables.len();
            assert!(
                found >= acknowledged,
                "step {step}: {found} of {acknowledged}"
            );
            assert!(
                found <= acknowledged + 1,
                "step {step}: more than the entry in flight"
            );
            let grant = Grant {
                node: NodeId(0),
                role: Role::Coordinator,
            };
            run(member.propose(Entry::Grant(grant))).unwrap();
        }
        if !crashed {
            break;
        }
        step += 1;
    }
    assert!(step > 30, "only {step} steps were seen");
}

#[test]
fn flipped_bits_never_pass_for_entries() {
    let dir = tempfile::tempdir().unwrap();
    {
        let member = SingleMember::open(dir.path(), &options()).unwrap();
        for n in 0..7 {
            run(member.propose(create(n))).unwrap();
        }
    }
    let path = dir.path().join("raft.redb");
    let clean = fs::read(&path).unwrap();
    let marker = clean.windows(4).position(|w| w == b"\"id6").unwrap();
    let mut flipped = clean;
    flipped[marker + 2] ^= 1;
    fs::write(&path, &flipped).unwrap();
    let opened = SingleMember::open(dir.path(), &options());
    assert_eq!(opened.unwrap_err().code(), Code::Corrupt);
}

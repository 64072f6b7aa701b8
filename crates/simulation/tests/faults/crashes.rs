//! `kill -9` before and after every durable step of an apply, then the apply again: the batch is in one
//! version, the rows are the model's, and nothing stays behind. Also twice in a row, where the second kill
//! meets the recovery of the first.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tidegate_simulation::drivers::embedded::scratch;
use tidegate_simulation::faults::{Fault, FaultHook, Side};

use crate::table::{apply_faulted, copy, left_behind, prepare, rerun_and_check, temporary_files};

const DIRECTORY: &str = "TIDEGATE_CRASH_DIRECTORY";
const STEP: &str = "TIDEGATE_CRASH_STEP";
const SIDE: &str = "TIDEGATE_CRASH_SIDE";
const SPILLS: &str = "TIDEGATE_CRASH_SPILLS";

/// Steps between the second kills of a double crash, which are a sample.
const SECOND_KILL_EVERY: usize = 5;

/// Runs in a child process of its own; does nothing without its variables.
#[test]
#[ignore = "the child of the other tests"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let step = std::env::var(STEP).unwrap().parse().unwrap();
    let side = if std::env::var(SIDE).unwrap() == "before" {
        Side::Before
    } else {
        Side::After
    };
    let spills = std::env::var(SPILLS).unwrap() == "true";
    let hook = Arc::new(FaultHook::with(Fault::Kill(step, side)));
    let result = apply_faulted(Path::new(&directory), hook, spills);
    println!("outlived its kill: {result:?}");
}

/// Whether the child was killed; it outlives a step that it never comes to.
fn crash(directory: &Path, step: usize, side: Side, spills: bool) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crashes::child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIRECTORY, directory)
        .env(STEP, step.to_string())
        .env(SPILLS, spills.to_string())
        .env(
            SIDE,
            if side == Side::Before {
                "before"
            } else {
                "after"
            },
        )
        .output()
        .unwrap();
    match status.status.signal() {
        Some(9) => true,
        None if status.status.success() => false,
        other => panic!(
            "the child ended by {other:?}: {}",
            String::from_utf8_lossy(&status.stdout)
        ),
    }
}

#[test]
fn a_kill_before_or_after_any_step_loses_and_doubles_nothing() {
    kill_at_every_step(false);
}

#[test]
fn a_kill_of_a_batch_in_temporary_files_loses_nothing_and_leaves_none() {
    kill_at_every_step(true);
}

fn kill_at_every_step(spills: bool) {
    let scratch = scratch().unwrap();
    let base = scratch.path().join("base");
    prepare(&base);
    let counted = scratch.path().join("counted");
    copy(&base, &counted);
    let hook = Arc::new(FaultHook::counting());
    apply_faulted(&counted, Arc::clone(&hook), spills).unwrap();
    assert!(temporary_files(&counted).is_empty());
    let steps = hook.steps();
    println!("{} durable steps in one apply:", steps.len());
    for (number, step) in steps.iter().enumerate() {
        let path = step
            .path
            .strip_prefix(&*counted.to_string_lossy())
            .unwrap_or(&step.path);
        println!("{number:4} {:?} {path}", step.kind);
    }
    assert!(steps.len() > 30, "only {} steps are seen", steps.len());
    rerun_and_check(&counted, "without a kill");
    let (mut kills, mut left, mut temporary) = (0, 0, 0);
    for (step, seen) in steps.iter().enumerate() {
        let done = seen.is_done.then_some(Side::After);
        for side in std::iter::once(Side::Before).chain(done) {
            let what = format!("killed {side:?} step {step} ({seen:?})");
            let directory = scratch.path().join("crash");
            copy(&base, &directory);
            assert!(
                crash(&directory, step, side, spills),
                "{what}: the child outlived it"
            );
            kills += 1;
            left += left_behind(&directory).len();
            temporary += temporary_files(&directory).len();
            rerun_and_check(&directory, &what);
            std::fs::remove_dir_all(&directory).unwrap();
        }
    }
    assert!(
        left > 50,
        "kills left only {left} files behind: the check sees too little"
    );
    assert_eq!(spills, temporary > 50, "{temporary} temporary files");
    println!("{kills} kills, nothing lost or doubled, {left} files left behind and removed");
}

#[test]
fn a_second_kill_during_recovery_loses_and_doubles_nothing() {
    let scratch = scratch().unwrap();
    let base = scratch.path().join("base");
    prepare(&base);
    let mut kills = 0;
    for first in (0..).step_by(SECOND_KILL_EVERY * 2 + 1) {
        let once = scratch.path().join("once");
        copy(&base, &once);
        if !crash(&once, first, Side::After, false) {
            break;
        }
        for second in (kills % SECOND_KILL_EVERY..).step_by(SECOND_KILL_EVERY) {
            let twice = scratch.path().join("twice");
            copy(&once, &twice);
            let killed = crash(&twice, second, Side::Before, false);
            rerun_and_check(
                &twice,
                &format!("killed after step {first}, then before {second}"),
            );
            std::fs::remove_dir_all(&twice).unwrap();
            if !killed {
                break;
            }
            kills += 1;
        }
        std::fs::remove_dir_all(&once).unwrap();
    }
    assert!(kills > 20, "only {kills} second kills");
    println!("{kills} second kills, nothing lost or doubled");
}

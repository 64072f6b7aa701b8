//! A full disk and a directory that cannot be written give a clear error and lose nothing: by a hook at
//! every step, and on a real file system where this process may mount one.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tidegate_change::{Code, Error};
use tidegate_simulation::drivers::embedded::scratch;
use tidegate_simulation::faults::{Fault, FaultHook};

use crate::table::{
    FAULTED, apply, apply_faulted, copy, newest, open, open_spilling, prepare, rerun_and_check,
    temporary_files,
};

fn fails_clearly_from_every_step(kind: io::ErrorKind, code: Code) {
    let scratch = scratch().unwrap();
    let base = scratch.path().join("base");
    prepare(&base);
    let (mut failures, mut open_outcomes) = (0, 0);
    for step in 0.. {
        let directory = scratch.path().join("bad");
        copy(&base, &directory);
        let hook = Arc::new(FaultHook::with(Fault::FailFrom(step, kind)));
        // Every other time out of temporary files, which are gone afterwards.
        let outcome = apply_faulted(&directory, Arc::clone(&hook), step % 2 == 1);
        let hit = hook.steps().len() > step;
        let what = format!(
            "{kind:?} from step {step} on ({:?})",
            hook.steps().get(step)
        );
        let temporary = temporary_files(&directory);
        assert!(temporary.is_empty(), "{what}: {temporary:?}");
        if let Err(error) = &outcome {
            assert_eq!(error.code(), code, "{what}: {error:?}");
            failures += 1;
            open_outcomes += u32::from(tells_the_outcome(&directory, error, &what));
        }
        rerun_and_check(&directory, &what);
        fs::remove_dir_all(&directory).unwrap();
        if !hit {
            assert!(outcome.is_ok());
            break;
        }
    }
    assert!(failures > 30, "only {failures} failures");
    assert!(open_outcomes > 2, "only {open_outcomes} outcomes were open");
    println!("{kind:?}: {failures} failures, nothing lost");
}

/// Checks that a failure says what becomes of the batch; returns whether its outcome was open.
fn tells_the_outcome(directory: &Path, error: &Error, what: &str) -> bool {
    let embedded = open(directory, None).unwrap();
    let is_published = newest(&embedded) == FAULTED as u64 + 1;
    let is_open = error.to_string().contains("is open");
    let hint = error.hint().unwrap_or_default();
    if is_published {
        assert!(
            is_open && hint.contains("publishes it"),
            "{what}: {error:?}"
        );
    } else {
        assert!(!hint.contains("it is prepared"), "{what}: {error:?}");
    }
    is_open
}

#[test]
fn a_disk_that_is_full_from_any_step_on_loses_nothing() {
    fails_clearly_from_every_step(io::ErrorKind::StorageFull, Code::StorageFull);
}

#[test]
fn a_disk_that_refuses_writes_from_any_step_on_loses_nothing() {
    fails_clearly_from_every_step(io::ErrorKind::ReadOnlyFilesystem, Code::PermissionDenied);
}

/// A small file system in memory; unmounted when dropped.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn new(directory: &'a Path, size: &str) -> Self {
        fs::create_dir_all(directory).unwrap();
        let size = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&mounted.stderr);
        assert!(
            mounted.status.success(),
            "a file system cannot be mounted: {said}"
        );
        Self(directory)
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        assert!(
            Command::new("mount")
                .args(["-o", &options])
                .arg(self.0)
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Runs a test of this file again where it may mount (by `unshare` of util-linux); true when that is done, false when it may here.
fn ran_where_mounting_is_allowed(test: &str) -> bool {
    const INNER: &str = "TIDEGATE_TEST_MAY_MOUNT";
    let user = Command::new("id").arg("-u").output().unwrap();
    if user.stdout.trim_ascii() == b"0" || std::env::var_os(INNER).is_some() {
        return false;
    }
    let inner = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(INNER, "1")
        .status();
    let inner = inner.unwrap();
    assert!(
        inner.success(),
        "{test} fails in a namespace of its own, or there can be none"
    );
    true
}

#[test]
fn a_file_system_that_is_full_or_read_only_is_told_and_loses_nothing() {
    let name = "disks::a_file_system_that_is_full_or_read_only_is_told_and_loses_nothing";
    if ran_where_mounting_is_allowed(name) {
        return;
    }
    let scratch = scratch().unwrap();
    let directory = scratch.path().join("mount");
    let mount = Mount::new(&directory, "12m");
    prepare(&directory);
    mount.remount("ro");
    let error = open(&directory, None)
        .and_then(|embedded| apply(&embedded, &directory, FAULTED))
        .expect_err("written to a read-only file system");
    assert_eq!(error.code(), Code::PermissionDenied, "{error:?}");
    mount.remount("rw");
    fill(&directory.join("ballast"));
    let error = open(&directory, None)
        .and_then(|embedded| apply(&embedded, &directory, FAULTED))
        .expect_err("written to a full file system");
    assert_eq!(error.code(), Code::StorageFull, "{error:?}");
    fs::remove_file(directory.join("ballast")).unwrap();
    rerun_and_check(&directory, "after a full and a read-only file system");
}

#[test]
fn no_room_for_temporary_files_is_told_and_loses_nothing() {
    if ran_where_mounting_is_allowed("disks::no_room_for_temporary_files_is_told_and_loses_nothing")
    {
        return;
    }
    let scratch = scratch().unwrap();
    let directory = scratch.path().join("base");
    prepare(&directory);
    let spill = directory.join("data/spill");
    let mount = Mount::new(&spill, "4k");
    let embedded = open_spilling(&directory, None).unwrap();
    let error = apply(&embedded, &directory, FAULTED).expect_err("4 KiB hold the batch");
    assert_eq!(error.code(), Code::StorageFull, "{error:?}");
    assert!(temporary_files(&directory).is_empty());
    drop(embedded);
    drop(mount);
    rerun_and_check(&directory, "after no room for temporary files");
}

/// Writes until nothing fits any more.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    for bytes in [1 << 16, 1 << 12, 1 << 8, 1] {
        while file.write(&vec![0; bytes]).is_ok_and(|written| written > 0) {}
    }
}

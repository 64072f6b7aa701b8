//! Files that are damaged are refused, or the damage does not matter; they never pass for something else.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_change::Code;

use super::super::{StoreOptions, WriteMode};
use super::support::{Call, Model, directory, open, options};

const FLIPS: u64 = 600;
const CUTS: u64 = 60;

async fn filled(dir: &Path) -> (PathBuf, Model) {
    let mut opened = open(dir, &options(None, WriteMode::Inline)).unwrap();
    let mut model = Model::default();
    let calls = [
        Call::Vote(1),
        Call::Append { term: 1, count: 12 },
        Call::Apply(8),
        Call::Snapshot,
        Call::Purge(4),
        Call::Append { term: 1, count: 6 },
    ];
    for call in calls {
        let next = model.after(call);
        model.make(&mut opened, call).await.unwrap();
        model = next;
    }
    drop(opened);
    let mut opened = open(dir, &options(None, WriteMode::Inline)).unwrap();
    let found = Model::read(&mut opened).await;
    assert!(model.allows(&found));
    (dir.join("raft.redb"), found)
}

/// SplitMix64.
fn scatter(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Opens a damaged file; returns whether it was refused.
async fn is_refused(dir: &Path, options: &StoreOptions, model: &Model, what: &str) -> bool {
    match open(dir, options) {
        Err(error) => {
            let code = error.code();
            let known = [Code::Corrupt, Code::Io, Code::Unsupported];
            assert!(known.contains(&code), "{what}: {error:?}");
            true
        }
        Ok(mut opened) => {
            assert_eq!(Model::read(&mut opened).await, *model, "{what}");
            false
        }
    }
}

#[tokio::test]
async fn flipped_bits_never_pass_for_something_else() {
    let dir = directory();
    let (path, model) = filled(dir.path()).await;
    let clean = fs::read(&path).unwrap();
    let used = clean.iter().filter(|byte| **byte != 0).count();
    let mut refused = [0, 0];
    for flip in 0..FLIPS {
        // Most of a young file is empty: aim at what is not.
        let mut at = usize::try_from(scatter(flip)).unwrap() % clean.len();
        while clean[at] == 0 {
            at = (at + 1) % clean.len();
        }
        for (count, check_integrity) in refused.iter_mut().zip([false, true]) {
            let mut flipped = clean.clone();
            flipped[at] ^= 1 << (flip % 8);
            fs::write(&path, &flipped).unwrap();
            let options = StoreOptions {
                check_integrity,
                ..options(None, WriteMode::Inline)
            };
            let what = format!("bit {} of byte {at} flipped", flip % 8);
            *count += u64::from(is_refused(dir.path(), &options, &model, &what).await);
        }
    }
    println!("{FLIPS} flips in {used} bytes, refused {refused:?} without and with a check");
    assert!(
        refused.iter().all(|refused| *refused > FLIPS / 20),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_torn_file_is_refused() {
    let dir = directory();
    let (path, model) = filled(dir.path()).await;
    let clean = fs::read(&path).unwrap();
    let mut refused = 0;
    for cut in 0..CUTS {
        let length = usize::try_from(scatter(cut)).unwrap() % clean.len();
        fs::write(&path, &clean[..length]).unwrap();
        let what = format!("cut to {length} of {} bytes", clean.len());
        let options = options(None, WriteMode::Inline);
        refused += u64::from(is_refused(dir.path(), &options, &model, &what).await);
    }
    assert!(refused > CUTS / 2, "{refused} of {CUTS}");
}

#[tokio::test]
async fn a_changed_entry_is_told_as_corrupt() {
    let dir = directory();
    let (path, _) = filled(dir.path()).await;
    let clean = fs::read(&path).unwrap();
    let mut hits = 0;
    for (at, window) in clean.windows(5).enumerate() {
        if window != b"\"id17" && window != b"\"id10" {
            continue;
        }
        let mut flipped = clean.clone();
        flipped[at + 1] ^= 1;
        fs::write(&path, &flipped).unwrap();
        if let Err(error) = open(dir.path(), &options(None, WriteMode::Inline)) {
            assert_eq!(error.code(), Code::Corrupt, "{error:?}");
            hits += 1;
        }
    }
    assert!(hits > 0, "no entry was hit");
}

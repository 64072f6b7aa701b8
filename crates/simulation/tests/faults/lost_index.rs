//! A key index that is lost or damaged is made anew by the next batch, from the table's own files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tidegate_server::{BatchObserver, BatchProgress};
use tidegate_simulation::drivers::embedded::{runtime, scratch};

use crate::table::{
    FAULTED, TABLE, apply_observed, copy, open, open_spilling, prepare, rerun_and_check,
};

fn runs(directory: &Path) -> Vec<PathBuf> {
    let index = directory.join("data/lake/t/_tidegate/index");
    let entries = fs::read_dir(index).unwrap();
    let mut runs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    runs.sort_by_key(|run| fs::metadata(run).unwrap().modified().unwrap());
    runs
}

fn flip(path: &Path, part: usize) {
    let mut bytes = fs::read(path).unwrap();
    let position = bytes.len() * part / 8;
    bytes[position] ^= 4;
    fs::write(path, bytes).unwrap();
}

fn lose_directory(directory: &Path) {
    fs::remove_dir_all(directory.join("data/lake/t/_tidegate/index")).unwrap();
}

fn lose_newest(directory: &Path) {
    fs::remove_file(runs(directory).last().unwrap()).unwrap();
}

fn lose_oldest(directory: &Path) {
    fs::remove_file(runs(directory).first().unwrap()).unwrap();
}

fn cut_newest(directory: &Path) {
    fs::write(runs(directory).last().unwrap(), "").unwrap();
}

fn flip_near_the_start(directory: &Path) {
    flip(runs(directory).last().unwrap(), 2);
}

fn flip_near_the_end(directory: &Path) {
    flip(runs(directory).last().unwrap(), 7);
}

/// The copy of a table that another directory takes.
fn lose_index_and_metadata(directory: &Path) {
    lose_directory(directory);
    fs::remove_dir_all(directory.join("data/raft")).unwrap();
    let embedded = open(directory, None).unwrap();
    runtime().block_on(embedded.adopt(TABLE, None)).unwrap();
}

#[derive(Debug, Default)]
struct Warnings(Mutex<Vec<String>>);

impl BatchObserver for Warnings {
    fn observe(&self, _: BatchProgress) {}

    fn warn(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

fn is_mended(damage: fn(&Path), what: &str) {
    let scratch = scratch().unwrap();
    let base = scratch.path().join("base");
    prepare(&base);
    damage(&base);
    for spills in [false, true] {
        let directory = scratch.path().join(format!("spills-{spills}"));
        copy(&base, &directory);
        let embedded = match spills {
            true => open_spilling(&directory, None),
            false => open(&directory, None),
        };
        let warnings = Arc::new(Warnings::default());
        let observer = Arc::clone(&warnings) as Arc<dyn BatchObserver>;
        let result = apply_observed(&embedded.unwrap(), &directory, FAULTED, Some(observer));
        result.unwrap_or_else(|e| panic!("{what}: {e:?}"));
        let said = warnings.0.lock().unwrap().clone();
        assert!(
            said.len() == 1 && said[0].contains("index"),
            "{what}: told {said:?}"
        );
        assert!(names_only_what_is_there(&directory), "{what}");
        // The rows are the model's, and so are those of the batch after it, which finds old keys.
        rerun_and_check(&directory, what);
    }
}

fn names_only_what_is_there(directory: &Path) -> bool {
    let embedded = open(directory, None).unwrap();
    let reader = embedded.reader();
    let snapshot = runtime().block_on(reader.snapshot(TABLE, None)).unwrap();
    let manifest: serde_json::Value =
        serde_json::from_str(&snapshot.domains["tidegate.state.1"]).unwrap();
    let runs = manifest["runs"].as_array().unwrap();
    let table = directory.join("data/lake").join(TABLE);
    let is_there = |run: &serde_json::Value| table.join(run["path"].as_str().unwrap()).is_file();
    !runs.is_empty() && runs.iter().all(is_there)
}

#[test]
fn a_lost_index_is_made_anew() {
    is_mended(lose_directory, "no index");
}

#[test]
fn a_lost_run_makes_the_index_anew() {
    is_mended(lose_newest, "no newest run");
    is_mended(lose_oldest, "no oldest run");
}

#[test]
fn a_damaged_run_makes_the_index_anew() {
    is_mended(flip_near_the_start, "a flipped bit near the start");
    is_mended(flip_near_the_end, "a flipped bit near the end");
    is_mended(cut_newest, "an empty run");
}

#[test]
fn an_adopted_table_without_index_goes_on() {
    is_mended(lose_index_and_metadata, "adopted without index");
}

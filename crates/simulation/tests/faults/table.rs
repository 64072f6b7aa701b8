//! What the fault tests share: a table with every kind of file, its next batch, and the check of what a
//! rerun leaves.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tidegate_change::{BatchResult, Clock, Error, TableVersion};
use tidegate_cluster::LocalWorkers;
use tidegate_delta::names;
use tidegate_delta::store::StepHook;
use tidegate_query::ReadOptions;
use tidegate_server::{ApplyOptions, BatchObserver, Embedded, OpenOptions, SourceArgument};
use tidegate_simulation::drivers::arrow_rows::value_at;
use tidegate_simulation::drivers::embedded::{SetClock, runtime};
use tidegate_simulation::drivers::files::write_batch;
use tidegate_simulation::faults::FaultHook;
use tidegate_simulation::oracle::Row;
use tidegate_simulation::{Dice, Oracle, Scenario};

pub(crate) const TABLE: &str = "t";

/// A table and four batches; the third is the one that faults meet: it inserts, updates, deletes, brings a
/// tombstone, a reject, change data, a deletion vector and an index run.
fn scenario() -> Scenario {
    let event =
        |id: u64, op: &str, seq: u64, v: &str| json!({"id": id, "op": op, "seq": seq, "v": v});
    let history = json!({
        "id": "faults",
        "spec": {
            "keys": ["id"], "sequence_by": "seq", "scd": 1,
            "source_columns": ["id", "op", "seq", "v"], "except": ["op", "seq"],
            "delete_when": {"col": "op", "eq": "D"}, "on_invalid": "quarantine",
            "types": {"id": "long", "op": "string", "seq": "long", "v": "string"},
        },
        "batches": [
            {"events": [event(1, "U", 1, "a"), event(2, "U", 1, "b"), event(3, "U", 1, "c")]},
            {"events": [event(4, "U", 2, "d"), event(5, "D", 2, ""), event(1, "U", 2, "aa")]},
            {"events": [
                event(1, "U", 3, "aaa"), event(2, "D", 3, ""), event(6, "U", 3, "f"),
                event(7, "D", 3, ""), {"id": null, "op": "U", "seq": 3, "v": "x"},
            ]},
            {"events": [event(3, "U", 4, "cc"), event(2, "U", 4, "back")]},
        ],
    });
    serde_json::from_value(history).unwrap()
}

/// The batch that faults meet.
pub(crate) const FAULTED: usize = 2;

/// Writes the input files of all batches and brings the table to the state before the faulted batch.
pub(crate) fn prepare(directory: &Path) {
    let scenario = scenario();
    for (index, batch) in scenario.batches.iter().enumerate() {
        write_batch(&input(directory, index), &scenario.spec, batch).unwrap();
    }
    let embedded = open(directory, None).unwrap();
    // The faulted batch writes a checkpoint too.
    let mut spec = scenario.table_spec(TABLE).unwrap();
    spec.checkpoint.commits = FAULTED as u64 + 1;
    runtime().block_on(embedded.create_table(spec)).unwrap();
    for index in 0..FAULTED {
        apply(&embedded, directory, index).unwrap();
    }
}

fn input(directory: &Path, index: usize) -> PathBuf {
    directory.join(format!("input-{index}"))
}

pub(crate) fn open(directory: &Path, hook: Option<Arc<FaultHook>>) -> Result<Embedded, Error> {
    open_with(directory, hook, OpenOptions::default().memory_bytes)
}

/// Memory of the batches in which every event goes to a file.
const NO_MEMORY: u64 = 0;

/// Opens with so little memory that batches put all their events into temporary files.
pub(crate) fn open_spilling(
    directory: &Path,
    hook: Option<Arc<FaultHook>>,
) -> Result<Embedded, Error> {
    open_with(directory, hook, NO_MEMORY)
}

fn open_with(
    directory: &Path,
    hook: Option<Arc<FaultHook>>,
    memory_bytes: u64,
) -> Result<Embedded, Error> {
    let options = OpenOptions {
        memory_bytes,
        clock: Arc::new(SetClock::new(1_800_000_000_000)) as Arc<dyn Clock>,
        random: Arc::new(Dice::new(seed())),
        // A child that another test is just starting holds the lock until it is its own program.
        wait_lock: true,
        step_hook: hook.map(|hook| hook as Arc<dyn StepHook>),
        ..OpenOptions::new(Arc::new(LocalWorkers))
    };
    let data = directory.join("data");
    let opened = Embedded::open(&data, options);
    runtime().block_on(opened)
}

/// Another one for each opening, in this process and its children: a log that begins anew must not issue ids
/// that an earlier one issued.
fn seed() -> u64 {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    u64::from(std::process::id()) << 32 | OPENED.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn apply(
    embedded: &Embedded,
    directory: &Path,
    index: usize,
) -> Result<BatchResult, Error> {
    apply_observed(embedded, directory, index, None)
}

pub(crate) fn apply_observed(
    embedded: &Embedded,
    directory: &Path,
    index: usize,
    observer: Option<Arc<dyn BatchObserver>>,
) -> Result<BatchResult, Error> {
    let source = [SourceArgument::Path(
        input(directory, index).to_string_lossy().into_owned(),
    )];
    let options = ApplyOptions {
        batch_id: Some(format!("batch-{index}")),
        observer,
        ..Default::default()
    };
    let applied = embedded.apply(TABLE, &source, &options);
    runtime().block_on(applied)
}

/// Opens and applies the faulted batch under a hook, in memory or out of temporary files.
pub(crate) fn apply_faulted(
    directory: &Path,
    hook: Arc<FaultHook>,
    spills: bool,
) -> Result<BatchResult, Error> {
    let embedded = match spills {
        true => open_spilling(directory, Some(hook)),
        false => open(directory, Some(hook)),
    };
    apply(&embedded?, directory, FAULTED)
}

/// The table's newest version.
pub(crate) fn newest(embedded: &Embedded) -> u64 {
    let listed = runtime().block_on(embedded.list()).unwrap();
    listed.first().unwrap().version.0
}

/// Temporary files of batches that there are now.
pub(crate) fn temporary_files(directory: &Path) -> Vec<String> {
    let spill = directory.join("data/spill");
    let mut files = Vec::new();
    if spill.try_exists().unwrap() {
        collect(&spill, &spill, &mut files);
    }
    files
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runs the faulted batch again and checks that it is in exactly once, that the rows are the model's, that
/// the next batch goes in, and that no file is left that no version needs.
pub(crate) fn rerun_and_check(directory: &Path, what: &str) {
    let embedded = open(directory, None).unwrap_or_else(|e| panic!("{what}: reopening: {e:?}"));
    let result = apply(&embedded, directory, FAULTED)
        .unwrap_or_else(|e| panic!("{what}: applying again: {e:?}"));
    let version = TableVersion(FAULTED as u64 + 1);
    assert_eq!(result.version, version, "{what}: version");
    let scenario = scenario();
    let mut oracle = Oracle::new(&scenario).unwrap();
    for batch in &scenario.batches[..=FAULTED] {
        oracle.apply(batch).unwrap();
    }
    assert_eq!(rows(&embedded, &oracle), oracle.rows(), "{what}: rows");
    apply(&embedded, directory, FAULTED + 1).unwrap_or_else(|e| panic!("{what}: going on: {e:?}"));
    oracle.apply(&scenario.batches[FAULTED + 1]).unwrap();
    assert_eq!(
        rows(&embedded, &oracle),
        oracle.rows(),
        "{what}: rows of the next batch"
    );
    let history = runtime().block_on(embedded.history(TABLE, None)).unwrap();
    let mut ids: Vec<String> = history
        .iter()
        .filter_map(|line| Some(line.batch_id.clone()?.0))
        .collect();
    ids.sort();
    let expected: Vec<String> = (0..=FAULTED + 1).map(|i| format!("batch-{i}")).collect();
    assert_eq!(ids, expected, "{what}: one version a batch");
    drop(embedded);
    drop(open(directory, None).unwrap());
    let left = left_behind(directory);
    assert!(
        left.is_empty(),
        "{what}: files that no version needs: {left:?}"
    );
    let left = temporary_files(directory);
    assert!(left.is_empty(), "{what}: temporary files: {left:?}");
}

fn rows(embedded: &Embedded, oracle: &Oracle) -> Vec<Row> {
    let reader = embedded.reader();
    let root = reader.root(TABLE).unwrap();
    let read = async {
        let snapshot = reader.snapshot(TABLE, None).await?;
        let mut rows = tidegate_query::read(&root, &snapshot, &ReadOptions::default())?;
        let mut all: Vec<Row> = Vec::new();
        while let Some(batch) = rows.next_batch().await? {
            for row in 0..batch.num_rows() {
                let cell = |(name, _): &(String, _)| {
                    value_at(batch.column_by_name(name).unwrap().as_ref(), row)
                };
                all.push(oracle.visible_columns().iter().map(cell).collect());
            }
        }
        Ok::<_, Error>(all)
    };
    let mut rows = runtime().block_on(read).unwrap();
    rows.sort();
    rows
}

/// What a crash left in the table's directory before anything was run again.
pub(crate) fn left_behind(directory: &Path) -> Vec<String> {
    unreferenced(&directory.join("data/lake").join(TABLE))
}

/// Files of a table that no commit names: those of attempts that never committed, those of committed
/// attempts that no commit's text holds, and temporary ones. Deletion vectors stand in commits by their
/// UUID, so that of them only the attempt can be told.
fn unreferenced(table: &Path) -> Vec<String> {
    let mut files = Vec::new();
    collect(table, table, &mut files);
    let log = |file: &&String| file.starts_with("_delta_log/") && file.ends_with(".json");
    let commits: Vec<String> = files
        .iter()
        .filter(log)
        .map(|file| fs::read_to_string(table.join(file)).unwrap())
        .collect();
    let attempts: BTreeSet<String> = commits
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| {
            let action: serde_json::Value = serde_json::from_str(line).ok()?;
            action
                .get("commitInfo")?
                .get("txnId")?
                .as_str()
                .map(str::to_owned)
        })
        .collect();
    files.retain(|file| {
        let vector = file.starts_with("deletion_vector_");
        let named = vector || commits.iter().any(|text| text.contains(file.as_str()));
        let committed = names::attempt_of(file).is_none_or(|a| attempts.contains(&a.to_string()));
        let log = file.starts_with("_delta_log/") && !file.contains("tidegate-tmp");
        !(log || named && committed)
    });
    files
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            files.push(
                path.strip_prefix(root)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
    }
}

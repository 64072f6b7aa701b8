//! What must hold whatever happened.
//!
//! 1. Each acknowledged batch is in exactly one version, the one that was answered; no batch is in two.
//! 2. A batch that was answered before another was first sent is in an earlier version.
//! 3. A read shows no version older than one that was acknowledged before it, and its sums are that version's.
//! 4. At every version the counters add up to its batches, offsets follow each other without a gap, and the
//!    watermark does not fall.
//! 5. Every file that a version refers to is there, with its size and digest; nothing is left over.
//! 6. Members of the log that applied the same entries hold the same state.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::{Result as Told, TableVersion};
use tidegate_cluster::metadata::{State, TableState, TableStatus};
use tidegate_cluster::{Consensus, Coordinator, CoordinatorOptions};
use tidegate_delta::actions::{Action, AddFile};
use tidegate_delta::log::TableCommit;
use tidegate_delta::store::CheckedStore;
use tidegate_delta::{DeltaLog, TableRoot, TableSnapshot, names};

use super::ledger::{
    BatchRow, KEYS_PER_BATCH, OFFSETS_PER_BATCH, Raise, TABLE, is_batch_file, unseal,
};
use super::log::SimulatedLog;
use super::world::{World, drive, parts_of, told};
use crate::toxic::{Points, Rule, ToxicStore, Toxin};

/// Submissions that fail in the group that takes the table over, so that it has something to clean up.
const FAILED_AFTER_ADOPTION: usize = 10;

/// What a client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The version.
    pub version: TableVersion,
    /// The sum of all counters.
    pub sum: u64,
    /// Batches by their rows.
    pub batches: u64,
}

/// What the table came to.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) versions: u64,
    pub(crate) reads: u64,
}

/// Whether a version is in the log at this moment.
pub(crate) fn is_published(store: &ToxicStore, version: TableVersion) -> bool {
    let location = Path::from(format!("{TABLE}/{}", names::commit(version)));
    let inner = store.inner();
    let head = pin!(inner.head(&location));
    let mut context = Context::from_waker(Waker::noop());
    matches!(head.poll(&mut context), Poll::Ready(Ok(_)))
}

pub(crate) fn is_quarantined(state: &State) -> bool {
    let table = state.table_named(TABLE);
    table.is_some_and(|(_, table)| matches!(table.status, TableStatus::Quarantined { .. }))
}

/// Reads the newest version as a client does: through a node, over the store that lies.
pub(crate) async fn read(coordinator: &Coordinator, store: &ToxicStore) -> Told<Reading> {
    let snapshot = coordinator.snapshot(TABLE).await?;
    let checked = CheckedStore::new(Arc::new(store.clone()));
    let root = TableRoot::new(Arc::new(checked), Path::from(TABLE));
    reading(&root, &snapshot, &mut BTreeMap::new()).await
}

/// The sums of a version; files that were read before are taken from `seen`.
async fn reading(
    root: &TableRoot,
    snapshot: &TableSnapshot,
    seen: &mut BTreeMap<String, u64>,
) -> Told<Reading> {
    let mut reading = Reading {
        version: snapshot.version,
        sum: 0,
        batches: 0,
    };
    for file in snapshot.files.iter() {
        if is_batch_file(&file.path) {
            reading.batches += 1;
        }
        let counted = match seen.get(&file.path) {
            Some(counted) => *counted,
            None => count(root, file).await?,
        };
        seen.insert(file.path.clone(), counted);
        reading.sum += counted;
    }
    Ok(reading)
}

async fn count(root: &TableRoot, file: &AddFile) -> Told<u64> {
    let path = file.relative_path()?;
    let bytes = root.read(&path).await?;
    if i64::try_from(bytes.len()) != Ok(file.size) {
        let message = format!("{path}: has another size than its commit says");
        return Err(tidegate_change::Error::corrupt(message));
    }
    if is_batch_file(&path) {
        unseal::<BatchRow>(&path, &bytes)?;
        return Ok(0);
    }
    Ok(unseal::<BTreeMap<u64, u64>>(&path, &bytes)?.values().sum())
}

/// The table as its log alone tells it.
#[derive(Debug, Default)]
struct LogWalk {
    batches: BTreeMap<String, TableVersion>,
    readings: BTreeMap<TableVersion, Reading>,
    referred: BTreeSet<String>,
    latest: TableVersion,
}

/// What may lie about that no version refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftovers {
    None,
    Staged,
    Any,
}

/// Checks the table and the state of a log, whatever the clients of the world were told.
pub(crate) fn check_table(
    world: &World,
    log: &SimulatedLog,
    leftovers: Leftovers,
) -> Result<(), String> {
    let table = walked(world)?;
    if !log.replicas_agree().map_err(told)? {
        return Err("two members of the log hold different states".into());
    }
    let state = log.state();
    let (_, known) = state.table_named(TABLE).ok_or("the table is gone")?;
    check_state(known, &table)?;
    for id in ["c0-0", "c0-1"] {
        if !table.batches.contains_key(id) {
            return Err(format!("batch {id} is lost"));
        }
    }
    check_leftovers(world, &table, leftovers)
}

fn walked(world: &World) -> Result<LogWalk, String> {
    let root = TableRoot::new(world.store.inner(), Path::from(TABLE));
    let log = DeltaLog::new(root);
    drive(async move { walk(&log).await })?
}

/// Checks a world whose faults have ended.
pub(crate) fn check(world: &World) -> Result<Checked, String> {
    let table = walked(world)?;
    check_batches(world, &table)?;
    check_order(world)?;
    for reading in &world.clients.reads {
        if table.readings.get(&reading.version) != Some(reading) {
            return Err(format!(
                "a read saw {reading:?}, which that version never held"
            ));
        }
    }
    if !world.log.replicas_agree().map_err(told)? {
        return Err("two members of the log hold different states".into());
    }
    let state = world.log.state();
    let (_, known) = state.table_named(TABLE).ok_or("the table is gone")?;
    if !world.is_quarantined() {
        check_state(known, &table)?;
        check_leftovers(world, &table, leftovers_of(world))?;
    }
    Ok(Checked {
        versions: table.latest.0 + 1,
        reads: world.clients.reads.len() as u64,
    })
}

async fn walk(log: &DeltaLog) -> Result<LogWalk, String> {
    let latest = log.latest_version().await.map_err(told)?;
    let mut table = LogWalk {
        latest: latest.ok_or("no table")?,
        ..LogWalk::default()
    };
    let (mut snapshot, mut seen): (Option<TableSnapshot>, _) = (None, BTreeMap::new());
    let (mut offsets, mut time_ms) = (BTreeMap::new(), i64::MIN);
    for version in (0..=table.latest.0).map(TableVersion) {
        let commit = log.read_commit(version).await;
        let commit = commit.map_err(|e| format!("the log has a hole: {}", told(e)))?;
        if is_strangers_append(&commit) {
            // What a stranger appended is not the workload's.
            table.latest = version;
            return Ok(table);
        }
        check_commit(&commit, &mut table, &mut offsets, &mut time_ms)?;
        let next = match &snapshot {
            None => TableSnapshot::first(&commit.actions),
            Some(snapshot) => snapshot.advance(version, &commit.actions),
        };
        let next = next.map_err(told)?;
        let read = reading(log.root(), &next, &mut seen).await;
        let read = read.map_err(|e| format!("version {version}: {}", told(e)))?;
        check_sums(version, &read, &table)?;
        check_watermark(version, &next, &read)?;
        table
            .referred
            .extend(next.files.iter().map(|f| f.path.clone()));
        table.readings.insert(version, read);
        snapshot = Some(next);
    }
    Ok(table)
}

fn is_strangers_append(commit: &TableCommit) -> bool {
    let is_own = commit.info().is_some_and(|info| info.txn_id.is_some());
    !is_own && commit.actions.iter().any(|a| matches!(a, Action::Add(_)))
}

fn check_commit(
    commit: &TableCommit,
    table: &mut LogWalk,
    offsets: &mut BTreeMap<String, i64>,
    time_ms: &mut i64,
) -> Result<(), String> {
    let version = commit.version;
    let info = commit
        .info()
        .ok_or_else(|| format!("version {version} says nothing of itself"))?;
    let time = info.in_commit_timestamp.unwrap_or(i64::MIN);
    if time <= *time_ms {
        return Err(format!("version {version}: its time does not rise"));
    }
    *time_ms = time;
    let Some(result) = info.batch_result().map_err(told)? else {
        return Ok(());
    };
    if result.version != version {
        let says = result.version;
        return Err(format!(
            "version {version} holds the answer of version {says}"
        ));
    }
    let id = result.batch_id.0;
    if let Some(other) = table.batches.insert(id.clone(), version) {
        return Err(format!("batch {id} is in versions {other} and {version}"));
    }
    for action in &commit.actions {
        let Action::Txn(txn) = action else { continue };
        let known = offsets.entry(txn.app_id.clone()).or_insert(0);
        if txn.version != *known + OFFSETS_PER_BATCH {
            let next = txn.version;
            return Err(format!("version {version}: offset {next} follows {known}"));
        }
        *known = txn.version;
    }
    Ok(())
}

fn check_sums(version: TableVersion, read: &Reading, table: &LogWalk) -> Result<(), String> {
    let batches = table.batches.len() as u64;
    if read.batches == batches && read.sum == batches * KEYS_PER_BATCH {
        return Ok(());
    }
    Err(format!(
        "version {version}: {batches} batches are in its log, {} in its rows, and its counters add up to {} instead of {}",
        read.batches,
        read.sum,
        batches * KEYS_PER_BATCH
    ))
}

fn check_watermark(
    version: TableVersion,
    snapshot: &TableSnapshot,
    read: &Reading,
) -> Result<(), String> {
    let Some(progress) = snapshot.domains.get("tidegate.progress") else {
        return match read.batches {
            0 => Ok(()),
            _ => Err(format!("version {version}: no watermark")),
        };
    };
    let expected = serde_json::json!({"watermark": read.batches}).to_string();
    match *progress == expected {
        true => Ok(()),
        false => Err(format!(
            "version {version}: the watermark is {progress}, not {expected}"
        )),
    }
}

fn check_batches(world: &World, table: &LogWalk) -> Result<(), String> {
    for batch in &world.clients.batches {
        let id = &batch.raise.id;
        let version = table.batches.get(id).copied();
        let acked = batch.acked.as_ref().map(|(_, result)| result.version);
        if acked.is_some() && acked != version {
            return Err(format!(
                "batch {id} was told version {acked:?} and is in {version:?}"
            ));
        }
        if batch.invoked.is_none() && version.is_some() {
            return Err(format!("batch {id} is in the table and was never sent"));
        }
    }
    if table.batches.is_empty() && !world.plan.foreign_append {
        return Err("no batch is in the table: the run shows nothing".into());
    }
    Ok(())
}

fn check_order(world: &World) -> Result<(), String> {
    let acked = || world.clients.batches.iter().filter(|b| b.acked.is_some());
    for earlier in acked() {
        for later in acked() {
            let (Some((told, first)), Some((_, second)), Some(sent)) =
                (&earlier.acked, &later.acked, later.invoked)
            else {
                continue;
            };
            if *told < sent && first.version >= second.version {
                return Err(format!(
                    "batch {} was answered before batch {} was sent, and is behind it",
                    earlier.raise.id, later.raise.id
                ));
            }
        }
    }
    Ok(())
}

/// The replicated state and the log tell the same.
fn check_state(known: &TableState, table: &LogWalk) -> Result<(), String> {
    if known.head != Some(table.latest) || known.pending.is_some() {
        let (head, latest) = (known.head, table.latest);
        return Err(format!(
            "the head is {head:?}, the log ends at version {latest}"
        ));
    }
    if !known.attempts.is_empty() || !known.uncollected.is_empty() {
        let (open, left) = (known.attempts.len(), known.uncollected.len());
        return Err(format!(
            "{open} attempts are open and {left} not cleaned up after recovery"
        ));
    }
    let marks: BTreeMap<_, _> = known
        .marks
        .iter()
        .map(|m| (m.id.0.clone(), m.version))
        .collect();
    match marks == table.batches {
        true => Ok(()),
        false => Err(format!(
            "marks {marks:?} differ from batches {:?}",
            table.batches
        )),
    }
}

fn leftovers_of(world: &World) -> Leftovers {
    match world.has_zombies() {
        // What the old process of a node writes after its attempt was closed stays for vacuum (K17).
        true => Leftovers::Any,
        // A staged commit that could not be deleted stays: nobody looks for it behind `Finalize`.
        false if !world.plan.rules.is_empty() => Leftovers::Staged,
        false => Leftovers::None,
    }
}

/// Nothing lies about that no version refers to, but what faults have left there.
fn check_leftovers(world: &World, table: &LogWalk, allowed: Leftovers) -> Result<(), String> {
    let inner = world.store.inner();
    let prefix = Path::from(TABLE);
    let listed = drive(async move { inner.list(Some(&prefix)).try_collect::<Vec<_>>().await })?;
    let loose = world.store.loose();
    for object in listed.map_err(|e| e.to_string())? {
        let path = object
            .location
            .as_ref()
            .strip_prefix(TABLE)
            .unwrap_or_default();
        let path = path.trim_start_matches('/');
        let is_staged = path.contains("_tidegate/staged");
        let is_known = path.starts_with("_delta_log") || table.referred.contains(path);
        let is_allowed = allowed == Leftovers::Any || is_staged && allowed == Leftovers::Staged;
        if !is_known && !is_allowed && !loose.contains(&object.location) {
            return Err(format!("{path} is left over"));
        }
    }
    Ok(())
}

/// All metadata is lost: another group takes the table from its log alone.
pub(crate) fn adopt(world: &mut World, before: &Checked) -> Result<(), String> {
    let points = Arc::new(Points::default());
    let log = SimulatedLog::new(2, before.versions, points).map_err(told)?;
    let consensus: Arc<dyn Consensus> = Arc::new(log.clone());
    let parts = parts_of(world, consensus, 0);
    let start = Coordinator::start(parts, CoordinatorOptions::default());
    let coordinator = drive(start)?.map_err(told)?;
    drive(coordinator.adopt(TABLE, None))?.map_err(|e| format!("not adopted: {}", told(e)))?;
    check_adopted(&world.log.state(), &log.state())?;
    for batch in 0..world.clients.batches.len() {
        let request = world.clients.request(batch)?;
        let answer = drive(coordinator.submit(&request))?;
        let answer = answer.map_err(|e| format!("after adoption: {}", told(e)))?;
        let acked = world
            .clients
            .batches
            .get(batch)
            .and_then(|b| b.acked.as_ref());
        if acked.is_some_and(|(_, known)| known.version != answer.version) {
            return Err(format!(
                "after adoption a batch is answered {}",
                answer.version
            ));
        }
    }
    for n in 0..=FAILED_AFTER_ADOPTION {
        let data = Rule::new(Toxin::Fails).keys_with("-100.parquet").doses(1);
        if n < FAILED_AFTER_ADOPTION {
            world.store.poison(vec![data]);
        }
        let raise = Raise::new(format!("adopted-{n}"), n as u64);
        let request = raise
            .request(&format!("adopted{n}"), Some(0))
            .map_err(told)?;
        let answer = drive(coordinator.submit(&request))?;
        world.store.heal();
        if answer.is_ok() != (n == FAILED_AFTER_ADOPTION) {
            return Err(format!("after adoption a submission came to {answer:?}"));
        }
    }
    check_batches(world, &walked(world)?)
}

fn check_adopted(before: &State, after: &State) -> Result<(), String> {
    let table = |state: &State| {
        let found = state.table_named(TABLE).map(|(_, table)| Arc::clone(table));
        found.ok_or_else(|| "the table is gone".to_owned())
    };
    let (before, after) = (table(before)?, table(after)?);
    let same = before.marks == after.marks
        && before.offsets == after.offsets
        && before.watermark == after.watermark
        && before.head == after.head
        && before.head_digest == after.head_digest;
    match same {
        true => Ok(()),
        false => Err(format!(
            "adoption brings back {after:?} instead of {before:?}"
        )),
    }
}

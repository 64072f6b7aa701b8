//! The workload: counters that every batch raises by one, and one row that names the batch.
//!
//! A batch reads the counters that it raises from the files of the version that it is executed on, so that a
//! batch on a stale version, one that is lost and one that is in twice all show in the sums.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::ObjectStore;
use object_store::path::Path;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_apply::work::{SourceFile, SourceInput};
use tidegate_apply::{ForeignWork, Integration, Manifest, Work};
use tidegate_change::spec::{ColumnSpec, TableSpec};
use tidegate_change::{BatchId, Code, Counters, Digest, Error, Result, TableVersion};
use tidegate_cluster::metadata::{BatchKey, OffsetRange};
use tidegate_cluster::{BatchRequest, Cancellation, Stores, Workers};
use tidegate_delta::actions::{Action, AddFile, DomainMetadata};
use tidegate_delta::names::{self, FileLevel};
use tidegate_delta::store::CheckedStore;
use tidegate_delta::{TableRoot, TableSnapshot};

/// The table, and where it lies.
pub const TABLE: &str = "ledger";
/// Counters that a batch raises.
pub const KEYS_PER_BATCH: u64 = 4;
/// Offsets of a batch.
pub const OFFSETS_PER_BATCH: i64 = 10;
/// Counters of the table.
const KEYS: u64 = 12;
/// Files that hold counters.
const BUCKETS: u64 = 3;
/// Number of the file that names the batch.
const BATCH_FILE: u32 = 100;

/// What a batch does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raise {
    /// The batch.
    pub id: String,
    /// The counters.
    pub keys: Vec<u64>,
}

impl Raise {
    /// A batch whose counters follow from its number.
    #[must_use]
    pub fn new(id: String, number: u64) -> Self {
        let keys = (0..KEYS_PER_BATCH).map(|n| (number * 5 + n * 7) % KEYS);
        Self {
            id,
            keys: keys.collect(),
        }
    }

    fn keys_of(&self, bucket: u64) -> Vec<u64> {
        let keys = self.keys.iter().copied();
        keys.filter(|key| key % BUCKETS == bucket).collect()
    }

    /// The batch as it is submitted, with the offsets of its place in its source, or without.
    ///
    /// # Errors
    /// When it has no JSON form.
    pub fn request(&self, source: &str, place: Option<i64>) -> Result<BatchRequest> {
        let bytes = json(self)?;
        let range = place.map(|place| OffsetRange {
            from: Some(place * OFFSETS_PER_BATCH),
            to: (place + 1) * OFFSETS_PER_BATCH,
        });
        let partition = format!("{source}/0");
        Ok(BatchRequest {
            table: TABLE.into(),
            key: BatchKey {
                id: BatchId(self.id.clone()),
                input_digest: Digest::of(&bytes),
                sequence: None,
                logical_time_ms: None,
            },
            sources: vec![SourceFile {
                name: "raise.json".into(),
                input: SourceInput::Bytes(bytes.into()),
                format: None,
            }],
            offsets: range.map(|range| (partition, range)).into_iter().collect(),
            dry_run: false,
            cancellation: Cancellation::default(),
            observer: None,
        })
    }
}

/// The table's spec with that many further columns.
///
/// # Errors
/// When the spec is none.
pub fn spec(columns: usize) -> Result<TableSpec> {
    let text = "name: ledger\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  - {name: seq, type: long}\n";
    let mut spec = TableSpec::from_yaml(text)?;
    let further = (0..columns).map(|n| ColumnSpec {
        name: format!("note{n}"),
        type_name: "string".into(),
        default: None,
        encoding: None,
        scale: None,
    });
    if let Some(schema) = &mut spec.schema {
        schema.extend(further);
    }
    Ok(spec)
}

/// All tables of a simulation lie in one store, which is looked through as a node does.
#[derive(Debug)]
pub struct OneStore {
    store: Arc<dyn ObjectStore>,
}

impl OneStore {
    /// The store, with the checks that nodes put around theirs.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store: Arc::new(CheckedStore::new(store)),
        }
    }
}

impl Stores for OneStore {
    fn open(&self, location: &str) -> Result<TableRoot> {
        Ok(TableRoot::new(
            Arc::clone(&self.store),
            Path::from(location),
        ))
    }
}

/// Executes batches of the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub struct LedgerWorkers;

#[async_trait]
impl Workers for LedgerWorkers {
    async fn execute(&self, work: Work) -> Result<Manifest> {
        let raise = raise_of(&work)?;
        let version = work.snapshot.version.next();
        let batches = batch_files(&work.snapshot).count() as u64;
        let watermark = serde_json::json!(batches + 1);
        let progress = serde_json::json!({"watermark": watermark}).to_string();
        let mut manifest = Manifest {
            actions: vec![Action::Domain(DomainMetadata::set(
                "tidegate.progress",
                progress,
            ))],
            watermark,
            ..Manifest::default()
        };
        for bucket in 0..BUCKETS {
            raise_bucket(&work, &raise, bucket, &mut manifest).await?;
        }
        let row = BatchRow {
            id: raise.id.clone(),
            version,
        };
        let add = write(&work, BATCH_FILE, &row).await?;
        manifest.written.push(add.path.clone());
        manifest.actions.push(Action::Add(add));
        manifest.counters = Counters {
            events: KEYS_PER_BATCH,
            updated: KEYS_PER_BATCH,
            files_written: manifest.written.len() as u64,
            ..Counters::default()
        };
        Ok(manifest)
    }

    /// Rows of others have no place in the ledger: it stands still then.
    async fn integrate(&self, _: ForeignWork) -> Result<Integration> {
        let message = "a stranger's rows are not taken in";
        Err(Error::new(Code::ForeignRewrite, message))
    }
}

/// The row that names a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRow {
    /// The batch.
    pub id: String,
    /// The version that it was executed for; a rebase moves it on.
    pub version: TableVersion,
}

fn raise_of(work: &Work) -> Result<Raise> {
    match work.sources.first().map(|source| &source.input) {
        Some(SourceInput::Bytes(bytes)) => serde_json::from_slice(bytes)
            .map_err(|e| Error::internal("a batch cannot be read").with_source(e)),
        _ => Err(Error::internal("a batch has no bytes")),
    }
}

async fn raise_bucket(
    work: &Work,
    raise: &Raise,
    bucket: u64,
    manifest: &mut Manifest,
) -> Result<()> {
    let keys = raise.keys_of(bucket);
    if keys.is_empty() {
        return Ok(());
    }
    let number = u32::try_from(bucket).unwrap_or_default();
    let mut files = work.snapshot.files.iter();
    let old = files.find(|file| number_of(&file.path) == Some(number));
    let mut counters: BTreeMap<u64, u64> = match old {
        Some(file) => {
            let path = file.relative_path()?;
            unseal(&path, &work.root.read(&path).await?)?
        }
        None => BTreeMap::new(),
    };
    for key in keys {
        *counters.entry(key).or_default() += 1;
    }
    let add = write(work, number, &counters).await?;
    if let Some(old) = old {
        let remove = old.to_remove(work.now_ms, true);
        manifest.actions.push(Action::Remove(remove));
    }
    manifest.written.push(add.path.clone());
    manifest.actions.push(Action::Add(add));
    Ok(())
}

async fn write<T: Serialize>(work: &Work, number: u32, value: &T) -> Result<AddFile> {
    let path = names::data_file(FileLevel::Fresh, work.attempt, number);
    let bytes = seal(value)?;
    let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    work.root.write(&path, bytes).await?;
    Ok(AddFile {
        path,
        size,
        modification_time: work.now_ms,
        data_change: true,
        stats: Some("{\"numRecords\":1}".into()),
        ..AddFile::default()
    })
}

/// The files that name batches.
pub fn batch_files(snapshot: &TableSnapshot) -> impl Iterator<Item = &Arc<AddFile>> {
    let files = snapshot.files.iter();
    files.filter(|file| number_of(&file.path) == Some(BATCH_FILE))
}

/// Whether a file names a batch.
#[must_use]
pub fn is_batch_file(path: &str) -> bool {
    number_of(path) == Some(BATCH_FILE)
}

/// The number in a file's name.
fn number_of(path: &str) -> Option<u32> {
    let stem = path.strip_suffix(".parquet")?;
    stem.rsplit_once('-')?.1.parse().ok()
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::internal("no JSON form").with_source(e))
}

/// A value with its digest in front, so that damage shows as it does in the product's own formats.
fn seal<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let body = json(value)?;
    let mut sealed = Digest::of(&body).to_hex().into_bytes();
    sealed.push(b'\n');
    sealed.extend(body);
    Ok(sealed)
}

/// The value of a file.
///
/// # Errors
/// `CORRUPT` when it is not what was written.
pub fn unseal<T: DeserializeOwned>(path: &str, sealed: &[u8]) -> Result<T> {
    let damaged = || Error::new(Code::Corrupt, format!("{path}: does not match its digest"));
    let end = sealed
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or_else(damaged)?;
    let (digest, body) = (
        sealed.get(..end).unwrap_or_default(),
        sealed.get(end + 1..).unwrap_or_default(),
    );
    if Digest::of(body).to_hex().as_bytes() != digest {
        return Err(damaged());
    }
    serde_json::from_slice(body).map_err(|e| damaged().with_source(e))
}

//! What an owner of buckets did, and its way to the node that composes the commit.
//!
//! What has an entry for each row travels as record batches, the rest as one small manifest.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, FixedSizeBinaryArray, RecordBatch, StringArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt8Type, UInt32Type, UInt64Type};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_change::{Error, IndexHash, Result};
use tidegate_delta::dv::DeletionVector;
use tidegate_index::{Change, Changes, FileKind};

use crate::attempt_output::OwnerFiles;
use crate::dead_rows::Dead;
use crate::merging::Merged;
use crate::output::Placed;
use crate::plan::BatchTable;
use crate::progress::{sequence_from_json, sequence_to_json};

/// Bytes of vectors that travel in one record batch, about.
const VECTORS_BYTES: usize = 4 << 20;
/// Bytes of an index hash.
const HASH_BYTES: i32 = 16;

/// What an owner did to its buckets.
#[derive(Debug)]
pub struct MergePart {
    pub(crate) table: BatchTable,
    pub(crate) merged: Merged,
    /// Whether the rules ask for change rows.
    pub(crate) wants_feed: bool,
    /// Files whose dead rows were not given yet; None before the first.
    dead_paths: Option<BTreeSet<Arc<str>>>,
    /// Index changes that were not given yet; None before the first.
    changes: Option<Changes>,
}

/// The small rest of a part, for the node that composes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartialManifest {
    /// What was written.
    pub files: OwnerFiles,
    /// Greatest sequence of the events that were taken, as JSON (R-W1).
    pub max_sequence: Value,
    /// A key with a tie, as JSON (R-T5).
    pub tie_example: Option<Value>,
    /// Unavailable values that could not be carried (R-K6).
    pub unresolved: u64,
}

/// What a record batch of a part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Dead positions by data file.
    DeadRows,
    /// Where the state of keys is.
    Places,
    /// Quarantined events.
    Rejects,
}

/// A record batch of a part.
#[derive(Clone, Debug, PartialEq)]
pub struct PartBatch {
    /// What it holds.
    pub kind: PartKind,
    /// The rows.
    pub rows: RecordBatch,
}

/// What decides whether the commit of a batch needs change files (R-C8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedOutline {
    /// Whether the table's mode asks for them.
    pub is_wanted: bool,
    /// Whether stored rows die.
    pub has_dead: bool,
    /// Whether rows are written.
    pub has_adds: bool,
    /// Whether visible rows change.
    pub has_changes: bool,
}

/// What becomes of the change rows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedDecision {
    /// They are written.
    Write,
    /// Readers infer them.
    Leave,
    /// There are none: no change of the commit is visible (R-C9).
    Invisible,
}

/// Decides for all parts of a batch.
#[must_use]
pub fn decide_feed(outlines: &[FeedOutline]) -> FeedDecision {
    let any = |of: fn(&FeedOutline) -> bool| outlines.iter().any(of);
    if !any(|outline| outline.is_wanted) || !any(|outline| outline.has_dead) {
        // Inserts alone are inferred right by every reader.
        return FeedDecision::Leave;
    }
    if !any(|outline| outline.has_changes) {
        return FeedDecision::Invisible;
    }
    match any(|outline| outline.has_adds) {
        true => FeedDecision::Write,
        // So are deletes alone.
        false => FeedDecision::Leave,
    }
}

impl PartKind {
    /// All kinds, in the order in which parts are sent.
    pub const ALL: [Self; 3] = [Self::DeadRows, Self::Places, Self::Rejects];
}

impl MergePart {
    pub(crate) fn new(table: BatchTable, merged: Merged, wants_feed: bool) -> Self {
        Self {
            table,
            merged,
            wants_feed,
            dead_paths: None,
            changes: None,
        }
    }

    /// What the decision on change files must know of this part.
    #[must_use]
    pub fn outline(&self) -> FeedOutline {
        self.merged.outline(self.wants_feed)
    }

    /// Writes the change rows, or forgets them.
    ///
    /// # Errors
    /// Failures of storage.
    pub async fn finish_feed(&mut self, decision: FeedDecision) -> Result<()> {
        let view = Arc::clone(&self.table.view);
        self.merged.output.finish_feed(&view, decision).await
    }

    /// The next rows of a kind, of bounded size; None behind the last. Rows are given once.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn next_batch(&mut self, kind: PartKind) -> Result<Option<RecordBatch>> {
        match kind {
            PartKind::DeadRows => {
                let all = || self.merged.output.dead.paths();
                let mut paths = self.dead_paths.take().unwrap_or_else(all);
                let rows = self.dead_rows(&mut paths)?;
                self.dead_paths = Some(paths);
                Ok(rows)
            }
            PartKind::Places => {
                let mut changes = match self.changes.take() {
                    Some(changes) => changes,
                    None => self.merged.output.take_run().into_changes().await?,
                };
                let next = changes.next().await?;
                self.changes = Some(changes);
                match next.is_empty() {
                    true => Ok(None),
                    false => places_batch(&next).map(Some),
                }
            }
            PartKind::Rejects => self.merged.rejects.pop(),
        }
    }

    /// The small rest, once the feed is finished.
    ///
    /// # Errors
    /// `INTERNAL` when a sequence has another type than the table's.
    pub fn manifest(&mut self) -> Result<PartialManifest> {
        let merged = &mut self.merged;
        let encoder = &self.table.view.encoder;
        Ok(PartialManifest {
            files: merged.output.files(),
            max_sequence: sequence_to_json(encoder, merged.max_sequence.as_ref())?,
            tie_example: merged.tie_example.take(),
            unresolved: merged.unresolved,
        })
    }

    /// Takes the vectors of some files off the list.
    fn dead_rows(&self, paths: &mut BTreeSet<Arc<str>>) -> Result<Option<RecordBatch>> {
        let (mut names, mut vectors, mut named, mut bytes) = (vec![], vec![], vec![], 0);
        while bytes < VECTORS_BYTES
            && let Some(path) = paths.pop_first()
        {
            let dead = self.merged.output.dead.of(&path)?;
            let vector = dead.positions.to_bytes()?;
            bytes += vector.len();
            names.push(path);
            vectors.push(vector);
            named.push(dead.named);
        }
        if names.is_empty() {
            return Ok(None);
        }
        let vectors = vectors.iter().map(|vector| vector.as_ref());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(names)),
            Arc::new(BinaryArray::from_iter_values(vectors)),
            Arc::new(UInt64Array::from(named)),
        ];
        batch(&dead_schema(), columns).map(Some)
    }
}

impl Merged {
    /// What the decision on change files must know.
    pub(crate) fn outline(&self, wants_feed: bool) -> FeedOutline {
        FeedOutline {
            is_wanted: wants_feed,
            has_dead: self.output.has_dead(),
            has_adds: self.output.has_adds(),
            has_changes: self.output.has_feed(),
        }
    }

    /// Takes what a part says beside its rows.
    ///
    /// # Errors
    /// `CORRUPT` when a sequence has another type than the table's.
    pub(crate) fn take_manifest(
        &mut self,
        table: &BatchTable,
        manifest: PartialManifest,
    ) -> Result<()> {
        let greatest = sequence_from_json(&table.view.encoder, &manifest.max_sequence)?;
        self.max_sequence = self.max_sequence.take().max(greatest);
        self.tie_example = self.tie_example.take().or(manifest.tie_example);
        self.unresolved += manifest.unresolved;
        self.output.take_files(manifest.files);
        Ok(())
    }

    /// Takes rows of a part.
    ///
    /// # Errors
    /// `CORRUPT` when they have another schema; `STORAGE_FULL` or what else the disk says.
    pub(crate) async fn take_batch(&mut self, own: PartBatch) -> Result<()> {
        match own.kind {
            PartKind::DeadRows => self.take_dead(&own.rows),
            PartKind::Places => self.output.take_places(placed(&own.rows)?).await,
            PartKind::Rejects => self.rejects.push(own.rows),
        }
    }

    fn take_dead(&mut self, rows: &RecordBatch) -> Result<()> {
        check(rows, &dead_schema())?;
        let (paths, vectors) = (rows.column(0), rows.column(1));
        let (paths, vectors) = (paths.as_string::<i32>(), vectors.as_binary::<i32>());
        let named = rows.column(2).as_primitive::<UInt64Type>();
        for row in 0..rows.num_rows() {
            let path = paths.value(row);
            let dead = Dead {
                positions: DeletionVector::from_bytes(path, vectors.value(row))?,
                named: named.value(row),
            };
            self.output.dead.add_dead(path.into(), &dead)?;
        }
        Ok(())
    }
}

fn dead_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("positions", DataType::Binary, false),
        Field::new("named", DataType::UInt64, false),
    ]))
}

/// A place of a key: 0 nowhere, 1 a row of a data file, 2 a tombstone of a state file.
fn places_schema() -> SchemaRef {
    let file = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("hash", DataType::FixedSizeBinary(HASH_BYTES), false),
        Field::new("state", DataType::UInt8, false),
        Field::new("file", file, true),
        Field::new("row", DataType::UInt32, false),
    ]))
}

fn places_batch(changes: &[Change]) -> Result<RecordBatch> {
    let hashes = changes.iter().map(|change| change.hash.0.to_be_bytes());
    let hashes = FixedSizeBinaryArray::try_from_iter(hashes)
        .map_err(|e| Error::internal("index hashes cannot be sent").with_source(e))?;
    let file = |change: &Change| {
        change
            .place
            .as_ref()
            .map(|(file, _)| Arc::clone(&file.path))
    };
    let files: arrow::array::DictionaryArray<UInt32Type> = {
        let mut builder = arrow::array::StringDictionaryBuilder::<UInt32Type>::new();
        for change in changes {
            builder.append_option(file(change));
        }
        builder.finish()
    };
    let state = |change: &Change| match &change.place {
        None => 0,
        Some((file, _)) if file.kind == FileKind::Data => 1,
        Some(_) => 2,
    };
    let row = |change: &Change| change.place.as_ref().map_or(0, |(_, row)| *row);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(hashes),
        Arc::new(UInt8Array::from_iter_values(changes.iter().map(state))),
        Arc::new(files),
        Arc::new(UInt32Array::from_iter_values(changes.iter().map(row))),
    ];
    batch(&places_schema(), columns)
}

fn placed(rows: &RecordBatch) -> Result<Vec<(IndexHash, Placed)>> {
    check(rows, &places_schema())?;
    let wrong = || Error::corrupt("places of keys that contradict themselves");
    let hashes = rows.column(0).as_fixed_size_binary();
    let states = rows.column(1).as_primitive::<UInt8Type>();
    let files = rows.column(2).as_dictionary::<UInt32Type>();
    let names = cast(files.values(), &DataType::Utf8).map_err(|e| wrong().with_source(e))?;
    let names: Vec<Option<Arc<str>>> = names
        .as_string::<i32>()
        .iter()
        .map(|name| name.map(Arc::from))
        .collect();
    let positions = rows.column(3).as_primitive::<UInt32Type>();
    (0..rows.num_rows())
        .map(|row| {
            let hash = <[u8; 16]>::try_from(hashes.value(row)).map_err(|_| wrong())?;
            let name = || {
                let key = files.key(row).ok_or_else(wrong)?;
                names.get(key).cloned().flatten().ok_or_else(wrong)
            };
            let place = match states.value(row) {
                0 => Placed::Gone,
                1 => Placed::Row(name()?, positions.value(row)),
                2 => Placed::Tombstone(name()?, positions.value(row)),
                _ => return Err(wrong()),
            };
            Ok((IndexHash(u128::from_be_bytes(hash)), place))
        })
        .collect()
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|e| Error::internal("a part cannot be sent").with_source(e))
}

fn check(rows: &RecordBatch, schema: &SchemaRef) -> Result<()> {
    match rows.schema_ref().fields() == schema.fields() {
        true => Ok(()),
        false => Err(Error::corrupt("a part with rows of another schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_files_are_written_where_rows_die_and_others_come() {
        let outline = |has_dead, has_adds, has_changes| FeedOutline {
            is_wanted: true,
            has_dead,
            has_adds,
            has_changes,
        };
        let decide = |outlines: &[FeedOutline]| decide_feed(outlines);
        assert_eq!(decide(&[outline(true, true, true)]), FeedDecision::Write);
        assert_eq!(decide(&[outline(true, false, true)]), FeedDecision::Leave);
        assert_eq!(decide(&[outline(false, true, true)]), FeedDecision::Leave);
        assert_eq!(
            decide(&[outline(true, true, false)]),
            FeedDecision::Invisible
        );
        let apart = [outline(true, false, true), outline(false, true, true)];
        assert_eq!(decide(&apart), FeedDecision::Write, "decided for all parts");
        let unwanted = FeedOutline {
            is_wanted: false,
            ..outline(true, true, true)
        };
        assert_eq!(decide(&[unwanted]), FeedDecision::Leave);
    }
}

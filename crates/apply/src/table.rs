//! The table as one batch sees it: layout, rules' numbers, index and the files that rows are read from.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::datatypes::SchemaRef;
use tidegate_change::sequence::SequenceEncoder;
use tidegate_change::spec::{ResolvedSpec, TableLayout};
use tidegate_change::{AttemptId, Error, Result};
use tidegate_delta::actions::AddFile;
use tidegate_delta::{TableRoot, TableSchema, TableSnapshot};
use tidegate_index::{FileKind, FileRef, Index, IndexManifest, Presence, RunNames};
use tidegate_merge::FileBounds;

use crate::progress::{self, Progress, StateManifest, sequence_from_json};

/// Everything that the parts of one attempt share.
#[derive(Debug)]
pub(crate) struct TableView {
    /// Where the table lies.
    pub root: TableRoot,
    /// The version that the batch builds on.
    pub snapshot: Arc<TableSnapshot>,
    /// The schema that files are written by: the batch's own where it evolved.
    pub schema: TableSchema,
    /// The spec.
    pub resolved: ResolvedSpec,
    /// The layout.
    pub layout: TableLayout,
    /// Schema of data files with hidden columns.
    pub file_schema: SchemaRef,
    /// Sequences.
    pub encoder: SequenceEncoder,
    /// The numbers before the batch.
    pub progress: Progress,
    /// Hidden state before the batch.
    pub states: StateManifest,
    /// The index before the batch.
    pub index: Index,
    /// Whether the index is not that of the version but one that the attempt rebuilt.
    pub is_rebuilt: bool,
    /// Names of the runs that the attempt writes.
    pub run_names: RunNames,
    /// Tombstones that arrived before this moment are purged (R-G2).
    pub purged_before_ms: Option<i64>,
    /// The attempt.
    pub attempt: AttemptId,
    /// The batch's clock.
    pub now_ms: i64,
    /// Names of the batch's sources.
    pub sources: Vec<Arc<str>>,
    /// Number of the attempt's first file on this node; numbers of change files begin with it too.
    pub first_file: u32,
    next_file: AtomicU32,
}

/// What the attempt is, beside the table.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// The batch's clock, ms.
    pub now_ms: i64,
    /// Names of the batch's sources.
    pub sources: Vec<Arc<str>>,
    /// Number of its first file on this node.
    pub first_file: u32,
}

impl TableView {
    /// Reads what the version says of itself.
    ///
    /// # Errors
    /// `CORRUPT` when a domain of the table contradicts the spec.
    pub(crate) fn open(
        root: &TableRoot,
        snapshot: &Arc<TableSnapshot>,
        schema: TableSchema,
        spec: (ResolvedSpec, TableLayout),
        attempt: Attempt,
    ) -> Result<Self> {
        let (resolved, layout) = spec;
        let sequence = layout
            .sequence_type
            .clone()
            .unwrap_or(arrow::datatypes::DataType::Int64);
        let progress: Progress = progress::read_domain(snapshot, progress::PROGRESS)?;
        let manifest = match snapshot.domains.get(progress::INDEX) {
            Some(text) => IndexManifest::from_json(text)?,
            None => IndexManifest::with_seed(index_seed(&snapshot.metadata.id)),
        };
        let retention = resolved.spec.tombstone_retention.ms();
        // Deletes that a clock which was set back dates before the last purge would be purged unseen: the
        // table's time does not run backwards.
        let reached = progress
            .purged_before_ms
            .map(|before| before.saturating_add(retention.unwrap_or(0)));
        let now_ms = reached.map_or(attempt.now_ms, |reached| reached.max(attempt.now_ms));
        let cutoff = retention.map(|ms| now_ms.saturating_sub(ms));
        Ok(Self {
            file_schema: layout.file_schema(),
            encoder: SequenceEncoder::new(&sequence)?,
            purged_before_ms: cutoff.max(progress.purged_before_ms),
            states: progress::read_domain(snapshot, progress::STATE)?,
            index: Index::new(Arc::clone(root.store()), root.path().clone(), manifest),
            is_rebuilt: false,
            run_names: RunNames::new(attempt.id),
            root: root.clone(),
            snapshot: Arc::clone(snapshot),
            schema,
            resolved,
            layout,
            progress,
            attempt: attempt.id,
            now_ms,
            sources: attempt.sources,
            first_file: attempt.first_file,
            next_file: AtomicU32::new(attempt.first_file),
        })
    }

    /// A number for the next file of the attempt.
    pub(crate) fn next_file(&self) -> u32 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// What the version says of a file that the index names.
    #[must_use]
    pub(crate) fn presence(&self, file: &FileRef) -> Presence {
        match file.kind {
            FileKind::Data if self.snapshot.files.contains(&file.path) => Presence::Present,
            FileKind::State if self.states.files.iter().any(|f| f.path == *file.path) => {
                Presence::Present
            }
            // A truncate drops whole files, and a purge whole state files, without naming each key.
            FileKind::Data | FileKind::State => Presence::Dropped,
        }
    }

    /// [`Self::presence`] as the index takes it.
    pub(crate) fn presence_of(&self) -> impl Fn(&FileRef) -> Presence + Send + Sync + '_ {
        |file| self.presence(file)
    }

    /// The live file of that path.
    ///
    /// # Errors
    /// `CORRUPT` when the version has none.
    pub(crate) fn file(&self, path: &str) -> Result<&Arc<AddFile>> {
        self.snapshot.files.get(path).ok_or_else(|| {
            Error::corrupt(format!(
                "table {} version {}: file {path} is not live",
                self.resolved.spec.name, self.snapshot.version
            ))
        })
    }

    /// What is known of a file's rows without reading them.
    ///
    /// # Errors
    /// `CORRUPT` when the file's tags are no sequence of the table.
    pub(crate) fn bounds(&self, file: &AddFile) -> Result<FileBounds> {
        let max_sequence = match file.max_sequence() {
            Some(text) => {
                let value = serde_json::from_str(text).map_err(|e| {
                    Error::corrupt(format!("file {}: greatest sequence", file.path)).with_source(e)
                })?;
                sequence_from_json(&self.encoder, &value)?
            }
            None => None,
        };
        Ok(FileBounds {
            max_sequence,
            has_sparse_hidden: file.is_sparse(),
        })
    }

    /// Bounds by path, each read once.
    ///
    /// # Errors
    /// As [`Self::bounds`].
    pub(crate) fn bounds_of<'a>(
        &self,
        cache: &'a mut HashMap<Arc<str>, FileBounds>,
        path: &Arc<str>,
    ) -> Result<&'a FileBounds> {
        if !cache.contains_key(path) {
            let bounds = self.bounds(self.file(path)?)?;
            cache.insert(Arc::clone(path), bounds);
        }
        cache
            .get(path)
            .ok_or_else(|| Error::internal("bounds were just put in"))
    }
}

/// The seed of a table's index hashes: nobody who chooses keys knows the random table id in advance.
fn index_seed(table_id: &str) -> u64 {
    let digest = tidegate_change::Digest::of(table_id.as_bytes());
    let mut seed = [0; 8];
    seed.copy_from_slice(digest.0.get(..8).unwrap_or(&[0; 8]));
    u64::from_le_bytes(seed)
}

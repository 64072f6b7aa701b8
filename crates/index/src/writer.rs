//! Writes runs: the changes of a commit, and merges.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tidegate_change::key::IndexHash;
use tidegate_change::{Error, Result};

use crate::entry::{
    Entry, FileKind, FileOrdinal, FileRef, FileTable, GONE, Presence, PresenceOf, RawEntry,
    stored_hash,
};
use crate::error;
use crate::format::encoder::RunEncoder;
use crate::manifest::RunDescriptor;
use crate::merge::{Merged, Merger, Rule, Source};
use crate::rebuild::Spill;
use crate::run::path_below;
use crate::spilled::SpilledRuns;

/// Bytes of an uploaded part; a run that is smaller is put at once.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// Where runs are written: a store and the table's root in it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) root: Path,
}

/// The changes of one commit: one entry for each key whose state or place changed.
#[derive(Debug, Default)]
pub struct RunWriter {
    files: FileTable,
    entries: Vec<RawEntry>,
    spilled: Option<SpilledRuns>,
}

impl RunWriter {
    /// A writer without changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A writer without changes whose memory is bounded: [`RunWriter::relieve`] puts what exceeds it into a
    /// temporary place, which the caller removes when the writer is gone.
    #[must_use]
    pub fn with_spill(spill: Spill) -> Self {
        Self {
            spilled: Some(SpilledRuns::new(spill)),
            ..Self::default()
        }
    }

    /// Makes room for this many more changes.
    pub fn reserve(&mut self, additional: usize) {
        self.entries.reserve(additional);
    }

    /// Names a file, by its path relative to the table's root; the same file gets the same ordinal.
    pub fn file(&mut self, file: &FileRef) -> FileOrdinal {
        FileOrdinal(self.files.code(file))
    }

    /// Says where a key's state is from this commit on. In any order, once for each key.
    ///
    /// # Errors
    /// `INTERNAL` when the file is of the wrong kind.
    pub fn push(&mut self, hash: IndexHash, entry: Entry) -> Result<()> {
        let (code, row, kind) = match entry {
            Entry::Live { file, row } => (file.0, row, Some(FileKind::Data)),
            Entry::Tombstone { file, row } => (file.0, row, Some(FileKind::State)),
            Entry::Gone => (GONE, 0, None),
        };
        if self.files.kind(code) != kind {
            return Err(Error::internal(
                "index: an entry names a file of the wrong kind",
            ));
        }
        self.entries.push(RawEntry {
            hash: stored_hash(hash),
            code,
            row,
        });
        Ok(())
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() + self.spilled.as_ref().map_or(0, SpilledRuns::len)
    }

    /// Whether there is no change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts the changes in memory aside once they exceed what memory may hold.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the temporary place says; `INTERNAL` when two changes are of one key.
    pub async fn relieve(&mut self) -> Result<()> {
        let full = |spilled: &SpilledRuns| self.entries.len() >= spilled.entries_max();
        if !self.spilled.as_ref().is_some_and(full) {
            return Ok(());
        }
        self.sort()?;
        let entries = std::mem::take(&mut self.entries);
        match &mut self.spilled {
            Some(spilled) => spilled.add(entries, &self.files).await,
            None => Ok(()),
        }
    }

    /// Sorts the changes in memory.
    fn sort(&mut self) -> Result<()> {
        self.entries.sort_unstable_by_key(RawEntry::sort_key);
        if self.entries.is_sorted_by(|a, b| a.hash < b.hash) {
            return Ok(());
        }
        Err(error::said_twice())
    }

    fn has_spilled(&self) -> bool {
        self.spilled
            .as_ref()
            .is_some_and(|spilled| spilled.len() > 0)
    }

    /// Writes the changes as a run of level 0.
    pub(crate) async fn write(mut self, target: &Target, path: String) -> Result<RunDescriptor> {
        if self.has_spilled() {
            let merger = Merger::new(self.sources().await?, Rule::Newest { commit_from: 0 });
            let pruning = Pruning {
                oldest: false,
                presence: &|_| Presence::Present,
            };
            return write_merged(merger, pruning, target, path, 0)
                .await?
                .ok_or_else(no_entries);
        }
        self.sort()?;
        let mut sink = Sink::new(target, path, self.files)?;
        for entry in self.entries {
            sink.encoder.push(entry)?;
            if sink.is_full() {
                sink.flush().await?;
            }
        }
        sink.finish(0).await?.ok_or_else(no_entries)
    }

    /// The changes as the newest sources of a merge, of which no two know one key.
    pub(crate) async fn sources(&mut self) -> Result<Vec<Source>> {
        self.sort()?;
        let mut sources = match &mut self.spilled {
            Some(spilled) => spilled.sources().await?,
            None => Vec::new(),
        };
        let entries = std::mem::take(&mut self.entries);
        sources.push(Source::memory(entries, self.files.files().into()));
        Ok(sources)
    }
}

fn no_entries() -> Error {
    Error::internal("index: a run without entries")
}

/// What a merge does with entries that say no more than a missing entry would.
#[derive(Clone, Copy)]
pub(crate) struct Pruning<'a> {
    /// Whether no older run exists, so that gone keys need no entry.
    pub(crate) oldest: bool,
    /// What the table's version says of files.
    pub(crate) presence: &'a PresenceOf<'a>,
}

/// Writes what sources merge to as one run; None when nothing is left.
pub(crate) async fn write_merged(
    mut merger: Merger,
    pruning: Pruning<'_>,
    target: &Target,
    path: String,
    level: u32,
) -> Result<Option<RunDescriptor>> {
    let mut sink = Sink::new(target, path, FileTable::default())?;
    let mut codes: Vec<Vec<Option<u32>>> = merger
        .sources()
        .iter()
        .map(|source| vec![None; source.files().len() + 1])
        .collect();
    let mut step = Vec::new();
    loop {
        merger.step(&mut step).await?;
        if step.is_empty() {
            return sink.finish(level).await;
        }
        for merged in &step {
            let mut entry = merged.entry;
            entry.code = sink.code(&merger, merged, &mut codes, pruning.presence)?;
            if entry.code == GONE {
                entry.row = 0;
                if pruning.oldest {
                    continue;
                }
            }
            sink.encoder.push(entry)?;
        }
        if sink.is_full() {
            sink.flush().await?;
        }
    }
}

/// Puts an encoder's bytes into the store.
struct Sink {
    target: Target,
    relative: String,
    path: Path,
    encoder: RunEncoder,
    upload: Option<Box<dyn MultipartUpload>>,
}

impl Sink {
    fn new(target: &Target, relative: String, files: FileTable) -> Result<Self> {
        let path = path_below(&target.root, &relative)?;
        let encoder = RunEncoder::new(files);
        Ok(Self {
            target: target.clone(),
            relative,
            path,
            encoder,
            upload: None,
        })
    }

    fn is_full(&self) -> bool {
        self.encoder.waiting() >= PART_BYTES
    }

    /// The output's code of a source's file; [`GONE`] for a file that the table dropped.
    fn code(
        &mut self,
        merger: &Merger,
        merged: &Merged,
        codes: &mut [Vec<Option<u32>>],
        presence: &PresenceOf<'_>,
    ) -> Result<u32> {
        if merged.entry.code == GONE {
            return Ok(GONE);
        }
        let slot = usize::try_from(merged.entry.code)
            .ok()
            .and_then(|code| codes.get_mut(merged.source)?.get_mut(code));
        let (Some(slot), Some(file)) = (slot, merger.file(merged)) else {
            return Err(Error::internal(
                "index: an entry names a file that its run lacks",
            ));
        };
        if let Some(code) = slot {
            return Ok(*code);
        }
        let code = match presence(file) {
            Presence::Present => self.encoder.code(file),
            Presence::Dropped => GONE,
            Presence::Missing => return Err(missing(file)),
        };
        *slot = Some(code);
        Ok(code)
    }

    async fn flush(&mut self) -> Result<()> {
        let part = self.encoder.drain();
        self.put_part(part).await
    }

    async fn put_part(&mut self, part: Vec<u8>) -> Result<()> {
        let mut upload = match self.upload.take() {
            Some(upload) => upload,
            None => {
                let opened = self.target.store.put_multipart(&self.path).await;
                opened.map_err(|e| error::storage(&self.path, e))?
            }
        };
        if let Err(failed) = upload
            .put_part(PutPayload::from_bytes(Bytes::from(part)))
            .await
        {
            abandon(upload).await;
            return Err(error::storage(&self.path, failed));
        }
        self.upload = Some(upload);
        Ok(())
    }

    /// Ends the run; None when it has no entry.
    async fn finish(mut self, level: u32) -> Result<Option<RunDescriptor>> {
        let encoder = std::mem::replace(&mut self.encoder, RunEncoder::new(FileTable::default()));
        let Some((tail, footer, bytes)) = encoder.finish() else {
            return Ok(None);
        };
        if self.upload.is_none() {
            let payload = PutPayload::from_bytes(Bytes::from(tail));
            let put = self.target.store.put(&self.path, payload).await;
            put.map_err(|e| error::storage(&self.path, e))?;
        } else {
            self.put_part(tail).await?;
            if let Some(mut upload) = self.upload.take()
                && let Err(failed) = upload.complete().await
            {
                abandon(upload).await;
                return Err(error::storage(&self.path, failed));
            }
        }
        Ok(Some(RunDescriptor::new(
            self.relative,
            &footer,
            bytes,
            level,
        )))
    }
}

/// Takes an upload back as far as the store can; what stays belongs to an attempt that never commits, and
/// the failure that ended the upload is the one to report.
async fn abandon(mut upload: Box<dyn MultipartUpload>) {
    let _ = upload.abort().await;
}

/// An entry of the index names a file that the table does not know.
pub(crate) fn missing(file: &FileRef) -> Error {
    Error::corrupt(format!(
        "key index names {}, which the table does not hold",
        file.path
    ))
    .with_hint("the index is derived from the table: rebuild it")
}

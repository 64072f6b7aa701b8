//! Temporary files of an attempt: what its memory does not hold.
//!
//! - [`SpillDirectory`]: one for each phase of an attempt, made on first use, removed with it.
//! - [`SpillFile`]: bytes that are appended once and read at positions; removed when nobody refers to it.
//! - `batches`: record batches in them, as compressed Arrow IPC.
//!
//! Nothing here is durable or named by anything that is: a crash leaves files that the owner of the
//! directory removes when it starts again.

mod batches;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tidegate_change::{AttemptId, Code, Error, Result};

pub(crate) use batches::{SpilledBatch, encode};

use crate::limits::Limits;

/// Phases of this process so far.
static PHASES: AtomicU64 = AtomicU64::new(0);

/// The temporary files of one phase of an attempt.
#[derive(Debug)]
pub(crate) struct SpillDirectory {
    /// None where the batch may not spill.
    path: Option<PathBuf>,
    memory_bytes: u64,
    made: OnceLock<()>,
    next: AtomicU64,
}

impl SpillDirectory {
    /// A directory for a phase of an attempt; nothing is made yet.
    pub(crate) fn new(limits: &Limits, attempt: AttemptId) -> Arc<Self> {
        // Several phases of an attempt may run in one process, each with files of its own.
        let phase = PHASES.fetch_add(1, Ordering::Relaxed);
        let below = |directory: &PathBuf| {
            let path = directory.join(format!("{attempt}-{phase}"));
            std::path::absolute(&path).unwrap_or(path)
        };
        Arc::new(Self {
            path: limits.spill_directory.as_ref().map(below),
            memory_bytes: limits.memory_bytes,
            made: OnceLock::new(),
            next: AtomicU64::new(0),
        })
    }

    /// Where others may put files, in directories of their own; None where the batch may not spill.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The directory, made.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where the batch may not spill, or what the disk says.
    pub(crate) fn make(&self) -> Result<&Path> {
        let Some(path) = &self.path else {
            let message = format!(
                "the batch needs more memory than {} bytes",
                self.memory_bytes
            );
            return Err(Error::new(Code::ResourceExhausted, message)
                .with_hint("give it a spill directory, or cut it into smaller batches"));
        };
        if self.made.get().is_none() {
            fs::create_dir_all(path).map_err(|e| failed(path, e))?;
            self.made.get_or_init(|| ());
        }
        Ok(path)
    }

    /// A new file.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub(crate) fn file(self: &Arc<Self>) -> Result<SpillFile> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.make()?.join(format!("{number}.spill"));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| failed(&path, e))?;
        Ok(SpillFile {
            file,
            path,
            length: 0,
            _directory: Arc::clone(self),
        })
    }
}

impl Drop for SpillDirectory {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        if let Err(error) = fs::remove_dir_all(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "temporary files were not removed");
        }
    }
}

/// A place in a [`SpillFile`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    start: u64,
    length: usize,
}

/// A temporary file.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    path: PathBuf,
    length: u64,
    /// Keeps the directory until the file is gone.
    _directory: Arc<SpillDirectory>,
}

impl SpillFile {
    /// Appends bytes.
    ///
    /// # Errors
    /// `STORAGE_FULL`, or what else the disk says.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<Extent> {
        let extent = Extent {
            start: self.length,
            length: bytes.len(),
        };
        self.file
            .write_all_at(bytes, self.length)
            .map_err(|e| failed(&self.path, e))?;
        self.length += bytes.len() as u64;
        Ok(extent)
    }

    /// The bytes at a place.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn read(&self, extent: Extent) -> Result<Vec<u8>> {
        let mut bytes = vec![0; extent.length];
        self.file
            .read_exact_at(&mut bytes, extent.start)
            .map_err(|e| failed(&self.path, e))?;
        Ok(bytes)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        // What stays goes with the directory.
        let _ = fs::remove_file(&self.path);
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::io(format!("temporary file {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use tidegate_change::WriterId;

    use super::*;

    fn attempt(index: u64) -> AttemptId {
        AttemptId {
            writer: WriterId(1),
            index,
        }
    }

    #[test]
    fn files_go_when_they_are_dropped_and_the_directory_with_the_last() {
        let root = tempfile::tempdir().unwrap();
        let limits = Limits {
            memory_bytes: 0,
            spill_directory: Some(root.path().join("spill")),
        };
        let directory = SpillDirectory::new(&limits, attempt(7));
        assert!(
            fs::metadata(root.path().join("spill")).is_err(),
            "made too early"
        );
        let mut file = directory.file().unwrap();
        let (first, second) = (file.append(b"one").unwrap(), file.append(b"").unwrap());
        let third = file.append(b"three").unwrap();
        assert_eq!(file.read(third).unwrap(), b"three");
        assert_eq!(file.read(first).unwrap(), b"one");
        assert_eq!(file.read(second).unwrap(), b"");
        let other = directory.file().unwrap();
        let path = directory.path().unwrap().to_owned();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
        drop(directory);
        drop(file);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        drop(other);
        assert!(fs::metadata(&path).is_err());
    }

    #[test]
    fn a_batch_that_may_not_spill_is_refused() {
        let directory = SpillDirectory::new(&Limits::default(), attempt(1));
        assert_eq!(
            directory.file().unwrap_err().code(),
            Code::ResourceExhausted
        );
    }
}

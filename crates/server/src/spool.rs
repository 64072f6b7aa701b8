//! Input that came by stream, on disk until its batch is done, and bounded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_change::{Code, Error, Result};

/// Where streams are spooled, and how much of them there may be.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    directory: PathBuf,
    bytes_max: u64,
    held: Arc<AtomicU64>,
    next: Arc<AtomicU64>,
}

impl Spool {
    pub(crate) fn new(directory: PathBuf, bytes_max: u64) -> Self {
        Self {
            directory,
            bytes_max,
            held: Arc::default(),
            next: Arc::default(),
        }
    }

    /// Where all of them lie.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// An empty directory for one stream.
    pub(crate) fn open(&self) -> Result<SpoolDirectory> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("put-{number}"));
        fs::create_dir_all(&path).map_err(|e| Error::io(path.display(), e))?;
        Ok(SpoolDirectory {
            path,
            spool: self.clone(),
            bytes: 0,
        })
    }

    /// Bytes of all streams that lie here.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// The directory of one stream; it goes with this value.
#[derive(Debug)]
pub(crate) struct SpoolDirectory {
    path: PathBuf,
    spool: Spool,
    bytes: u64,
}

impl SpoolDirectory {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes room for bytes that are about to be written.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<()> {
        let held = self.spool.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if held.saturating_add(bytes) > self.spool.bytes_max {
            let message = "input of other batches fills the node's spool";
            return Err(Error::new(Code::ResourceExhausted, message)
                .with_hint("try again when they are done, or raise limits.spool_bytes"));
        }
        Ok(())
    }
}

impl Drop for SpoolDirectory {
    fn drop(&mut self) {
        self.spool.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Err(e) = fs::remove_dir_all(&self.path) {
            tracing::warn!(directory = %self.path.display(), error = %e, "spooled input stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_takes_room_and_gives_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("spool"), 100);
        let mut first = spool.open().unwrap();
        first.reserve(80).unwrap();
        let mut second = spool.open().unwrap();
        assert_ne!(first.path(), second.path());
        let error = second.reserve(30).unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.try_exists().unwrap());
        assert_eq!(spool.held_bytes(), 80);
        first.reserve(20).unwrap();
    }
}

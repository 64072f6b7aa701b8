//! What applying a batch may take of its machine (invariant 7).
//!
//! Memory is split into shares that are in use at different times: events that were read and wait, slices
//! that are merged, and what grows with the whole batch while slices come and go.

use std::path::PathBuf;

/// Memory of a batch where nobody says otherwise, bytes.
pub const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
/// Memory that a chunk of a source takes while it is decoded and classified, bytes, about.
const CHUNK_MEMORY_BYTES: u64 = 32 << 20;
/// How much more a slice takes while it is merged than its events: groups, stored rows, rows to write, and
/// what their encoding holds.
const MERGE_FACTOR: u64 = 6;

/// Memory and temporary space of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory that the data of a batch takes, about; what exceeds it goes to the spill directory.
    /// Below some 64 MiB the parts that are handled as one (a chunk of a source, a row group) outweigh it.
    pub memory_bytes: u64,
    /// Where that goes, in a directory for each attempt that goes with it. Without one a batch that exceeds
    /// its memory is refused.
    pub spill_directory: Option<PathBuf>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: MEMORY_BYTES_DEFAULT,
            spill_directory: None,
        }
    }
}

impl Limits {
    /// Bytes of events that wait in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.share(4)
    }

    /// Bytes of events that are merged as one slice, where `at_once` slices are.
    pub(crate) fn slice_bytes(&self, at_once: usize) -> usize {
        let at_once = u64::try_from(at_once).unwrap_or(u64::MAX).max(1);
        self.share(MERGE_FACTOR.saturating_mul(at_once))
    }

    /// Bytes that each list takes that grows with the batch: index changes, dead rows, feed, rejects.
    pub(crate) fn list_bytes(&self) -> usize {
        self.share(16)
    }

    /// Chunks of sources that are decoded at once.
    pub(crate) fn chunks_at_once(&self, threads: usize) -> usize {
        let fit = self.memory_bytes / 4 / CHUNK_MEMORY_BYTES;
        usize::try_from(fit)
            .unwrap_or(usize::MAX)
            .clamp(1, threads.max(1) * 2)
    }

    fn share(&self, parts: u64) -> usize {
        usize::try_from(self.memory_bytes / parts.max(1)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_into_the_memory() {
        let limits = Limits {
            memory_bytes: 1 << 30,
            spill_directory: None,
        };
        assert_eq!(limits.held_bytes(), 256 << 20);
        assert_eq!(limits.slice_bytes(2), (1 << 30) / 12);
        assert_eq!(limits.chunks_at_once(2), 4);
        let small = Limits {
            memory_bytes: 0,
            ..limits
        };
        assert_eq!((small.held_bytes(), small.chunks_at_once(8)), (0, 1));
    }
}

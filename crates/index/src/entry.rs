//! What a run says of a key, and what a look-up answers.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_change::key::IndexHash;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Rows of the table.
    Data,
    /// Hidden state: tombstones.
    State,
}

/// A file of the table, by its path relative to the table's root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileRef {
    /// What it holds.
    pub kind: FileKind,
    /// Where it is.
    pub path: Arc<str>,
}

impl FileRef {
    /// A data file.
    #[must_use]
    pub fn data(path: impl Into<Arc<str>>) -> Self {
        Self {
            kind: FileKind::Data,
            path: path.into(),
        }
    }

    /// A hidden state file.
    #[must_use]
    pub fn state(path: impl Into<Arc<str>>) -> Self {
        Self {
            kind: FileKind::State,
            path: path.into(),
        }
    }
}

/// A file among those that one [`crate::RunWriter`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileOrdinal(pub(crate) u32);

/// The state of a key after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The key has a row: its position in a data file.
    Live {
        /// A file of kind [`FileKind::Data`].
        file: FileOrdinal,
        /// The row's position in the file, deleted rows counted.
        row: u32,
    },
    /// The key has no row, but a remembered deletion: its position in a state file.
    Tombstone {
        /// A file of kind [`FileKind::State`].
        file: FileOrdinal,
        /// The position in the file.
        row: u32,
    },
    /// The table knows nothing of the key any more (purged tombstone, dropped row).
    Gone,
}

/// Where a key's state was found; files are positions in [`Located::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The table knows nothing of the key.
    Absent,
    /// In a row of a data file.
    Live {
        /// Position in [`Located::files`].
        file: u32,
        /// The row's position in the file, deleted rows counted.
        row: u32,
    },
    /// In a tombstone of a state file.
    Tombstone {
        /// Position in [`Located::files`].
        file: u32,
        /// The position in the file.
        row: u32,
    },
}

/// The answer to [`crate::Index::locate`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// The files that the locations name.
    pub files: Vec<FileRef>,
    /// One for each hash that was asked for, in the order of the question.
    pub locations: Vec<Location>,
}

/// What the table's version says of a file that an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is part of the version: the entry stands.
    Present,
    /// The table dropped it with all its keys and without telling the index, as a truncate does: its
    /// entries count as [`Location::Absent`].
    Dropped,
    /// The table does not know it: index and table contradict each other, which is an error.
    Missing,
}

/// Asks the table's version about a file; called once for each file, not for each key.
pub(crate) type PresenceOf<'a> = dyn Fn(&FileRef) -> Presence + Sync + 'a;

/// Bits of the 128-bit hash that are not stored.
const DROPPED_BITS: u32 = 32;

/// The top 96 bits of an index hash: what runs store and compare.
pub(crate) fn stored_hash(hash: IndexHash) -> u128 {
    hash.0 >> DROPPED_BITS
}

/// A hash of which these are the stored bits: it is stored as they are.
pub(crate) fn hash_of_stored(stored: u128) -> IndexHash {
    IndexHash(stored << DROPPED_BITS)
}

/// An entry in memory: its file as a code in the run's file table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEntry {
    pub(crate) hash: u128,
    /// 0: gone; else the file at `code - 1`.
    pub(crate) code: u32,
    pub(crate) row: u32,
}

/// The code of [`Entry::Gone`].
pub(crate) const GONE: u32 = 0;

impl RawEntry {
    /// Sorts by hash, then by the order in which files were named.
    pub(crate) fn sort_key(&self) -> (u128, u32, u32) {
        (self.hash, self.code, self.row)
    }
}

/// The files that a run names, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileTable {
    files: Vec<FileRef>,
    codes: HashMap<FileRef, u32>,
}

impl FileTable {
    /// The code of a file, new or known.
    pub(crate) fn code(&mut self, file: &FileRef) -> u32 {
        if let Some(code) = self.codes.get(file) {
            return *code;
        }
        self.files.push(file.clone());
        let code = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.codes.insert(file.clone(), code);
        code
    }

    pub(crate) fn files(&self) -> &[FileRef] {
        &self.files
    }

    pub(crate) fn into_files(self) -> Vec<FileRef> {
        self.files
    }

    pub(crate) fn kind(&self, code: u32) -> Option<FileKind> {
        file_of(&self.files, code).map(|file| file.kind)
    }
}

/// The file of a code; None for [`GONE`] and for codes that the table lacks.
pub(crate) fn file_of(files: &[FileRef], code: u32) -> Option<&FileRef> {
    let position = code.checked_sub(1)?;
    files.get(usize::try_from(position).ok()?)
}

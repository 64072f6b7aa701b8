//! The changes of a commit on their way to another writer, as values instead of a run.

use tidegate_change::key::IndexHash;
use tidegate_change::{Error, Result};

use crate::entry::{FileRef, GONE, hash_of_stored};
use crate::merge::{Merged, Merger, Rule};
use crate::writer::RunWriter;

/// Where a key's state is after a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key: its stored bits, the rest is zero.
    pub hash: IndexHash,
    /// File and row of its state; None when it is gone.
    pub place: Option<(FileRef, u32)>,
}

/// The changes of a [`RunWriter`] in hash order, a bounded number at a time.
#[derive(Debug)]
pub struct Changes {
    merger: Merger,
    step: Vec<Merged>,
}

impl RunWriter {
    /// Takes the changes out, for a writer elsewhere.
    ///
    /// # Errors
    /// `INTERNAL` when two changes are of one key, or what the temporary place says.
    pub async fn into_changes(mut self) -> Result<Changes> {
        let rule = Rule::Newest { commit_from: 0 };
        Ok(Changes {
            merger: Merger::new(self.sources().await?, rule),
            step: Vec::new(),
        })
    }
}

impl Changes {
    /// The next changes; empty at the end.
    ///
    /// # Errors
    /// What the temporary place says.
    pub async fn next(&mut self) -> Result<Vec<Change>> {
        self.merger.step(&mut self.step).await?;
        let change = |merged: &Merged| {
            let place = match merged.entry.code {
                GONE => None,
                _ => {
                    let file = self.merger.file(merged).cloned();
                    let file = file.ok_or_else(|| Error::internal("index: a change of no file"))?;
                    Some((file, merged.entry.row))
                }
            };
            Ok(Change {
                hash: hash_of_stored(merged.entry.hash),
                place,
            })
        };
        self.step.iter().map(change).collect()
    }
}

//! Compares index and table: for every key exactly one position, in both the same (invariant 4).

use futures::stream::Stream;
use tidegate_change::{Error, Result};

use crate::entry::{FileKind, FileRef, GONE, Presence, PresenceOf};
use crate::locate::Index;
use crate::merge::{Merged, Merger};
use crate::rebuild::{KeyRows, Sorter, Spill};
use crate::writer::missing;

/// Differences that a report lists.
const LISTED_MAX: usize = 100;

/// A place in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The file.
    pub file: FileRef,
    /// The position in the file.
    pub row: u32,
}

/// A key on which index and table disagree, by where they say it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where the table has it.
    pub table: Option<Position>,
    /// Where the index has it.
    pub index: Option<Position>,
}

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Keys with a row in the table.
    pub live: u64,
    /// Keys with a tombstone and no row.
    pub tombstones: u64,
    /// Number of keys on which index and table disagree.
    pub difference_count: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
}

impl VerifyReport {
    /// Whether index and table agree on every key.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.difference_count == 0
    }

    fn differ(&mut self, table: Option<Position>, index: Option<Position>) {
        self.difference_count += 1;
        if self.differences.len() < LISTED_MAX {
            self.differences.push(Difference { table, index });
        }
    }

    fn count(&mut self, position: &Position) {
        match position.file.kind {
            FileKind::Data => self.live += 1,
            FileKind::State => self.tombstones += 1,
        }
    }
}

/// Compares an index with the rows of its table version, given as for [`crate::rebuild`].
///
/// # Errors
/// `CORRUPT` when two live rows have one key or the index's bytes are damaged, and as
/// [`crate::rebuild`]. Disagreement is no error but a report.
pub async fn verify(
    index: &Index,
    rows: impl Stream<Item = Result<KeyRows>>,
    spill: Spill,
    presence: &(dyn Fn(&FileRef) -> Presence + Sync),
) -> Result<VerifyReport> {
    let mut sorter = Sorter::new(spill);
    let report = compare(index, rows, &mut sorter, presence).await;
    sorter.clean().await;
    report
}

async fn compare(
    index: &Index,
    rows: impl Stream<Item = Result<KeyRows>>,
    sorter: &mut Sorter,
    presence: &PresenceOf<'_>,
) -> Result<VerifyReport> {
    sorter.take(rows).await?;
    let mut table = Walk::new(sorter.merged().await?);
    let mut index = Walk::new(index.merged().await?);
    let mut report = VerifyReport::default();
    loop {
        let (left, right) = (table.peek().await?, index.peek().await?);
        let hash = match (&left, &right) {
            (Some(l), Some(r)) => l.entry.hash.min(r.entry.hash),
            (Some(one), None) | (None, Some(one)) => one.entry.hash,
            (None, None) => return Ok(report),
        };
        let found = table.take(left, hash, &|_| Presence::Present)?;
        let claimed = index.take(right, hash, presence)?;
        if let Some(position) = &found {
            report.count(position);
        }
        if found != claimed {
            report.differ(found, claimed);
        }
    }
}

/// Walks over the entries of a merge.
struct Walk {
    merger: Merger,
    step: Vec<Merged>,
    position: usize,
    /// By source and code: whether the file is present, once asked.
    present: Vec<Vec<Option<bool>>>,
}

impl Walk {
    fn new(merger: Merger) -> Self {
        let present = merger
            .sources()
            .iter()
            .map(|s| vec![None; s.files().len() + 1])
            .collect();
        Self {
            merger,
            step: Vec::new(),
            position: 0,
            present,
        }
    }

    async fn peek(&mut self) -> Result<Option<Merged>> {
        if self.position >= self.step.len() {
            self.merger.step(&mut self.step).await?;
            self.position = 0;
        }
        Ok(self.step.get(self.position).copied())
    }

    /// Takes the peeked entry if it is of this hash; None for a gone key.
    fn take(
        &mut self,
        peeked: Option<Merged>,
        hash: u128,
        presence: &PresenceOf<'_>,
    ) -> Result<Option<Position>> {
        let Some(merged) = peeked.filter(|merged| merged.entry.hash == hash) else {
            return Ok(None);
        };
        self.position += 1;
        if merged.entry.code == GONE {
            return Ok(None);
        }
        let file = self.merger.file(&merged);
        let file = file.ok_or_else(|| Error::internal("index: an entry names no file"))?;
        let slot = usize::try_from(merged.entry.code)
            .ok()
            .and_then(|code| self.present.get_mut(merged.source)?.get_mut(code));
        let known = slot.as_ref().and_then(|slot| **slot);
        let present = match known {
            Some(present) => present,
            None => match presence(file) {
                Presence::Present => true,
                Presence::Dropped => false,
                Presence::Missing => return Err(missing(file)),
            },
        };
        if let Some(slot) = slot {
            *slot = Some(present);
        }
        Ok(present.then(|| Position {
            file: file.clone(),
            row: merged.entry.row,
        }))
    }
}

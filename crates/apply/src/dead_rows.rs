//! Positions of data files that die in an attempt, gathered from all slices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_change::Result;
use tidegate_delta::dv::DeletionVector;

use crate::spill::{Extent, SpillDirectory, SpillFile};

/// Bytes that a position takes in memory, about.
const POSITION_BYTES: usize = 2;

/// Dead positions by data file.
#[derive(Debug)]
pub(crate) struct DeadRows {
    directory: Arc<SpillDirectory>,
    bytes_max: usize,
    bytes: usize,
    held: BTreeMap<Arc<str>, Dead>,
    spilled: BTreeMap<Arc<str>, Vec<Fragment>>,
}

/// The dead positions of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Dead {
    /// The positions.
    pub positions: DeletionVector,
    /// How many were named: more than the positions are when a row was named twice.
    pub named: u64,
}

#[derive(Debug)]
struct Fragment {
    file: Arc<SpillFile>,
    extent: Extent,
    named: u64,
}

impl DeadRows {
    /// None yet; memory holds about these bytes.
    pub(crate) fn new(directory: &Arc<SpillDirectory>, bytes_max: usize) -> Self {
        Self {
            directory: Arc::clone(directory),
            bytes_max,
            bytes: 0,
            held: BTreeMap::new(),
            spilled: BTreeMap::new(),
        }
    }

    /// Whether no row dies.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.spilled.is_empty()
    }

    /// Adds positions of a file.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says.
    pub(crate) fn add(&mut self, path: Arc<str>, rows: Vec<u32>) -> Result<()> {
        let named = rows.len() as u64;
        let positions = DeletionVector::from_positions(rows);
        self.add_dead(path, &Dead { positions, named })
    }

    /// Adds positions of a file that others gathered.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(crate) fn add_dead(&mut self, path: Arc<str>, own: &Dead) -> Result<()> {
        let named = usize::try_from(own.named).unwrap_or(usize::MAX);
        self.bytes = self
            .bytes
            .saturating_add(named.saturating_mul(POSITION_BYTES));
        let dead = self.held.entry(path).or_default();
        dead.named += own.named;
        dead.positions.merge(&own.positions);
        if self.bytes > self.bytes_max {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.bytes = 0;
        let mut file = self.directory.file()?;
        let mut written = Vec::with_capacity(self.held.len());
        for (path, dead) in std::mem::take(&mut self.held) {
            let extent = file.append(&dead.positions.to_bytes()?)?;
            written.push((path, extent, dead.named));
        }
        let file = Arc::new(file);
        for (path, extent, named) in written {
            self.spilled.entry(path).or_default().push(Fragment {
                file: Arc::clone(&file),
                extent,
                named,
            });
        }
        Ok(())
    }

    /// The files in which rows die, in order.
    pub(crate) fn paths(&self) -> BTreeSet<Arc<str>> {
        self.held
            .keys()
            .chain(self.spilled.keys())
            .cloned()
            .collect()
    }

    /// The dead positions of a file.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn of(&self, path: &str) -> Result<Dead> {
        let mut all = self.held.get(path).cloned().unwrap_or_default();
        for fragment in self.spilled.get(path).into_iter().flatten() {
            let bytes = fragment.file.read(fragment.extent)?;
            let own = DeletionVector::from_bytes(path, &bytes)?;
            all.named += fragment.named;
            all.positions.merge(&own);
        }
        Ok(all)
    }

    /// Forgets the positions of a file, which dies whole; returns how many there were.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn remove(&mut self, path: &str) -> Result<u64> {
        let dead = self.of(path)?;
        self.held.remove(path);
        self.spilled.remove(path);
        Ok(dead.positions.len())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_change::{AttemptId, WriterId};

    use super::*;
    use crate::limits::Limits;

    #[test]
    fn positions_come_back_whether_they_were_put_aside_or_not() {
        let root = tempfile::tempdir().unwrap();
        let limits = Limits {
            memory_bytes: 0,
            spill_directory: Some(root.path().to_owned()),
        };
        let attempt = AttemptId {
            writer: WriterId(1),
            index: 1,
        };
        let directory = SpillDirectory::new(&limits, attempt);
        for bytes_max in [0, 7, usize::MAX] {
            let mut dead = DeadRows::new(&directory, bytes_max);
            assert!(dead.is_empty());
            for start in 0..10u32 {
                for path in ["b", "a"] {
                    dead.add(path.into(), vec![start * 3, start * 3 + 70_000])
                        .unwrap();
                }
            }
            dead.add("b".into(), vec![3]).unwrap();
            let paths: Vec<_> = dead.paths().into_iter().collect();
            assert_eq!(paths, ["a".into(), "b".into()] as [Arc<str>; 2]);
            let (a, b) = (dead.of("a").unwrap(), dead.of("b").unwrap());
            assert_eq!((a.positions.len(), a.named), (20, 20));
            assert_eq!((b.positions.len(), b.named), (20, 21));
            assert!(a.positions.contains(27) && a.positions.contains(70_027));
            assert_eq!(dead.remove("a").unwrap(), 20);
            assert_eq!(dead.of("a").unwrap(), Dead::default());
            assert!(!dead.is_empty());
        }
    }
}

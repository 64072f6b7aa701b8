//! Events on their way into one temporary file, by group.

use std::sync::Arc;

use tidegate_change::{Error, Result};

use crate::backlog::EventReader;
use crate::event_part::EventPart;
use crate::spill::{Extent, SpillFile, SpilledBatch};

/// Puts the events of parts into groups, part by part.
pub(crate) struct Regrouping<'a> {
    reader: &'a EventReader,
    file: SpillFile,
    groups: usize,
    /// Group, place and `(rows, bytes in memory)` of each batch.
    written: Vec<(usize, Extent, (usize, usize))>,
}

impl<'a> Regrouping<'a> {
    /// No events in that many groups.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn new(reader: &'a EventReader, groups: usize) -> Result<Self> {
        Ok(Self {
            reader,
            file: reader.directory.file()?,
            groups,
            written: Vec::new(),
        })
    }

    /// Adds events of a part, each with its group.
    ///
    /// # Errors
    /// `STORAGE_FULL`, or what else the disk says; `INTERNAL` for a group that is not there.
    pub(crate) fn put(
        &mut self,
        part: &EventPart,
        events: impl IntoIterator<Item = (u32, usize)>,
    ) -> Result<()> {
        let mut groups: Vec<Vec<u32>> = vec![Vec::new(); self.groups];
        for (event, group) in events {
            let group = groups.get_mut(group);
            group
                .ok_or_else(|| Error::internal("an event belongs to no group"))?
                .push(event);
        }
        for (group, events) in groups.into_iter().enumerate() {
            if !events.is_empty() {
                let (bytes, rows, size) = self.reader.encode(&part.take(&events)?)?;
                self.written
                    .push((group, self.file.append(&bytes)?, (rows, size)));
            }
        }
        Ok(())
    }

    /// The groups; those without events are empty.
    pub(crate) fn finish(self) -> Vec<Vec<SpilledBatch>> {
        let file = Arc::new(self.file);
        let mut groups = vec![Vec::new(); self.groups];
        for (group, extent, batch) in self.written {
            if let Some(group) = groups.get_mut(group) {
                group.push(SpilledBatch::new(&file, extent, batch));
            }
        }
        groups
    }
}

//! Events that were read and wait for the merge: in memory as they came, and once they exceed their share
//! of it in temporary files by ranges of the key hash.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tidegate_change::spec::TableLayout;
use tidegate_change::{Error, KeyHash, Result};
use tidegate_merge::PayloadColumn;

use crate::bucket_set::BucketSet;
use crate::event_part::{EventPart, EventSchema};
use crate::limits::Limits;
use crate::partition::{Picked, Regrouped, places_by_group};
use crate::spill::{self, SpillDirectory, SpilledBatch};

/// Bits of the key hash that tell ranges apart when events go to files.
const RANGE_BITS: u32 = 6;
/// Ranges of the key hash.
pub(crate) const RANGES: usize = 1 << RANGE_BITS;

/// The range of a key hash, by its top bits: the order of ranges is that of buckets.
pub(crate) fn range_of(hash: KeyHash) -> usize {
    usize::try_from(hash.0 >> (u64::BITS - RANGE_BITS)).unwrap_or(0)
}

/// A place among the events of a backlog.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    range: usize,
    batch: usize,
    part: usize,
}

/// Waiting events.
#[derive(Debug)]
pub(crate) struct Backlog {
    directory: Arc<SpillDirectory>,
    held_bytes_max: usize,
    layout: TableLayout,
    /// In memory, in order of arrival.
    parts: Vec<EventPart>,
    bytes: usize,
    /// In files, by range of the key hash, in order of arrival; empty while nothing is.
    ranges: Vec<Vec<SpilledBatch>>,
    /// Which payload columns some part carries (R-N5).
    carried: Vec<bool>,
    events: u64,
    has_key_changes: bool,
    /// Whether key changes that lack values were filled in elsewhere and those in files no longer count.
    are_lacking_void: bool,
}

/// Events that are ready to be merged.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// In memory.
    Held(Vec<EventPart>),
    /// In files.
    Spilled(SpilledEvents),
}

/// Events in files, by range of the key hash.
#[derive(Debug)]
pub(crate) struct SpilledEvents {
    /// By range.
    pub ranges: Vec<Vec<SpilledBatch>>,
    /// How to read them.
    pub reader: Arc<EventReader>,
}

/// What reading events from files needs to know.
#[derive(Debug)]
pub(crate) struct EventReader {
    schema: EventSchema,
    carried: Vec<bool>,
    are_lacking_void: bool,
    /// Where events go that are regrouped.
    pub directory: Arc<SpillDirectory>,
}

impl EventReader {
    /// The events of a batch in a file.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn load(&self, batch: &SpilledBatch) -> Result<EventPart> {
        let part = self.schema.to_part(&batch.load()?, &self.carried)?;
        if self.are_lacking_void {
            without_lacking(part)
        } else {
            Ok(part)
        }
    }

    /// Puts events into a file.
    ///
    /// # Errors
    /// `STORAGE_FULL`, or what else the disk says.
    pub(crate) fn encode(&self, part: &EventPart) -> Result<(Vec<u8>, usize, usize)> {
        encode(&self.schema, part)
    }
}

fn encode(schema: &EventSchema, part: &EventPart) -> Result<(Vec<u8>, usize, usize)> {
    Ok((
        spill::encode(&schema.to_batch(part)?)?,
        part.len(),
        part.bytes(),
    ))
}

/// The events that are no key changes with open columns.
fn without_lacking(part: EventPart) -> Result<EventPart> {
    let lacking = part.lacking_events();
    if lacking.is_empty() {
        return Ok(part);
    }
    let rest = (0u32..).zip(0..part.len()).map(|(event, _)| event);
    let rest: Vec<u32> = rest
        .filter(|event| lacking.binary_search(event).is_err())
        .collect();
    part.take(&rest)
}

impl Backlog {
    /// No events.
    pub(crate) fn new(
        layout: &TableLayout,
        limits: &Limits,
        directory: &Arc<SpillDirectory>,
    ) -> Self {
        Self {
            directory: Arc::clone(directory),
            held_bytes_max: limits.held_bytes(),
            layout: layout.clone(),
            parts: Vec::new(),
            bytes: 0,
            ranges: Vec::new(),
            carried: vec![false; layout.payload_columns().count()],
            events: 0,
            has_key_changes: false,
            are_lacking_void: false,
        }
    }

    /// Number of events.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Takes events.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says; `RESOURCE_EXHAUSTED` when memory is exceeded and the
    /// batch may not spill.
    pub(crate) fn take(&mut self, part: EventPart) -> Result<()> {
        if part.len() == 0 {
            return Ok(());
        }
        self.events += part.len() as u64;
        self.bytes = self.bytes.saturating_add(part.bytes());
        for (carried, column) in self.carried.iter_mut().zip(&part.payload) {
            *carried |= column.values.is_some();
        }
        let old_keys = part.old_keys.as_ref();
        self.has_key_changes |= old_keys.is_some_and(|old| old.null_count() < old.len());
        self.parts.push(part);
        if self.bytes > self.held_bytes_max {
            self.spill()?;
        }
        Ok(())
    }

    /// Moves everything from memory to a file.
    fn spill(&mut self) -> Result<()> {
        let parts = std::mem::take(&mut self.parts);
        self.bytes = 0;
        if parts.is_empty() {
            return Ok(());
        }
        if self.ranges.is_empty() {
            self.ranges = vec![Vec::new(); RANGES];
        }
        let schema = EventSchema::new(&self.layout);
        let source = Regrouped {
            parts: &parts,
            layout: &self.layout,
        };
        let encoded = |places: Vec<(usize, usize)>| match places.is_empty() {
            true => Ok(None),
            false => encode(&schema, &source.gather(&Picked::Places(places))?).map(Some),
        };
        let mut file = self.directory.file()?;
        let mut written = Vec::with_capacity(RANGES);
        let mut places = places_by_group(&parts, RANGES, range_of).into_iter();
        let at_once = rayon::current_num_threads().max(1);
        // A few ranges at a time, so that memory holds little besides the parts.
        loop {
            let few: Vec<_> = places.by_ref().take(at_once).collect();
            if few.is_empty() {
                break;
            }
            let few: Vec<_> = few.into_par_iter().map(encoded).collect::<Result<_>>()?;
            for own in few {
                written.push(match own {
                    Some((bytes, rows, size)) => Some((file.append(&bytes)?, (rows, size))),
                    None => None,
                });
            }
        }
        let file = Arc::new(file);
        for (range, own) in self.ranges.iter_mut().zip(written) {
            let batch = own.map(|(extent, batch)| SpilledBatch::new(&file, extent, batch));
            range.extend(batch);
        }
        Ok(())
    }

    /// Calls with all events, part by part.
    ///
    /// # Errors
    /// What the disk or the callback says.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&EventPart) -> Result<()>) -> Result<()> {
        let reader = self.reader();
        for batch in self.ranges.iter().flatten() {
            visit(&reader.load(batch)?)?;
        }
        self.parts.iter().try_for_each(visit)
    }

    /// Takes out the key changes that lack values; their filled copies come back by [`Self::take`].
    ///
    /// # Errors
    /// `INTERNAL` when events cannot be gathered.
    pub(crate) fn drop_lacking(&mut self) -> Result<()> {
        self.are_lacking_void = true;
        let parts = std::mem::take(&mut self.parts);
        self.parts = parts
            .into_iter()
            .map(without_lacking)
            .collect::<Result<_>>()?;
        Ok(())
    }

    /// Says which payload columns some source of the batch carries, on whatever node (R-N5).
    ///
    /// # Errors
    /// `INTERNAL` when the events are of another layout.
    pub(crate) fn settle(&mut self, carried: &[bool]) -> Result<()> {
        if carried.len() != self.carried.len() {
            return Err(Error::internal("a plan of another layout than the events"));
        }
        self.carried = carried.to_vec();
        for part in &mut self.parts {
            for (column, carried) in part.payload.iter_mut().zip(carried) {
                if !carried {
                    *column = PayloadColumn::default();
                }
            }
        }
        Ok(())
    }

    /// Takes events from another node.
    ///
    /// # Errors
    /// As [`Self::take`]; `CORRUPT` when the record batch has another schema.
    pub(crate) fn take_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let part = EventSchema::new(&self.layout).to_part(batch, &self.carried)?;
        self.take(part)
    }

    /// The next events of some buckets, as a record batch; None behind the last.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn next_batch(
        &self,
        at: &mut Cursor,
        wanted: &BucketSet,
    ) -> Result<Option<RecordBatch>> {
        while let Some(batches) = self.ranges.get(at.range) {
            let next = batches.get(at.batch);
            let Some(batch) = next.filter(|_| wanted.meets_range(at.range, RANGES)) else {
                *at = Cursor {
                    range: at.range + 1,
                    batch: 0,
                    part: at.part,
                };
                continue;
            };
            at.batch += 1;
            if let Some(own) = wanted.pick(batch.load()?)? {
                return Ok(Some(own));
            }
        }
        while let Some(part) = self.parts.get(at.part) {
            at.part += 1;
            let events = wanted.events(&part.hashes);
            let own = match events.len() {
                0 => continue,
                all if all == part.len() => EventSchema::new(&self.layout).to_batch(part)?,
                _ => EventSchema::new(&self.layout).to_batch(&part.take(&events)?)?,
            };
            return Ok(Some(own));
        }
        Ok(None)
    }

    /// Which payload columns some source carries (R-N5).
    pub(crate) fn carried(&self) -> &[bool] {
        &self.carried
    }

    /// Whether some event changes its key.
    pub(crate) fn has_key_changes(&self) -> bool {
        self.has_key_changes
    }

    /// Whether some events are in files.
    pub(crate) fn has_spilled(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// How the events in files are read.
    pub(crate) fn reader(&self) -> Arc<EventReader> {
        Arc::new(EventReader {
            schema: EventSchema::new(&self.layout),
            carried: self.carried.clone(),
            are_lacking_void: self.are_lacking_void,
            directory: Arc::clone(&self.directory),
        })
    }

    /// All events, in memory if they fit.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(crate) fn finish(mut self) -> Result<Waiting> {
        if !self.has_spilled() {
            return Ok(Waiting::Held(self.parts));
        }
        self.spill()?;
        Ok(Waiting::Spilled(SpilledEvents {
            reader: self.reader(),
            ranges: self.ranges,
        }))
    }
}

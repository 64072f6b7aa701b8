//! The events of one key that do not fit into memory, taken in pieces of whole instants.
//!
//! Each piece is counted against the stored state and condensed to the events that can still matter; what
//! all pieces leave is merged as usual. Bounds: with soft deletes every delete of the key matters, and the
//! events of one instant that do not fit are cut without regard to their contents, so that `duplicates`
//! and `ties` of such an instant count by piece.

use std::sync::Arc;

use tidegate_change::sequence::SequenceBytes;
use tidegate_change::{Counters, Result};
use tidegate_merge::{Events, MergeRules, Stored, condense, group, resolve};

use crate::backlog::EventReader;
use crate::event_part::EventPart;
use crate::lookup::{self, Need};
use crate::partition::{Picked, Regrouped, one_slice};
use crate::slice::{self, SliceOutput};
use crate::spill::SpilledBatch;
use crate::spilled_slices::Chunk;
use crate::table::TableView;

/// Sequences that are looked at to cut the events into pieces.
const SAMPLES: usize = 1 << 12;
/// Pieces that events are cut into at a time.
const PIECES: usize = 32;

/// Merges the events of one key.
///
/// # Errors
/// Failures of storage; faults of the rules.
pub(crate) async fn run(
    table: Arc<TableView>,
    rules: Arc<MergeRules>,
    reader: Arc<EventReader>,
    chunk: Chunk,
    piece_bytes: usize,
) -> Result<SliceOutput> {
    let cutter = Cutter {
        table: &table,
        reader: &reader,
        piece_bytes,
    };
    let mut pieces = vec![chunk.batches];
    let mut found = Condensing::default();
    while let Some(piece) = pieces.pop() {
        let bytes: usize = piece.iter().map(|batch| batch.bytes).sum();
        let finer = match bytes > piece_bytes {
            true => cutter.cut(&piece)?,
            false => None,
        };
        match finer {
            Some(finer) => pieces.extend(finer),
            None => {
                for few in few_at_once(piece, piece_bytes) {
                    found.take(&table, &rules, &reader, &few).await?;
                }
            }
        }
    }
    found.finish(&table, &rules).await
}

/// Batches in groups of about these bytes; a single batch is never cut.
fn few_at_once(piece: Vec<SpilledBatch>, bytes_max: usize) -> Vec<Vec<SpilledBatch>> {
    let mut groups: Vec<Vec<SpilledBatch>> = Vec::new();
    let mut bytes = usize::MAX;
    for batch in piece {
        bytes = bytes.saturating_add(batch.bytes);
        match groups.last_mut() {
            Some(group) if bytes <= bytes_max => group.push(batch),
            Some(_) | None => {
                bytes = batch.bytes;
                groups.push(vec![batch]);
            }
        }
    }
    groups
}

/// What the pieces so far came to.
#[derive(Default)]
struct Condensing {
    survivors: Vec<Events>,
    counters: Counters,
    rejects: Vec<tidegate_change::source::InvalidEvent>,
    max_sequence: Option<SequenceBytes>,
    tie_example: Option<serde_json::Value>,
}

impl Condensing {
    async fn take(
        &mut self,
        table: &TableView,
        rules: &MergeRules,
        reader: &EventReader,
        batches: &[SpilledBatch],
    ) -> Result<()> {
        let parts: Vec<EventPart> = batches
            .iter()
            .map(|batch| reader.load(batch))
            .collect::<Result<_>>()?;
        let buckets = table.resolved.spec.buckets.count();
        let mut slice = one_slice(&parts, &table.layout, buckets)?;
        drop(parts);
        let grouped = group(rules, slice.take_events()?)?;
        let found = lookup::find(table, grouped.key_columns(), Need::All).await?;
        let stored = Stored {
            refs: &found.refs,
            rows: &found.rows,
            tombstones: &found.tombstones,
        };
        let condensed = condense(rules, &grouped, &stored)?;
        self.counters.add(&condensed.counters);
        let rejects = slice::rejects_of(table, &slice.places, &grouped, &condensed.rejects)?;
        self.rejects.extend(rejects);
        let greatest = slice::accepted_max(table, rules, &grouped, &condensed.rejects)?;
        self.max_sequence = self.max_sequence.take().max(greatest);
        // What tells rows apart without keys never shows.
        let tie_example = condensed
            .tie_example
            .filter(|_| table.layout.position.is_none());
        if let (None, Some(key)) = (&self.tie_example, tie_example) {
            self.tie_example = Some(slice::key_json(table, &grouped, key)?);
        }
        let survivors = grouped.events().take(&condensed.survivors)?;
        self.survivors.push(survivors);
        Ok(())
    }

    async fn finish(self, table: &TableView, rules: &MergeRules) -> Result<SliceOutput> {
        let grouped = group(rules, Events::concat(&self.survivors)?)?;
        let found = lookup::find(table, grouped.key_columns(), Need::All).await?;
        let stored = Stored {
            refs: &found.refs,
            rows: &found.rows,
            tombstones: &found.tombstones,
        };
        let mut merged = resolve(rules, &grouped, &stored)?;
        merged.counters = Counters {
            late: self.counters.late,
            duplicates: self.counters.duplicates,
            ties: self.counters.ties,
            quarantined: self.counters.quarantined,
            ..merged.counters
        };
        Ok(SliceOutput {
            output: slice::write(table, &found, merged).await?,
            rejects: self.rejects,
            max_sequence: self.max_sequence,
            tie_example: self.tie_example,
        })
    }
}

/// Cuts events into pieces by ranges of their sequence.
struct Cutter<'a> {
    table: &'a TableView,
    reader: &'a EventReader,
    piece_bytes: usize,
}

impl Cutter<'_> {
    /// Pieces of which none shares an instant with another; None where all events are of one instant.
    fn cut(&self, batches: &[SpilledBatch]) -> Result<Option<Vec<Vec<SpilledBatch>>>> {
        let bounds = self.bounds(batches)?;
        if bounds.is_empty() {
            return Ok(None);
        }
        let mut pieces: Vec<Vec<SpilledBatch>> = vec![Vec::new(); bounds.len() + 1];
        let mut file = self.reader.directory.file()?;
        let mut written = Vec::new();
        for batch in batches {
            let part = self.reader.load(batch)?;
            let sequences = self.table.encoder.encode(&part.sequence)?;
            let mut places: Vec<Vec<(usize, usize)>> = vec![Vec::new(); pieces.len()];
            for (event, row) in sequences.iter().enumerate() {
                let piece = bounds.partition_point(|bound| *bound.0 <= *row.data());
                if let Some(places) = places.get_mut(piece) {
                    places.push((0, event));
                }
            }
            let source = Regrouped {
                parts: std::slice::from_ref(&part),
                layout: &self.reader.layout,
            };
            for (to, places) in places
                .into_iter()
                .enumerate()
                .filter(|(_, p)| !p.is_empty())
            {
                let own = source.gather(&Picked::Places(places))?;
                let (bytes, rows, size) = self.reader.encode(&own)?;
                written.push((to, file.append(&bytes)?, (rows, size)));
            }
        }
        let file = Arc::new(file);
        for (to, extent, batch) in written {
            if let Some(piece) = pieces.get_mut(to) {
                piece.push(SpilledBatch::new(&file, extent, batch));
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        // Sequences that were not sampled may still be told apart by another cut; one piece cannot.
        Ok((pieces.len() > 1).then_some(pieces))
    }

    /// Sequences at which pieces begin, ascending and distinct; none where all events have one.
    fn bounds(&self, batches: &[SpilledBatch]) -> Result<Vec<SequenceBytes>> {
        let events: usize = batches.iter().map(|batch| batch.rows).sum();
        let bytes: usize = batches.iter().map(|batch| batch.bytes).sum();
        let step = (events / SAMPLES).max(1);
        let mut seen = Vec::new();
        let mut extremes: Option<(SequenceBytes, SequenceBytes)> = None;
        for batch in batches {
            let part = self.reader.load(batch)?;
            let sequences = self.table.encoder.encode(&part.sequence)?;
            for (event, row) in sequences.iter().enumerate() {
                let own = || SequenceBytes::from_row(row);
                let (least, greatest) = extremes.get_or_insert_with(|| (own(), own()));
                if *row.data() < *least.0 {
                    *least = own();
                } else if *row.data() > *greatest.0 {
                    *greatest = own();
                }
                if event % step == 0 {
                    seen.push(own());
                }
            }
        }
        let Some((least, greatest)) = extremes else {
            return Ok(Vec::new());
        };
        // The greatest is a bound, so that two sequences are always told apart.
        seen.push(greatest);
        seen.sort();
        let pieces = (2 * bytes / self.piece_bytes.max(1) + 1).clamp(2, PIECES);
        let every = (seen.len() / pieces).max(1);
        let mut bounds: Vec<SequenceBytes> = seen.iter().rev().step_by(every).cloned().collect();
        bounds.reverse();
        bounds.dedup();
        bounds.retain(|bound| *bound > least);
        Ok(bounds)
    }
}

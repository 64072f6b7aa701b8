//! What reading a source found beside its events, as data for the node that settles the batch.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, ArrayRef};
use serde::{Deserialize, Serialize};
use tidegate_change::sequence::SequenceEncoder;
use tidegate_change::source::InvalidEvent;
use tidegate_change::spec::OnInvalid;
use tidegate_change::{Code, Result, SourceBatch, json};
use tidegate_decode::Findings;

use crate::classify::Classified;
use crate::event_part::EventPart;

/// What a source holds, events apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadSummary {
    /// Number of the source in the batch.
    pub source: u32,
    /// What the spec did not know.
    pub findings: Findings,
    /// Whether events were left out, because the findings say that the source will be read again.
    pub is_in_vain: bool,
    /// Records that are no row events, by class.
    pub other: BTreeMap<String, u64>,
    /// Greatest offset + 1 found in records, by `topic/partition`.
    pub offsets: BTreeMap<String, i64>,
    /// Events read, quarantined ones included.
    pub events: u64,
    /// Truncates that the policy ignores (R-X6).
    pub ignored: u64,
    /// Fields that JSON events lacked (R-N5).
    pub absent: u64,
    /// Values that Delta cannot hold (R-K9).
    pub unrepresentable: u64,
    /// Sequences of truncates, as JSON text.
    pub truncates: BTreeSet<String>,
    /// The first event that must not be set apart (R-S2).
    pub refused: Option<RefusedEvent>,
    /// Which payload columns the source carries, in table order (R-N5).
    pub carried: Vec<bool>,
    /// Whether a key change leaves a column open that its old key may fill (R-K6).
    pub has_open_changes: bool,
}

/// An event that refuses its batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedEvent {
    /// Why, as a printed code.
    pub code: String,
    /// Name of its source.
    pub file: String,
    /// Number of its record, from 0.
    pub row: u64,
    /// A sentence with its place and without its values.
    pub detail: String,
}

impl RefusedEvent {
    fn of(event: &InvalidEvent) -> Self {
        Self {
            code: event.code.as_str().to_owned(),
            file: event.file.to_string(),
            row: event.place.row,
            detail: event.placed_detail(),
        }
    }

    /// Whether this one is told: the first by file and record.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        (&self.file, self.row) < (&other.file, other.row)
    }

    /// The code.
    pub(crate) fn code(&self) -> Code {
        Code::from_name(&self.code).unwrap_or(Code::Internal)
    }
}

impl ReadSummary {
    /// Nothing read yet.
    pub(crate) fn new(source: u32) -> Self {
        Self {
            source,
            ..Self::default()
        }
    }

    /// Takes what decoding says of a batch.
    pub(crate) fn take_source(&mut self, batch: &SourceBatch) {
        for (class, count) in &batch.other.0 {
            *self.other.entry((*class).to_owned()).or_default() += count;
        }
        self.absent += batch.absent;
        self.unrepresentable += batch.unrepresentable;
        for (partition, next) in &batch.offsets {
            let entry = self.offsets.entry(partition.clone()).or_insert(*next);
            *entry = (*entry).max(*next);
        }
    }

    /// Takes what classifying found.
    ///
    /// # Errors
    /// `INTERNAL` when a sequence has another type than the table's.
    pub(crate) fn take_classified(
        &mut self,
        classified: &Classified,
        part: &EventPart,
        encoder: &SequenceEncoder,
        on_invalid: OnInvalid,
    ) -> Result<()> {
        self.events += classified.events;
        self.ignored += classified.ignored;
        self.truncates
            .append(&mut texts(encoder, &classified.truncates)?);
        for event in &classified.rejects {
            self.refuse(event, on_invalid);
        }
        self.carried.resize(part.payload.len(), false);
        for (carried, column) in self.carried.iter_mut().zip(&part.payload) {
            *carried |= column.values.is_some();
        }
        self.has_open_changes |= !part.lacking_events().is_empty();
        Ok(())
    }

    fn refuse(&mut self, event: &InvalidEvent, on_invalid: OnInvalid) {
        let policy = event.policy.unwrap_or(on_invalid);
        if policy != OnInvalid::Fail || event.code == Code::LateBeyondRetention {
            return;
        }
        let own = RefusedEvent::of(event);
        if self
            .refused
            .as_ref()
            .is_none_or(|known| own.is_before(known))
        {
            self.refused = Some(own);
        }
    }

    /// Adds what another part of the same source found.
    ///
    /// # Errors
    /// `INVALID_RECORD` when both parts cannot be of one table.
    pub(crate) fn merge(&mut self, other: Self) -> Result<()> {
        self.findings.merge(other.findings)?;
        self.is_in_vain |= other.is_in_vain;
        for (class, count) in other.other {
            *self.other.entry(class).or_default() += count;
        }
        for (partition, next) in other.offsets {
            let entry = self.offsets.entry(partition).or_insert(next);
            *entry = (*entry).max(next);
        }
        self.events += other.events;
        self.ignored += other.ignored;
        self.absent += other.absent;
        self.unrepresentable += other.unrepresentable;
        self.truncates.extend(other.truncates);
        if let Some(own) = other.refused
            && self
                .refused
                .as_ref()
                .is_none_or(|known| own.is_before(known))
        {
            self.refused = Some(own);
        }
        let columns = self.carried.len().max(other.carried.len());
        self.carried.resize(columns, false);
        for (carried, own) in self.carried.iter_mut().zip(other.carried) {
            *carried |= own;
        }
        self.has_open_changes |= other.has_open_changes;
        Ok(())
    }
}

/// Sequences as JSON text, in the one form of each.
fn texts(encoder: &SequenceEncoder, sequences: &ArrayRef) -> Result<BTreeSet<String>> {
    if sequences.is_empty() {
        return Ok(BTreeSet::new());
    }
    let canonical = encoder.decode(encoder.encode(sequences)?.iter())?;
    let text = |row| Ok(json::value_at(&canonical, row)?.to_string());
    (0..canonical.len()).map(text).collect()
}

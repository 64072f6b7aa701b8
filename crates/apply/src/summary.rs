//! What reading the sources of a batch found, beside the events themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_change::sequence::{SequenceBytes, SequenceEncoder};
use tidegate_change::source::{InvalidEvent, OtherRecords};
use tidegate_change::spec::OnInvalid;
use tidegate_change::{Code, Result, SourceBatch};
use tidegate_decode::Findings;

use crate::classify::Classified;
use crate::kept_batches::KeptBatches;
use crate::limits::Limits;
use crate::reject;
use crate::spill::SpillDirectory;

/// What decoding says beside events.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Records of other classes.
    pub other: OtherRecords,
    /// Greatest offset + 1 found in records.
    pub offsets: BTreeMap<String, i64>,
    /// Fields that JSON events lacked (R-N5).
    pub absent: u64,
    /// Values that Delta cannot hold (R-K9).
    pub unrepresentable: u64,
}

impl Noted {
    /// Takes what a batch says.
    pub(crate) fn take(&mut self, batch: SourceBatch) {
        self.add(Self {
            other: batch.other,
            offsets: batch.offsets,
            absent: batch.absent,
            unrepresentable: batch.unrepresentable,
        });
    }

    /// Adds what another part says.
    pub(crate) fn add(&mut self, other: Self) {
        self.other.add(&other.other);
        self.absent += other.absent;
        self.unrepresentable += other.unrepresentable;
        for (partition, next) in other.offsets {
            let entry = self.offsets.entry(partition).or_insert(next);
            *entry = (*entry).max(next);
        }
    }
}

/// Counts and findings of a round of reading.
#[derive(Debug)]
pub(crate) struct Summary {
    /// What the plan did not know.
    pub findings: Findings,
    /// What decoding says.
    pub noted: Noted,
    /// Events read, quarantined ones included.
    pub events: u64,
    /// Truncates that the policy ignores (R-X6).
    pub ignored: u64,
    /// Sequences of truncates.
    pub truncates: BTreeSet<SequenceBytes>,
    /// Quarantined events.
    pub rejects: KeptBatches,
    /// The first event, by file and record, that must not be set apart (R-S2).
    pub refused: Option<InvalidEvent>,
    on_invalid: OnInvalid,
}

impl Summary {
    /// Nothing read.
    pub(crate) fn new(
        on_invalid: OnInvalid,
        limits: &Limits,
        directory: &Arc<SpillDirectory>,
    ) -> Self {
        Self {
            findings: Findings::default(),
            noted: Noted::default(),
            events: 0,
            ignored: 0,
            truncates: BTreeSet::new(),
            rejects: KeptBatches::new(directory, limits.list_bytes()),
            refused: None,
            on_invalid,
        }
    }

    /// Takes what classifying found beside the events.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says.
    pub(crate) fn take(&mut self, classified: Classified, encoder: &SequenceEncoder) -> Result<()> {
        self.events += classified.events;
        self.ignored += classified.ignored;
        if !classified.truncates.is_empty() {
            let rows = encoder.encode(&classified.truncates)?;
            self.truncates
                .extend(rows.iter().map(SequenceBytes::from_row));
        }
        if classified.rejects.is_empty() {
            return Ok(());
        }
        for event in &classified.rejects {
            self.refuse(event);
        }
        self.rejects.push(reject::reject_rows(&classified.rejects)?)
    }

    fn refuse(&mut self, event: &InvalidEvent) {
        let policy = event.policy.unwrap_or(self.on_invalid);
        let refuses = policy == OnInvalid::Fail && event.code != Code::LateBeyondRetention;
        let place = |event: &InvalidEvent| (Arc::clone(&event.file), event.place.row);
        let first = |known: &InvalidEvent| place(event) < place(known);
        if refuses && self.refused.as_ref().is_none_or(first) {
            self.refused = Some(event.clone());
        }
    }
}

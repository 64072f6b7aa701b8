//! `Adopt`: a table comes back from its log alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_change::{Digest, TableVersion};

use super::create_table::register;
use super::limits::{BATCH_MARKS_MAX, OFFSETS_MAX, SOURCES_MAX};
use super::{BatchMark, Outcome, ProducerMark, Refusal, State, TableId, TableState, Watermark};

/// Takes a table with everything that its log says about progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// The table's id.
    pub table: TableId,
    /// Its name.
    pub name: String,
    /// Its root.
    pub location: String,
    /// The newest version.
    pub head: TableVersion,
    /// Its commit time, milliseconds.
    pub head_time_ms: i64,
    /// Digest of its bytes, where its commit is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_digest: Option<Digest>,
    /// Batches since the table came to be.
    pub batches_count: u64,
    /// The newest batches, oldest first.
    pub marks: Vec<BatchMark>,
    /// Sources with sequence numbers.
    pub producers: BTreeMap<String, ProducerMark>,
    /// Next offset by `source/partition`.
    pub offsets: BTreeMap<String, i64>,
    /// Greatest sequence of any accepted event.
    pub watermark: Watermark,
}

impl Adopt {
    pub(super) fn apply(&self, state: &mut State, index: u64) -> Result<Outcome, Refusal> {
        let fits = self.marks.len() <= BATCH_MARKS_MAX
            && self.producers.len() <= SOURCES_MAX
            && self.offsets.len() <= OFFSETS_MAX
            && self.batches_count >= self.marks.len() as u64;
        if !fits {
            return Err(Refusal::Limit {
                what: "marks in an adopted table".into(),
            });
        }
        let mut table = TableState::unborn(self.name.clone(), self.location.clone(), index);
        table.head = Some(self.head);
        table.head_time_ms = self.head_time_ms;
        table.head_digest = self.head_digest;
        table.batches_count = self.batches_count;
        table.marks = self.marks.iter().cloned().collect();
        table.producers = self.producers.clone();
        table.offsets = self.offsets.clone();
        table.watermark = self.watermark.clone();
        table.require_room(0)?;
        register(state, &self.table, table)
    }
}

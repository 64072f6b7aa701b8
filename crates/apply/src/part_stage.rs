//! Rows that came from other nodes for a commit, held until they are complete.
//!
//! A node may die in the middle of what it sends, and another does its work again. So rows are staged, and
//! the [`Composer`](crate::phases::Composer) takes a stage only once it is whole; it can take it again where
//! the commit must be composed anew.

use std::sync::Arc;

use tidegate_change::Result;

use crate::kept_batches::KeptBatches;
use crate::part::{PartBatch, PartKind};
use crate::plan::{BatchTable, PhaseMeans};
use crate::spill::SpillDirectory;

/// Rows of a reader or of an owner. Memory holds what `Limits` allow.
#[derive(Debug)]
pub struct PartStage {
    dead: KeptBatches,
    places: KeptBatches,
    rejects: KeptBatches,
}

impl PartStage {
    /// No rows yet.
    #[must_use]
    pub fn new(table: &BatchTable, means: &PhaseMeans) -> Self {
        let directory = SpillDirectory::new(&means.limits, table.view.attempt);
        let kept = |directory: &Arc<SpillDirectory>| {
            KeptBatches::new(directory, means.limits.list_bytes())
        };
        Self {
            dead: kept(&directory),
            places: kept(&directory),
            rejects: kept(&directory),
        }
    }

    /// Takes rows.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says.
    pub fn push(&mut self, batch: PartBatch) -> Result<()> {
        let own = match batch.kind {
            PartKind::DeadRows => &mut self.dead,
            PartKind::Places => &mut self.places,
            PartKind::Rejects => &mut self.rejects,
        };
        own.push(batch.rows)
    }

    /// All rows, dead ones first.
    pub(crate) fn each(&self) -> impl Iterator<Item = Result<PartBatch>> + '_ {
        let kinds = [
            (PartKind::DeadRows, &self.dead),
            (PartKind::Places, &self.places),
            (PartKind::Rejects, &self.rejects),
        ];
        kinds.into_iter().flat_map(|(kind, kept)| {
            let rows = kept.each();
            rows.map(move |rows| rows.map(|rows| PartBatch { kind, rows }))
        })
    }
}

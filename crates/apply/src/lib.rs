//! One batch on one bucket set in one process: from source files to the actions of a commit.
//!
//! [`execute`] is the [`phases`] one after the other, in one process:
//!
//! - read: `read` decodes in parallel and lets `classify` evaluate the spec's conditions; the `backlog`
//!   holds the events, in files beyond its share of memory (`spill`);
//! - settle: `settle` says from the summaries of all sources whether the columns are known;
//! - merge: `carrying` fills in what key changes take along, `merging` takes the events slice by slice
//!   (`partition` in memory, `spilled_slices` and `hot_keys` from files), each `slice` groups, finds
//!   (`lookup`), resolves and writes (`output`), `attempt_output` gathers what all slices did;
//! - compose: `composer` joins what all owners did (`part`), `truncation` meets the rows that no event
//!   names, `retention` purges tombstones, and the actions are put together.
//!
//! Where the key index is lost, `index_rebuild` makes it anew before anything is merged. [`integrate`] takes in
//! what other engines committed (`foreign`).
//!
//! Decisions are those of the `merge` crate; this one moves data. Every file carries the attempt's name and
//! nothing is visible before the commit. Memory is bounded by [`Limits`], whatever the batch (invariant 7).
//! How the phases go to several machines: ARCHITECTURE.md, "A batch over several workers".

pub mod limits;
pub mod observer;
pub mod progress;
pub mod work;

mod attempt_output;
mod backlog;
mod bucket_set;
mod carrying;
mod classify;
mod composer;
mod dead_rows;
mod engine;
mod event_part;
mod files;
mod foreign;
mod hot_keys;
mod index_rebuild;
mod kept_batches;
mod lookup;
mod merging;
mod output;
mod part;
mod part_stage;
mod partition;
mod plan;
mod read;
mod regrouping;
mod reject;
mod retention;
mod settle;
mod slice;
mod spill;
mod spilled_slices;
mod summary;
mod table;
mod truncation;

/// The phases of a batch, for nodes that share one.
///
/// A node reads some sources ([`read`](phases::read)), one settles what all readers found
/// ([`settle`](phases::settle)) and plans the merge ([`MergePlan`](phases::MergePlan)), owners of buckets
/// take the events of theirs and merge them ([`MergeIntake`](phases::MergeIntake)), one node composes the
/// commit of their parts ([`Composer`](phases::Composer)). What passes between them is data.
pub mod phases {
    pub use crate::attempt_output::OwnerFiles;
    pub use crate::bucket_set::BucketSet;
    pub use crate::composer::Composer;
    pub use crate::merging::MergeIntake;
    pub use crate::part::{
        FeedDecision, FeedOutline, MergePart, PartBatch, PartKind, PartialManifest, decide_feed,
    };
    pub use crate::part_stage::PartStage;
    pub use crate::plan::{
        BatchContext, BatchTable, COMPOSER, MergePlan, PhaseMeans, ReadCounts, ReadSpec,
    };
    pub use crate::read::{EventCursor, NumberedSource, ReadPart, read};
    pub use crate::settle::{Settled, Settlement, settle};
    pub use crate::summary::{ReadSummary, RefusedEvent};
}

pub use engine::{check_supported, execute};
pub use foreign::{ForeignCounts, ForeignWork, Integration, integrate};
pub use limits::Limits;
pub use observer::{BatchObserver, BatchPhase, BatchProgress};
pub use reject::reject_schema;
pub use tidegate_index::is_damage as is_index_damage;
pub use work::{Manifest, SourceFile, SourceInput, Work};

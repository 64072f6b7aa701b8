//! One batch on one bucket set in one process: from source files to the actions of a commit.
//!
//! Flow of [`execute`]: `sources` decodes in parallel, settles the columns and lets `classify` evaluate the
//! spec's conditions; the `backlog` holds the events, in files beyond its share of memory (`spill`). Then
//! `carrying` fills in what key changes take along, `merging` takes the events slice by slice (`partition`
//! in memory, `spilled_slices` and `hot_keys` from files), each `slice` groups, finds (`lookup`), resolves
//! and writes (`output`), `truncation` meets the rows that no event names, `retention` purges tombstones,
//! `attempt_output` gathers what all did, and `engine` puts the actions together; where the key index is
//! lost, `index_rebuild` makes it anew before all that. Decisions are those of the `merge` crate; this one
//! moves data. Every file carries the attempt's name and nothing is visible
//! before the commit. [`integrate`] takes in what other engines committed (`foreign`).
//!
//! Memory is bounded by [`Limits`], whatever the batch (invariant 7).

pub mod limits;
pub mod observer;
pub mod progress;
pub mod work;

mod attempt_output;
mod backlog;
mod carrying;
mod classify;
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
mod partition;
mod regrouping;
mod reject;
mod retention;
mod slice;
mod sources;
mod spill;
mod spilled_slices;
mod summary;
mod table;
mod truncation;

pub use engine::{check_supported, execute};
pub use foreign::{ForeignCounts, ForeignWork, Integration, integrate};
pub use limits::Limits;
pub use observer::{BatchObserver, BatchPhase, BatchProgress};
pub use reject::reject_schema;
pub use tidegate_index::is_damage as is_index_damage;
pub use work::{Manifest, SourceFile, SourceInput, Work};

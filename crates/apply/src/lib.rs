//! One batch on one bucket set in one process: from source files to the actions of a commit.
//!
//! Flow of [`execute`]: `sources` decodes in parallel and settles the columns, `classify` evaluates the spec's
//! conditions, `partition` regroups by key bucket, `carrying` fills in what key changes take along, `slice`
//! groups, finds (`lookup`), resolves and writes (`output`), `truncation` meets the rows that no event names,
//! `retention` purges tombstones, `engine` puts the actions together. Decisions are those of the `merge`
//! crate; this one moves data. Every file carries the attempt's name and nothing is visible before the commit.

pub mod progress;
pub mod work;

mod carrying;
mod classify;
mod engine;
mod files;
mod lookup;
mod output;
mod partition;
mod reject;
mod retention;
mod slice;
mod sources;
mod table;
mod truncation;

pub use engine::{check_supported, execute};
pub use reject::reject_schema;
pub use work::{Manifest, SourceFile, SourceInput, Work};

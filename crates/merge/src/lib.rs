//! The merge: applies the rules of CDC to the events of a batch and to the stored state of their keys.
//!
//! Pure and synchronous. Flow of one batch: [`carry`] fills values in that key changes take along (R-K6),
//! [`group`] finds the distinct keys and reduces each key's events, the caller looks the keys up and reads
//! the stored rows that [`Grouped::needs_stored`] asks for, [`resolve`] joins both and says which rows to
//! write, [`truncate`] does the same for rows that no event of the batch names. [`condense`] takes the
//! events of a key in pieces, where they are too many for one merge. [`foreign`] gives rows of other engines
//! their hidden state.
//!
//! The state of a key is a join-semilattice: the greatest upsert, the greatest delete (with soft delete the
//! set of them) and per leaf a register with the greatest (sequence, value). Events and stored rows are
//! elements, the result is their join, so that neither order nor batching nor duplication can matter.
//! Truncates and the purge horizon belong to the table and come with [`MergeRules`]; hidden columns hold
//! what a key itself has seen and never repeat a truncate.
//!
//! Values are never moved while keys are decided: the state names the event row or stored row that supplies
//! each leaf, and the rows to write are gathered once at the end.

#![warn(clippy::wildcard_enum_match_arm)]

mod carry;
mod condense;
mod events;
mod feed;
pub mod foreign;
mod group;
mod leaves;
mod resolve;
mod rules;
mod sequences;
mod stored;
#[cfg(test)]
mod table_test;
mod truncate;
mod values;

pub use carry::{Carried, carry};
pub use condense::{Condensed, condense};
pub use events::{EventKind, Events, PayloadColumn};
pub use feed::CHANGE_TYPE;
pub use group::{Grouped, group};
pub use resolve::{Merged, resolve};
pub use rules::{FileBounds, MergeContext, MergeMode, MergeRules, check_supported};
pub use stored::{Stored, StoredRef};
pub use tidegate_change::{Error, Result};
pub use truncate::truncate;

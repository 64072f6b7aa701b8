//! An object store that lies: seeded rules by operation and key, each of which counts how often it hit.
//!
//! - [`ToxicStore`]: wraps any store; every operation asks the rules first.
//! - [`Rule`], [`Toxin`], [`Operation`]: what goes wrong, where and how often.
//! - [`Points`]: the places before and after every operation, at which a simulation stops, and a test may
//!   force one fault.

mod points;
mod rule;
mod store;

pub use points::{Forced, Pause, Points};
pub use rule::{Operation, Rule, Toxin};
pub use store::ToxicStore;

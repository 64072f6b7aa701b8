//! What tests of Tidegate are judged by and made of; dev-only, no product crate depends on it.
//!
//! - [`oracle`]: the naive model of the rules, written apart from the product's merge;
//! - [`scenario`]: specs with batches of events, in the format of the scenario cases;
//! - [`histories`]: random scenarios from a seed, and shrinking of those that fail;
//! - [`drivers`] and [`property`]: histories through the product, compared with the model;
//! - [`faults`]: crashes and disk failures at every durable step; [`toxic`]: a store that lies;
//! - [`commits`]: the commit path of a cluster, simulated;
//! - [`value`]: the model's values; [`dice`]: seeded randomness.

pub mod commits;
pub mod dice;
pub mod drivers;
pub mod faults;
pub mod histories;
pub mod oracle;
pub mod property;
pub mod scenario;
pub mod toxic;
pub mod value;

pub use dice::Dice;
pub use oracle::Oracle;
pub use scenario::Scenario;

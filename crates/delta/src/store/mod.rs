//! Object stores: the one for local directories, and the probe that every store must pass.
//!
//! - [`LocalStore`]: durable writes with atomic create, over files.
//! - [`CheckedStore`]: around any store, so that a short answer is a failure.
//! - [`StepHook`]: called around its durable steps, so that tests can count, fail or end them.
//! - [`probe`]: refuses stores whose creates are not atomic.

mod checked;
mod disk;
mod local;
mod probe;
mod step;
#[cfg(test)]
mod store_test;

pub use checked::CheckedStore;
pub use local::LocalStore;
pub use probe::probe;
pub use step::{Step, StepHook, StepKind};

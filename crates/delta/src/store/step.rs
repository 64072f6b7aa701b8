//! The durable steps of a local store, made visible to tests that count, fail or end them.

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepKind {
    /// Makes a directory.
    CreateDirectory,
    /// Makes a file under its temporary name.
    CreateTemporary,
    /// Writes bytes at the end of a file.
    Append,
    /// Makes a file's bytes durable.
    Sync,
    /// Gives a finished file its name, which must be free.
    Link,
    /// Gives a finished file its name, in place of what had it.
    Rename,
    /// Makes a directory's entries durable.
    SyncDirectory,
    /// Removes a name.
    Delete,
}

/// One durable step of a local store, or of another file format that takes a [`StepHook`].
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// What is done.
    pub kind: StepKind,
    /// The file or directory that gets it; for [`StepKind::Link`] and [`StepKind::Rename`] the final name.
    pub path: &'a Path,
    /// Bytes written by [`StepKind::Append`], else 0.
    pub bytes: u64,
}

/// Called around every durable step; an error takes the place of the step's outcome.
pub trait StepHook: Debug + Send + Sync {
    /// Called before the step; an error keeps it from being done.
    ///
    /// # Errors
    /// Whatever the test wants the step to fail with.
    fn before(&self, step: &Step<'_>) -> io::Result<()>;

    /// Called after a step that was done; an error hides that it was.
    ///
    /// # Errors
    /// Whatever the test wants the step to fail with.
    fn after(&self, step: &Step<'_>) -> io::Result<()> {
        let _ = step;
        Ok(())
    }
}

//! Errors of storage and of stored bytes, with the name of the run.

use std::error::Error as StdError;
use std::fmt;

use object_store::path::Path;
use tidegate_change::{Code, Error};

const REBUILD: &str = "the index is derived from the table: rebuild it";

/// Marks an error as damage of a run, which a rebuild mends; a store that does not answer is none.
#[derive(Debug)]
struct RunDamage {
    /// What the store said of a run that is gone.
    source: Option<object_store::Error>,
}

impl fmt::Display for RunDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Some(_) => "the run is lost",
            None => "the bytes of the run are not those that were written",
        })
    }
}

impl StdError for RunDamage {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.source {
            Some(source) => Some(source),
            None => None,
        }
    }
}

/// Whether an error says that a run is lost or damaged, so that [`crate::rebuild`] helps.
#[must_use]
pub fn is_damage(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(current) = cause {
        if current.is::<RunDamage>() {
            return true;
        }
        cause = current.source();
    }
    false
}

/// A failure of the store on a run.
pub(crate) fn storage(path: &Path, error: object_store::Error) -> Error {
    let object = format!("index run {path}");
    match &error {
        object_store::Error::NotFound { .. } => {
            return Error::new(Code::NotFound, format!("{object}: does not exist"))
                .with_hint(REBUILD)
                .with_source(RunDamage {
                    source: Some(error),
                });
        }
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => {
            return Error::new(
                Code::PermissionDenied,
                format!("{object}: storage refuses access"),
            )
            .with_source(error);
        }
        _ => {}
    }
    let code = io_kind(&error).map_or(Code::Io, |kind| Error::io("", kind.into()).code());
    let what = if code == Code::StorageFull {
        "no space left"
    } else {
        "cannot be read or written"
    };
    Error::new(code, format!("{object}: {what}")).with_source(error)
}

fn io_kind(error: &object_store::Error) -> Option<std::io::ErrorKind> {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = current.source();
    }
    None
}

/// Bytes of a run that contradict themselves.
pub(crate) fn corrupt(path: &Path, what: &str) -> Error {
    Error::corrupt(format!("index run {path}: {what}"))
        .with_hint(REBUILD)
        .with_source(RunDamage { source: None })
}

/// Marks an error as two changes of one key.
#[derive(Debug)]
struct SaidTwice;

impl fmt::Display for SaidTwice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one key has two places")
    }
}

impl StdError for SaidTwice {}

/// Whether an error says that two changes of one commit were of one key.
#[must_use]
pub fn is_said_twice(error: &Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<SaidTwice>())
}

/// One commit says two things of a key.
pub(crate) fn said_twice() -> Error {
    Error::internal("index: two changes of one commit are of one key, or their keys collide")
        .with_source(SaidTwice)
}

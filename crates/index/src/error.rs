//! Errors of storage and of stored bytes, with the name of the run.

use std::error::Error as StdError;

use object_store::path::Path;
use tidegate_change::{Code, Error};

const REBUILD: &str = "the index is derived from the table: rebuild it";

/// A failure of the store on a run.
pub(crate) fn storage(path: &Path, error: object_store::Error) -> Error {
    let object = format!("index run {path}");
    match &error {
        object_store::Error::NotFound { .. } => {
            return Error::new(Code::NotFound, format!("{object}: does not exist"))
                .with_hint(REBUILD)
                .with_source(error);
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
    Error::corrupt(format!("index run {path}: {what}")).with_hint(REBUILD)
}

/// One commit says two things of a key.
pub(crate) fn said_twice() -> Error {
    Error::internal("index: two changes of one commit are of one key, or their keys collide")
}

//! Failures of stores and of file formats as the workspace's errors.

use std::error::Error as StdError;
use std::fmt::Display;
use std::io;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use tidegate_change::{Code, Error};

/// A failure of the object store on a named object, with the code that its cause implies.
///
/// `STORAGE_FULL`, `PERMISSION_DENIED` and `NOT_FOUND` are told apart from other `IO`.
#[must_use]
pub fn storage(object: impl Display, error: object_store::Error) -> Error {
    let (code, what) = classify(&error);
    Error::new(code, format!("{object}: {what}")).with_source(error)
}

/// A failure of Parquet on a named file: the store's if that is the cause, else damage.
#[must_use]
pub fn parquet(object: impl Display, error: ParquetError) -> Error {
    let (code, what) = match find_cause(&error) {
        Some(found) => found,
        None => (Code::Corrupt, "is no valid Parquet file"),
    };
    Error::new(code, format!("{object}: {what}")).with_source(error)
}

/// A failure of Arrow while a named file is read: the store's if that is the cause, else damage.
#[must_use]
pub fn arrow_read(object: impl Display, error: ArrowError) -> Error {
    let (code, what) = match find_cause(&error) {
        Some(found) => found,
        None => (Code::Corrupt, "holds values that its schema does not allow"),
    };
    Error::new(code, format!("{object}: {what}")).with_source(error)
}

/// A failure of Arrow that only a fault of Tidegate explains.
#[must_use]
pub fn arrow_internal(what: impl Display, error: ArrowError) -> Error {
    Error::internal(what.to_string()).with_source(error)
}

fn classify(error: &object_store::Error) -> (Code, &'static str) {
    match find_cause(error) {
        Some(found) => found,
        None => (Code::Io, "cannot be read or written"),
    }
}

/// Walks the chain to the first cause that has a code of its own.
fn find_cause(error: &(dyn StdError + 'static)) -> Option<(Code, &'static str)> {
    let mut cause = Some(error);
    let mut found = None;
    while let Some(error) = cause {
        if let Some(store) = error.downcast_ref::<object_store::Error>() {
            found = Some(match store {
                object_store::Error::NotFound { .. } => (Code::NotFound, "does not exist"),
                object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. } => {
                    (Code::PermissionDenied, "storage refuses access")
                }
                _ => found.unwrap_or((Code::Io, "cannot be read or written")),
            });
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            let code = match io.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Some((Code::StorageFull, "no space left"))
                }
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Some((Code::PermissionDenied, "storage refuses access"))
                }
                io::ErrorKind::NotFound => Some((Code::NotFound, "does not exist")),
                _ => None,
            };
            if code.is_some() {
                return code;
            }
            found = found.or(Some((Code::Io, "cannot be read or written")));
            // An I/O error gives its inner error by `get_ref`, while `source` skips it.
            if let Some(inner) = io.get_ref() {
                let inner: &(dyn StdError + 'static) = inner;
                return find_cause(inner).or(found);
            }
        }
        cause = error.source();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: io::ErrorKind) -> Code {
        let source = Box::new(io::Error::from(kind));
        storage("f", object_store::Error::Generic { store: "s", source }).code()
    }

    #[test]
    fn the_chain_tells_full_from_refused_from_lost() {
        assert_eq!(of(io::ErrorKind::StorageFull), Code::StorageFull);
        assert_eq!(
            of(io::ErrorKind::ReadOnlyFilesystem),
            Code::PermissionDenied
        );
        assert_eq!(of(io::ErrorKind::NotFound), Code::NotFound);
        assert_eq!(of(io::ErrorKind::TimedOut), Code::Io);
    }

    #[test]
    fn parquet_errors_show_the_store_s_cause() {
        let lost = object_store::Error::NotFound {
            path: "p".into(),
            source: "gone".into(),
        };
        assert_eq!(
            parquet("f", ParquetError::External(Box::new(lost))).code(),
            Code::NotFound
        );
        assert_eq!(
            parquet("f", ParquetError::General("bad".into())).code(),
            Code::Corrupt
        );
    }
}

//! The first failure of a store, which is also its last: what the disk holds is unknown after it.

use std::io;
use std::sync::OnceLock;

use tidegate_change::{Code, Error};

/// Why a store takes nothing more.
#[derive(Debug, Default)]
pub(crate) struct FailureCell {
    first: OnceLock<Failure>,
}

#[derive(Debug)]
struct Failure {
    code: Code,
    why: String,
}

impl FailureCell {
    /// Remembers a failure unless there is one.
    pub(super) fn set(&self, error: &Error) {
        let failure = Failure {
            code: error.code(),
            why: error.to_string(),
        };
        if self.first.set(failure).is_ok() {
            tracing::error!(%error, "the metadata log failed and takes nothing more");
        }
    }

    /// The failure as the error of a caller.
    pub(crate) fn error(&self) -> Option<Error> {
        let failure = self.first.get()?;
        let error = Error::new(failure.code, format!("a write failed: {}", failure.why));
        Some(error.with_hint("start again, which reads what the disk really holds"))
    }

    /// The failure in the form that openraft passes on.
    pub(super) fn io_error(&self) -> Option<io::Error> {
        self.error().map(io::Error::other)
    }
}

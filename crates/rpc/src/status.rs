//! Errors as gRPC statuses with details, and back: the one place where codes meet.
//!
//! A status carries `ErrorInfo` (reason = the code, domain `tidegate`, the hint in its metadata), `RetryInfo`
//! where another try may succeed, `BadRequest` where a field of the request is at fault, and the causes as
//! `DebugInfo`.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use tidegate_change::{Code, Error, Kind};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

/// Domain of every `ErrorInfo`.
pub const DOMAIN: &str = "tidegate";
/// Metadata of `ErrorInfo`: what the caller can do.
const HINT: &str = "hint";
/// Metadata of `ErrorInfo`: where the leader is, for `NOT_LEADER`.
const LEADER: &str = "leader_endpoint";
/// Longest text of a status; headers of every client hold it.
const TEXT_BYTES_MAX: usize = 1_500;
/// Causes that a status tells.
const CAUSES_MAX: usize = 4;
/// How long a caller waits before it tries again, where the server knows nothing better.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The status of an error.
#[must_use]
pub fn status_of(error: &Error) -> Status {
    let details = details_of(error);
    Status::with_error_details(
        grpc_code(error.code()),
        shortened(&error.to_string()),
        details,
    )
}

/// The status of an error that a field of the request is at fault for.
#[must_use]
pub fn status_of_field(field: &str, error: &Error) -> Status {
    let mut details = details_of(error);
    let text = shortened(&error.to_string());
    details.add_bad_request_violation(field, text.clone());
    Status::with_error_details(grpc_code(error.code()), text, details)
}

/// The status of a call that only the leader can answer.
#[must_use]
pub fn not_leader(leader_endpoint: Option<&str>) -> Status {
    let error = Error::new(Code::NotLeader, "this node does not lead the cluster");
    let mut details = ErrorDetails::new();
    let metadata = leader_endpoint.map(|endpoint| (LEADER.to_owned(), endpoint.to_owned()));
    details.set_error_info(
        error.code().as_str(),
        DOMAIN,
        metadata.into_iter().collect::<HashMap<_, _>>(),
    );
    details.set_retry_info(Some(RETRY_DELAY));
    Status::with_error_details(grpc_code(error.code()), error.to_string(), details)
}

/// Where the leader is, if the status says so.
#[must_use]
pub fn leader_of(status: &Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    (info.domain == DOMAIN && info.reason == Code::NotLeader.as_str())
        .then(|| info.metadata.get(LEADER).cloned())
        .flatten()
}

/// How long the server asks to wait before another try; None where it asks for none.
#[must_use]
pub fn retry_delay_of(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// Whether the status was made by [`status_of`] or its siblings: a server of Tidegate decided.
#[must_use]
pub fn is_decided(status: &Status) -> bool {
    status
        .get_details_error_info()
        .is_some_and(|info| info.domain == DOMAIN)
}

/// The error that a status tells; one without details has the code that its gRPC code is nearest to.
#[must_use]
pub fn error_of(status: &Status) -> Error {
    let info = status
        .get_details_error_info()
        .filter(|info| info.domain == DOMAIN);
    let code = info
        .as_ref()
        .and_then(|info| Code::from_name(&info.reason))
        .unwrap_or_else(|| nearest_code(status.code()));
    let mut error = Error::new(code, status.message());
    if let Some(hint) = info.and_then(|info| info.metadata.get(HINT).cloned()) {
        error = error.with_hint(hint);
    }
    let causes = status
        .get_details_debug_info()
        .map(|info| info.stack_entries);
    match causes.and_then(Cause::chain) {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

/// The causes of an error, from the outermost to the innermost.
#[must_use]
pub fn causes_of(error: &Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(source) = cause.filter(|_| causes.len() < CAUSES_MAX) {
        causes.push(shortened(&source.to_string()));
        cause = source.source();
    }
    causes
}

/// An error from its parts, as `BatchError` holds them.
#[must_use]
pub fn error_from(code: &str, message: &str, hint: &str, causes: Vec<String>) -> Error {
    let mut error = Error::new(Code::from_name(code).unwrap_or(Code::Internal), message);
    if !hint.is_empty() {
        error = error.with_hint(hint);
    }
    match Cause::chain(causes) {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

/// What another process said of a cause.
#[derive(Debug)]
struct Cause {
    text: String,
    source: Option<Box<Self>>,
}

impl Cause {
    fn chain(texts: Vec<String>) -> Option<Self> {
        texts.into_iter().rev().fold(None, |source, text| {
            Some(Self {
                text,
                source: source.map(Box::new),
            })
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_deref()?;
        Some(source)
    }
}

fn details_of(error: &Error) -> ErrorDetails {
    let mut details = ErrorDetails::new();
    let hint = error.hint().map(|hint| (HINT.to_owned(), shortened(hint)));
    details.set_error_info(
        error.code().as_str(),
        DOMAIN,
        hint.into_iter().collect::<HashMap<_, _>>(),
    );
    if is_worth_a_retry(error.code()) {
        details.set_retry_info(Some(RETRY_DELAY));
    }
    let causes = causes_of(error);
    if !causes.is_empty() {
        details.set_debug_info(causes, "");
    }
    details
}

/// Whether the same call may succeed later.
fn is_worth_a_retry(code: Code) -> bool {
    matches!(
        code.kind(),
        Kind::Conflict | Kind::Unavailable | Kind::Fenced
    )
}

fn grpc_code(code: Code) -> tonic::Code {
    match code {
        Code::TableNotFound | Code::NotFound => tonic::Code::NotFound,
        Code::TableExists => tonic::Code::AlreadyExists,
        Code::StorageFull | Code::ResourceExhausted => tonic::Code::ResourceExhausted,
        Code::TimedOut => tonic::Code::DeadlineExceeded,
        Code::Cancelled => tonic::Code::Cancelled,
        Code::StartAfterLatest | Code::EndAfterLatest | Code::Expired => tonic::Code::OutOfRange,
        Code::BatchContentMismatch
        | Code::BatchIdExpired
        | Code::ForeignRewrite
        | Code::ForeignDuplicate
        | Code::InvalidAlter
        | Code::NotRecorded
        | Code::PermissionDenied
        | Code::Quarantined
        | Code::TruncateRefused => tonic::Code::FailedPrecondition,
        _ => match code.kind() {
            Kind::Conflict | Kind::Fenced => tonic::Code::Aborted,
            Kind::Unavailable => tonic::Code::Unavailable,
            Kind::Invalid => tonic::Code::InvalidArgument,
            Kind::Corrupt => tonic::Code::DataLoss,
            Kind::Unsupported => tonic::Code::Unimplemented,
            Kind::Internal => tonic::Code::Internal,
        },
    }
}

fn nearest_code(code: tonic::Code) -> Code {
    match code {
        tonic::Code::Ok | tonic::Code::Unknown | tonic::Code::Internal => Code::Internal,
        tonic::Code::Cancelled => Code::Cancelled,
        tonic::Code::DeadlineExceeded => Code::TimedOut,
        tonic::Code::NotFound => Code::NotFound,
        tonic::Code::AlreadyExists => Code::TableExists,
        tonic::Code::PermissionDenied | tonic::Code::Unauthenticated => Code::PermissionDenied,
        tonic::Code::ResourceExhausted => Code::ResourceExhausted,
        tonic::Code::Aborted => Code::CommitConflict,
        tonic::Code::Unimplemented => Code::Unsupported,
        tonic::Code::DataLoss => Code::Corrupt,
        tonic::Code::Unavailable => Code::Unavailable,
        tonic::Code::InvalidArgument
        | tonic::Code::FailedPrecondition
        | tonic::Code::OutOfRange => Code::InvalidArgument,
    }
}

/// A text that fits into a header beside others.
fn shortened(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = TEXT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_back_as_it_went() {
        let inner = std::io::Error::other("the disk");
        let error = Error::new(Code::BatchContentMismatch, "table t: the batch id was used")
            .with_hint("use another id")
            .with_source(inner);
        let status = status_of(&error);
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        assert!(is_decided(&status));
        assert_eq!(retry_delay_of(&status), None);
        let back = error_of(&status);
        assert_eq!(back.code(), error.code());
        assert_eq!(back.to_string(), error.to_string());
        assert_eq!(back.hint(), error.hint());
        assert_eq!(back.source().unwrap().to_string(), "the disk");
    }

    #[test]
    fn what_may_succeed_later_says_so() {
        for code in [
            Code::Io,
            Code::CommitConflict,
            Code::Unavailable,
            Code::Fenced,
        ] {
            let status = status_of(&Error::new(code, "x"));
            assert!(retry_delay_of(&status).is_some(), "{code}");
        }
    }

    #[test]
    fn a_field_at_fault_is_named() {
        let status = status_of_field("spec", &Error::new(Code::InvalidSpec, "no keys"));
        let request = status.get_details_bad_request().unwrap();
        assert_eq!(request.field_violations[0].field, "spec");
        assert_eq!(error_of(&status).code(), Code::InvalidSpec);
    }

    #[test]
    fn a_status_of_somebody_else_gets_the_nearest_code() {
        let error = error_of(&Status::unavailable("connection refused"));
        assert_eq!(error.code(), Code::Unavailable);
        assert!(!is_decided(&Status::unavailable("connection refused")));
    }

    #[test]
    fn the_leader_is_told() {
        let status = not_leader(Some("http://127.0.0.1:7421"));
        assert_eq!(leader_of(&status).as_deref(), Some("http://127.0.0.1:7421"));
        assert_eq!(leader_of(&not_leader(None)), None);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ä".repeat(TEXT_BYTES_MAX);
        assert!(shortened(&text).len() <= TEXT_BYTES_MAX + '…'.len_utf8());
    }
}

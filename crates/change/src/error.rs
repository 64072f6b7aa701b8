//! The one error type of the workspace: what the caller does next ([`Kind`]), the stable name that
//! users see ([`Code`]), a sentence that names the object, and the cause.

use std::error::Error as StdError;
use std::fmt;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rebuild on the table's newest version and try again.
    Conflict,
    /// Try again later.
    Unavailable,
    /// Stop: ownership was lost.
    Fenced,
    /// The caller must change its input.
    Invalid,
    /// Stored data contradicts itself: stop and alert.
    Corrupt,
    /// A feature that this build does not have.
    Unsupported,
    /// A fault of Tidegate.
    Internal,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $kind:ident;)*) => {
        /// Stable names of failures, as printed in `error[CODE]` and sent as `ErrorInfo.reason`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// The printed name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
            /// What the caller can do about it.
            #[must_use]
            pub fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind,)* }
            }
            /// The code with that printed name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// A sequence is NULL (R-S2).
    NullSequence = "NULL_SEQUENCE", Invalid;
    /// A key column is NULL (R-K2).
    NullKey = "NULL_KEY", Invalid;
    /// A spec without keys (R-K1).
    EmptyKeys = "EMPTY_KEYS", Invalid;
    /// No sequence column and no source position to take its place.
    MissingSequenceBy = "MISSING_SEQUENCE_BY", Invalid;
    /// A key column that the column selection drops (R-K1).
    KeyNotInColumns = "KEY_NOT_IN_COLUMNS", Invalid;
    /// `column_list` and `except_column_list` together (R-CL1).
    ColumnsAndExcept = "COLUMNS_AND_EXCEPT", Invalid;
    /// A name that the source schema lacks (R-CL1).
    UnknownColumn = "UNKNOWN_COLUMN", Invalid;
    /// A reserved column name (R-CL2).
    ReservedColumn = "RESERVED_COLUMN", Invalid;
    /// History tracking without SCD type 2 (R-H12).
    TrackHistoryRequiresScd2 = "TRACK_HISTORY_REQUIRES_SCD2", Invalid;
    /// A truncate condition without SCD type 1 (R-X1).
    TruncateRequiresScd1 = "TRUNCATE_REQUIRES_SCD1", Invalid;
    /// An update or delete of a source whose rows are only appended (R-K7).
    AppendOnly = "APPEND_ONLY", Invalid;
    /// A truncate of the source under `on_truncate: fail` (R-X6).
    TruncateRefused = "TRUNCATE_REFUSED", Invalid;
    /// Snapshot versions must rise (R-P2).
    OutOfOrderSnapshotVersion = "OUT_OF_ORDER_SNAPSHOT_VERSION", Invalid;
    /// Two rows of a snapshot with one key (R-P3).
    DuplicateKey = "DUPLICATE_KEY", Invalid;
    /// A snapshot without version (R-P6).
    NullSnapshotVersion = "NULL_SNAPSHOT_VERSION", Invalid;
    /// A resync without position (R-P7).
    NoSnapshotPosition = "NO_SNAPSHOT_POSITION", Invalid;
    /// A feed read without start (R-F1).
    NoStart = "NO_START", Invalid;
    /// A feed range that ends before it starts (R-F2).
    InvalidRange = "INVALID_RANGE", Invalid;
    /// A feed range that starts after the newest version (R-F3).
    StartAfterLatest = "START_AFTER_LATEST", Invalid;
    /// A feed range that ends after the newest version (R-F4).
    EndAfterLatest = "END_AFTER_LATEST", Invalid;
    /// A version or bound that is negative, missing or given twice (R-F7).
    InvalidVersion = "INVALID_VERSION", Invalid;
    /// A feed range over versions without feed (R-F5).
    NotRecorded = "NOT_RECORDED", Invalid;
    /// A version whose log or files are gone (R-F6).
    Expired = "EXPIRED", Invalid;
    /// An event at or below the purge horizon (R-G4).
    LateBeyondRetention = "LATE_BEYOND_RETENTION", Invalid;
    /// A value that its declared type cannot hold (R-K8).
    InvalidValue = "INVALID_VALUE", Invalid;
    /// A record that its format does not allow.
    InvalidRecord = "INVALID_RECORD", Invalid;
    /// A spec that contradicts itself or names what does not exist.
    InvalidSpec = "INVALID_SPEC", Invalid;
    /// A change of a spec that an existing table cannot take.
    InvalidAlter = "INVALID_ALTER", Invalid;
    /// An expression of the spec that does not compile or evaluate.
    InvalidExpression = "INVALID_EXPRESSION", Invalid;
    /// Another process holds the directory.
    DirectoryHeld = "DIRECTORY_HELD", Unavailable;
    /// A batch id that was used with other content.
    BatchContentMismatch = "BATCH_CONTENT_MISMATCH", Invalid;
    /// A batch id older than the window of remembered ids.
    BatchIdExpired = "BATCH_ID_EXPIRED", Invalid;
    /// No table of that name.
    TableNotFound = "TABLE_NOT_FOUND", Invalid;
    /// A table of that name exists.
    TableExists = "TABLE_EXISTS", Invalid;
    /// A location outside the roots, or one that overlaps another table's.
    InvalidLocation = "INVALID_LOCATION", Invalid;
    /// A command-line argument or option that cannot be used.
    InvalidArgument = "INVALID_ARGUMENT", Invalid;
    /// A foreign commit rewrote files of the table and lost their hidden columns.
    ForeignRewrite = "FOREIGN_REWRITE", Invalid;
    /// A foreign commit wrote a row whose key is live.
    ForeignDuplicate = "FOREIGN_DUPLICATE", Invalid;
    /// The table refuses writes until an operator releases it.
    Quarantined = "QUARANTINED", Invalid;
    /// The log in the store is shorter than the metadata says.
    LogBehindRaft = "LOG_BEHIND_RAFT", Corrupt;
    /// Another commit took the version; rebuild on the new head.
    CommitConflict = "COMMIT_CONFLICT", Conflict;
    /// The attempt or epoch is no longer current.
    Fenced = "FENCED", Fenced;
    /// This node does not lead its metadata group, and the leader is not known or cannot be reached.
    NotLeader = "NOT_LEADER", Unavailable;
    /// Nobody knows yet whether the change was decided: ask for its outcome, or send it again.
    OutcomeUnknown = "OUTCOME_UNKNOWN", Unavailable;
    /// A file that cannot be read or written.
    Io = "IO", Unavailable;
    /// No space on the device.
    StorageFull = "STORAGE_FULL", Unavailable;
    /// Storage refuses writes or reads.
    PermissionDenied = "PERMISSION_DENIED", Invalid;
    /// A file or object that does not exist.
    NotFound = "NOT_FOUND", Invalid;
    /// The object store does not create atomically.
    UnsafeStore = "UNSAFE_STORE", Unsupported;
    /// Stored bytes that contradict their checksum or their format.
    Corrupt = "CORRUPT", Corrupt;
    /// A limit of the product was reached.
    ResourceExhausted = "RESOURCE_EXHAUSTED", Unavailable;
    /// A feature that this build does not have.
    Unsupported = "UNSUPPORTED", Unsupported;
    /// A wait ran out of time.
    TimedOut = "TIMED_OUT", Unavailable;
    /// A server that cannot be reached, or that stops.
    Unavailable = "UNAVAILABLE", Unavailable;
    /// Stopped because the caller asked for it.
    Cancelled = "CANCELLED", Invalid;
    /// A fault of Tidegate.
    Internal = "INTERNAL", Internal;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure: its code, a sentence that names the object, at most one hint, and the cause.
///
/// `Display` prints the sentence only; the chain is walked by whoever logs it. Never holds row values.
#[derive(Debug)]
pub struct Error {
    code: Code,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error with a code and a sentence (lowercase, no final period, names the object).
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Puts the object in front of the sentence: `"{context}: {message}"`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// A fault of Tidegate.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Stored bytes that contradict themselves.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Code::Corrupt, message)
    }

    /// An I/O failure on a named object, with the code that its kind implies.
    #[must_use]
    pub fn io(object: impl fmt::Display, error: std::io::Error) -> Self {
        let (code, what) = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                (Code::StorageFull, "no space left")
            }
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                (Code::PermissionDenied, "storage refuses access")
            }
            std::io::ErrorKind::NotFound => (Code::NotFound, "does not exist"),
            _ => (Code::Io, "cannot be read or written"),
        };
        Self::new(code, format!("{object}: {what}")).with_source(error)
    }

    /// The stable name.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What the caller can do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.code.kind()
    }

    /// What the user can do, if there is one clear step.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| {
            let source: &(dyn StdError + 'static) = source.as_ref();
            source
        })
    }
}

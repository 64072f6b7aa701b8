//! The closed sets of values that spec fields take, with their defaults.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Retention;

pub(super) fn flat() -> String {
    "flat".into()
}

pub(super) fn seven_days() -> Retention {
    Retention::For { ms: 7 * 86_400_000 }
}

pub(super) fn checkpoint_bytes() -> u64 {
    8 << 20
}

pub(super) fn checkpoint_commits() -> u64 {
    100
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }
     default $default:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)* }
        impl Default for $name { fn default() -> Self { Self::$default } }
    };
}

words! {
    /// Whether deletes remove rows.
    DeleteMode {
        /// The row goes.
        Hard = "hard",
        /// The row stays, with `is_deleted` and `deleted_at` (R-L1).
        Soft = "soft",
    } default Hard
}
words! {
    /// What a batch of a table is.
    TableMode {
        /// Change events.
        Cdc = "cdc",
        /// Rows that are stored once by key (R-I1).
        InsertOnly = "insert_only",
        /// The whole source at one moment (R-P6).
        Snapshot = "snapshot",
        /// Rows without key, each once by source position (R-K7).
        Append = "append",
    } default Cdc
}
words! {
    /// What happens to invalid events.
    OnInvalid {
        /// The batch is refused (R-S2).
        Fail = "fail",
        /// The event goes to the rejects table (R-S2q).
        Quarantine = "quarantine",
    } default Fail
}
words! {
    /// What happens to events below the purge horizon.
    LatePolicy {
        /// They go to the rejects table (R-G4).
        Quarantine = "quarantine",
        /// They are applied as if nothing had been purged (R-G5).
        Apply = "apply",
    } default Quarantine
}
words! {
    /// Which changes of the source's schema are taken.
    SchemaEvolution {
        /// None.
        None = "none",
        /// New nullable columns (R-E1).
        AddColumns = "add_columns",
        /// Those, and lossless widening (R-E2).
        WidenTypes = "widen_types",
    } default AddColumns
}
words! {
    /// What truncate records of the source do (R-X6).
    OnTruncate {
        /// They apply at their sequence.
        Apply = "apply",
        /// They are counted.
        Ignore = "ignore",
        /// The batch is refused.
        Fail = "fail",
    } default Apply
}
words! {
    /// Whether upkeep runs by itself.
    MaintenanceMode {
        /// It does.
        Auto = "auto",
        /// Only by command.
        Manual = "manual",
    } default Auto
}
words! {
    /// How a value arrives where the source carries no types.
    TimestampEncoding {
        /// Seconds since the epoch.
        EpochSeconds = "epoch_s",
        /// Milliseconds since the epoch.
        EpochMillis = "epoch_ms",
        /// Microseconds since the epoch.
        EpochMicros = "epoch_us",
        /// Nanoseconds since the epoch.
        EpochNanos = "epoch_ns",
        /// Binary as base64.
        Base64 = "base64",
        /// Binary as hex.
        Hex = "hex",
    } default EpochMillis
}

/// Slowly changing dimension type of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScdType {
    /// The first row stays.
    Zero,
    /// The last row stays.
    #[default]
    One,
    /// Every version stays (R-H1).
    Two,
}

impl Serialize for ScdType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::Two => 2,
        })
    }
}

impl<'de> Deserialize<'de> for ScdType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u8::deserialize(deserializer)? {
            0 => Ok(Self::Zero),
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            other => Err(D::Error::custom(format!(
                "stored_as_scd_type is 0, 1 or 2, not {other}"
            ))),
        }
    }
}

/// A column or a list of columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One column: the sequence has its type.
    One(String),
    /// A STRUCT, compared in order.
    Many(Vec<String>),
}

impl OneOrMany {
    /// The columns in order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }
}

/// For which columns a NULL is not authored (R-N2, R-N7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IgnoreNull {
    /// None or all.
    Switch(bool),
    /// These.
    Columns(Vec<String>),
    /// All but these.
    Except {
        /// The exceptions.
        except: Vec<String>,
    },
}

impl Default for IgnoreNull {
    fn default() -> Self {
        Self::Switch(false)
    }
}

impl IgnoreNull {
    /// Whether NULLs overwrite everywhere (R-N1).
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == Self::Switch(false)
    }

    /// Whether a NULL in that column is not authored.
    #[must_use]
    pub fn covers(&self, column: &str) -> bool {
        match self {
            Self::Switch(on) => *on,
            Self::Columns(names) => names.iter().any(|name| name == column),
            Self::Except { except } => !except.iter().any(|name| name == column),
        }
    }
}

/// How the change feed is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FeedMode {
    /// No change files; readers infer changes from data files and deletion vectors (R-C9).
    #[default]
    Inferred,
    /// Change files wherever a reader could not infer the net change (R-C8).
    True,
    /// No feed.
    False,
}

impl Serialize for FeedMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inferred => serializer.serialize_str("inferred"),
            Self::True => serializer.serialize_bool(true),
            Self::False => serializer.serialize_bool(false),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BoolOrWord {
    Bool(bool),
    Word(String),
}

impl<'de> Deserialize<'de> for FeedMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match BoolOrWord::deserialize(deserializer)? {
            BoolOrWord::Bool(true) => Ok(Self::True),
            BoolOrWord::Bool(false) => Ok(Self::False),
            BoolOrWord::Word(word) => match word.as_str() {
                "inferred" => Ok(Self::Inferred),
                "true" => Ok(Self::True),
                "false" => Ok(Self::False),
                _ => Err(D::Error::custom(
                    "change_data_feed is inferred, true or false",
                )),
            },
        }
    }
}

/// Number of key buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Buckets {
    /// Chosen by Tidegate.
    #[default]
    Auto,
    /// A power of two.
    Count(u32),
}

impl Buckets {
    /// The number: as written, or the default.
    #[must_use]
    pub fn count(self) -> u32 {
        match self {
            Self::Auto => 16,
            Self::Count(count) => count,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrWord {
    Number(u32),
    Word(String),
}

impl Serialize for Buckets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u32(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Buckets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match NumberOrWord::deserialize(deserializer)? {
            NumberOrWord::Number(count) => Ok(Self::Count(count)),
            NumberOrWord::Word(word) if word == "auto" => Ok(Self::Auto),
            NumberOrWord::Word(_) => Err(D::Error::custom("buckets is auto or a power of two")),
        }
    }
}

/// A policy one of whose words is `null`, which YAML reads as nothing.
macro_rules! nullable_words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub enum $name {
            /// The value reads NULL.
            #[default]
            Null,
            $($(#[$vdoc])* $variant,)*
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::Null => serializer.serialize_str("null"),
                    $(Self::$variant => serializer.serialize_str($word),)*
                }
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match Option::<String>::deserialize(deserializer)?.as_deref() {
                    None | Some("null" | "~" | "") => Ok(Self::Null),
                    $(Some($word) => Ok(Self::$variant),)*
                    Some(_) => Err(D::Error::custom(concat!("expected null", $(", ", $word),*))),
                }
            }
        }
    };
}

nullable_words! {
    /// What a declared field means that a JSON event lacks (R-N5).
    AbsentFields {
        /// The event does not author it.
        Keep = "keep",
    }
}
nullable_words! {
    /// What happens to values that Delta cannot hold (R-K9).
    OnUnrepresentable {
        /// The batch is refused.
        Fail = "fail",
        /// The event goes to the rejects table.
        Quarantine = "quarantine",
    }
}

//! Text to typed values and back, exactly (R-K8).
//!
//! - [`number`]: integers, floats and decimals; never through a type that cannot hold all digits.
//! - [`time`]: dates, timestamps and times of day, by the calendar that Delta uses.
//! - [`binary`]: base64 and hex.
//!
//! Parsers tell a text that is no value of the type from a value that Delta cannot hold (R-K9).
//! What the writers print is what the parsers read.

pub mod binary;
pub mod number;
pub mod time;

/// Why a text gives no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No value of the type, or one that the type holds only with loss.
    Invalid,
    /// A well-formed value that Delta cannot hold: ±infinity, years beyond 1 to 9999, numeric NaN (R-K9).
    Unrepresentable,
}

/// A value, or why there is none.
pub type Parsed<T> = Result<T, Failure>;

/// Parses a boolean: `true` and `false` in any case, and the `t` and `f` of PostgreSQL's dumps.
///
/// # Errors
/// [`Failure::Invalid`] for any other text.
pub fn parse_boolean(text: &str) -> Parsed<bool> {
    match text {
        "true" | "t" => Ok(true),
        "false" | "f" => Ok(false),
        _ if text.eq_ignore_ascii_case("true") || text == "T" => Ok(true),
        _ if text.eq_ignore_ascii_case("false") || text == "F" => Ok(false),
        _ => Err(Failure::Invalid),
    }
}

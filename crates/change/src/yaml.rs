//! What users write as YAML or JSON; an unknown field is refused with the nearest known name.

use serde::de::DeserializeOwned;

use crate::{Code, Error, Result};

/// Reads a text; `what` names it in errors.
///
/// # Errors
/// An error of the code, with line and field.
pub fn read<T: DeserializeOwned>(what: &str, code: Code, text: &str) -> Result<T> {
    serde_saphyr::from_str(text).map_err(|error| refused(what, code, &error))
}

fn refused(what: &str, code: Code, error: &serde_saphyr::Error) -> Error {
    let text = error.to_string();
    let line = text
        .lines()
        .next()
        .unwrap_or(&text)
        .trim()
        .trim_start_matches("error: ");
    // The list of all known names helps nobody; the nearest one does.
    let (message, known) = line.split_once(", expected").unwrap_or((line, ""));
    let built = Error::new(code, format!("{what} cannot be read: {message}"));
    match suggestion(message, known) {
        Some(name) => built.with_hint(format!("did you mean {name:?}?")),
        None => built,
    }
}

/// The known name nearest to the unknown one that the message quotes.
fn suggestion(message: &str, known: &str) -> Option<String> {
    let unknown = message.split('`').nth(1)?;
    known
        .trim_start_matches(" one of")
        .split([',', ' '])
        .map(|name| name.trim_matches('`'))
        .filter(|name| !name.is_empty())
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(2))
        .min()
        .map(|(_, name)| name.to_owned())
}

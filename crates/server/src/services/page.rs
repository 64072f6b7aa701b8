//! Pages of lists: their size, and the token that says where the next one begins.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_change::{Code, Error, Result};

/// Entries of a page where the caller does not say.
const SIZE_DEFAULT: usize = 100;
/// Entries of a page at most.
const SIZE_MAX: usize = 1_000;

/// The number of entries of a page.
pub(super) fn size(asked: u32) -> usize {
    match usize::try_from(asked) {
        Ok(0) => SIZE_DEFAULT,
        Ok(size) => size.min(SIZE_MAX),
        Err(_) => SIZE_MAX,
    }
}

/// The token of a place in a list.
pub(super) fn token<T: Serialize>(place: &T) -> Result<String> {
    let text = serde_json::to_vec(place)
        .map_err(|e| Error::internal("a page token cannot be written").with_source(e))?;
    Ok(URL_SAFE_NO_PAD.encode(text))
}

/// The place of a token; None for the first page.
///
/// # Errors
/// `INVALID_ARGUMENT` for a text that is no token of this list.
pub(super) fn place<T: DeserializeOwned>(token: &str) -> Result<Option<T>> {
    if token.is_empty() {
        return Ok(None);
    }
    let place = URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    match place {
        Some(place) => Ok(Some(place)),
        None => Err(Error::new(
            Code::InvalidArgument,
            "page_token: is none of this list",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_place() {
        let token = token(&("orders".to_owned(), 7_u64)).unwrap();
        assert_eq!(place(&token).unwrap(), Some(("orders".to_owned(), 7_u64)));
        assert_eq!(place::<String>("").unwrap(), None);
        for bad in ["x", "!!", &token] {
            assert!(place::<String>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_page_is_bounded() {
        assert_eq!((size(0), size(7), size(u32::MAX)), (100, 7, 1_000));
    }
}

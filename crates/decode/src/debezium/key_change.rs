//! Key changes: a delete of the old key and an upsert of the new one (R-K5, R-K6).
//!
//! Debezium sends the halves as two events, tied by headers; where a sink dropped those, only the same
//! position ties them, and only when nothing stands between them.

use std::sync::Arc;

use super::schema::Binding;
use crate::scan::{Kind, Raw};

/// The header that names the old key on the upsert half.
const OLD_KEY: &str = "__debezium.oldkey";

/// A delete that may be the first half of a key change.
#[derive(Debug)]
pub(crate) struct FirstHalf {
    /// The object that has the old key, as JSON text.
    pub(crate) key: String,
    pub(crate) binding: Option<Arc<Binding>>,
    /// What the second half has to share.
    pub(crate) tie: String,
}

/// The old key among a record's headers: an object, a list of pairs, or a flat list.
pub(crate) fn old_key_header(headers: Raw<'_>) -> Option<Raw<'_>> {
    if !headers.0.contains(OLD_KEY) {
        return None;
    }
    let mut found = None;
    match headers.kind() {
        Kind::Object => {
            headers
                .members(|name, value| {
                    if name.plain() == Some(OLD_KEY) {
                        found = Some(value);
                    }
                    Ok(())
                })
                .ok()?;
        }
        Kind::Array => {
            let mut is_next = false;
            headers
                .elements(|item| {
                    if is_next {
                        found = Some(item);
                    }
                    is_next = item.string().as_deref() == Some(OLD_KEY);
                    if item.kind() == Kind::Object {
                        found = pair_value(item).or(found);
                    }
                    Ok(())
                })
                .ok()?;
        }
        _ => {}
    }
    found
}

fn pair_value(pair: Raw<'_>) -> Option<Raw<'_>> {
    let (mut named, mut found) = (false, None);
    pair.members(|name, value| {
        match name.plain() {
            Some("key") => named = value.string().as_deref() == Some(OLD_KEY),
            Some("value") => found = Some(value),
            Some(OLD_KEY) => (named, found) = (true, Some(value)),
            _ => {}
        }
        Ok(())
    })
    .ok()?;
    found.filter(|_| named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_in_three_shapes() {
        for headers in [
            r#"{"__debezium.oldkey":{"id":3},"x":1}"#,
            r#"[{"key":"x","value":"y"},{"key":"__debezium.oldkey","value":{"id":3}}]"#,
            r#"["x","y","__debezium.oldkey",{"id":3}]"#,
            r#"[{"__debezium.oldkey":{"id":3}}]"#,
        ] {
            assert_eq!(
                old_key_header(Raw(headers)),
                Some(Raw("{\"id\":3}")),
                "{headers}"
            );
        }
        assert_eq!(
            old_key_header(Raw(r#"{"__debezium.newkey":{"id":3}}"#)),
            None
        );
    }
}

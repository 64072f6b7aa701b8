//! The members of an object in the order in which they were written.

use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use tidegate_change::{Error, Result};

/// Names and values, in order.
#[derive(Debug)]
pub(super) struct Members(pub(super) Vec<(String, Value)>);

impl Members {
    /// The members of what serialises as an object.
    pub(super) fn of(object: &impl Serialize) -> Result<Self> {
        let failed = |e| Error::internal("a result is no object").with_source(e);
        let text = serde_json::to_string(object).map_err(failed)?;
        serde_json::from_str(&text).map_err(failed)
    }

    /// The value with a name; null where there is none.
    pub(super) fn get(&self, name: &str) -> &Value {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map_or(&Value::Null, |(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

//! Types as the text that specs write, for findings that go to another node.

use arrow::datatypes::DataType;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_change::types::{parse_type, type_name};

pub(crate) fn serialize<S: Serializer>(data_type: &DataType, to: S) -> Result<S::Ok, S::Error> {
    type_name(data_type)
        .map_err(S::Error::custom)?
        .serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DataType, D::Error> {
    parse_type(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// The same where there may be none.
pub(crate) mod optional {
    use super::{
        DataType, Deserialize, Deserializer, Serialize, Serializer, parse_type, type_name,
    };
    use serde::de::Error as _;
    use serde::ser::Error as _;

    pub(crate) fn serialize<S: Serializer>(
        data_type: &Option<DataType>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let name = data_type.as_ref().map(type_name).transpose();
        name.map_err(S::Error::custom)?.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<DataType>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        let data_type = name.map(|name| parse_type(&name)).transpose();
        data_type.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::datatypes::Field;
    use tidegate_change::types;

    use super::*;
    use crate::findings::{Findings, FoundAt, SeenField};
    use crate::seen::Seen;

    #[test]
    fn findings_survive_the_way_to_another_node() {
        let position = DataType::Struct(
            vec![
                Field::new("lsn", DataType::Int64, true),
                Field::new("rank", DataType::Int8, true),
            ]
            .into(),
        );
        let field = |name: &str, seen: Seen| SeenField {
            name: name.into(),
            at: Some(FoundAt {
                file: "a.jsonl".into(),
                line: 7,
            }),
            seen,
        };
        let nested = Seen::Struct(vec![("x".into(), Seen::Big), ("y".into(), Seen::Nothing)]);
        let found = Findings {
            fields: vec![
                field("a", Seen::Typed(types::timestamp_utc())),
                field("b", Seen::List(Box::new(nested))),
            ],
            widened: vec![field("c", Seen::Typed(DataType::Decimal128(20, 3)))],
            position: Some(position),
            position_at: None,
            tables: BTreeSet::from(["shop.orders".into()]),
        };
        for findings in [found, Findings::default()] {
            let text = serde_json::to_string(&findings).unwrap();
            assert_eq!(serde_json::from_str::<Findings>(&text).unwrap(), findings);
        }
    }
}

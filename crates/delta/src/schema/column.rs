//! Columns as the log's JSON describes them, with their metadata kept.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field, Fields};
use serde_json::{Map, Value, json};
use tidegate_change::{Error, Result, types};

use super::FIELD_ID;

const MAPPING_ID: &str = "delta.columnMapping.id";
const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";

/// A column, or a member of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) data_type: ColumnType,
    pub(crate) nullable: bool,
    pub(crate) metadata: Map<String, Value>,
}

/// The type of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ColumnType {
    Primitive(DataType),
    Struct(Vec<Column>),
    Array {
        element: Box<ColumnType>,
        nullable: bool,
    },
    Map {
        key: Box<ColumnType>,
        value: Box<ColumnType>,
        nullable: bool,
    },
}

impl Column {
    pub(crate) fn physical_name(&self) -> &str {
        self.metadata
            .get(PHYSICAL_NAME)
            .and_then(Value::as_str)
            .unwrap_or(&self.name)
    }

    pub(crate) fn mapping_id(&self) -> Option<i64> {
        self.metadata.get(MAPPING_ID).and_then(Value::as_i64)
    }

    pub(crate) fn set_mapping(&mut self, id: i64, physical_name: &str) {
        self.metadata.insert(MAPPING_ID.into(), id.into());
        self.metadata
            .insert(PHYSICAL_NAME.into(), physical_name.into());
    }

    fn arrow_field(&self, physical: bool) -> Field {
        let name = if physical {
            self.physical_name()
        } else {
            &self.name
        };
        let field = Field::new(name, self.data_type.arrow(physical), true);
        match self.mapping_id().filter(|_| physical) {
            Some(id) => field.with_metadata(HashMap::from([(FIELD_ID.to_owned(), id.to_string())])),
            None => field,
        }
    }
}

impl ColumnType {
    pub(crate) fn arrow(&self, physical: bool) -> DataType {
        match self {
            Self::Primitive(data_type) => data_type.clone(),
            Self::Struct(members) => DataType::Struct(arrow_fields(members, physical).into()),
            Self::Array { element, .. } => types::list_of(element.arrow(physical)),
            Self::Map { key, value, .. } => {
                types::map_of(key.arrow(physical), value.arrow(physical))
            }
        }
    }
}

pub(crate) fn arrow_fields(columns: &[Column], physical: bool) -> Vec<Field> {
    columns
        .iter()
        .map(|column| column.arrow_field(physical))
        .collect()
}

/// Columns without metadata, for Arrow fields.
pub(crate) fn of_arrow(fields: &Fields) -> Result<Vec<Column>> {
    fields
        .iter()
        .map(|field| {
            let data_type = type_of_arrow(field.data_type())
                .map_err(|e| e.context(format!("column {}", field.name())))?;
            Ok(Column {
                name: field.name().clone(),
                data_type,
                nullable: true,
                metadata: Map::new(),
            })
        })
        .collect()
}

fn type_of_arrow(data_type: &DataType) -> Result<ColumnType> {
    Ok(match data_type {
        DataType::Struct(fields) => ColumnType::Struct(of_arrow(fields)?),
        DataType::List(item) => ColumnType::Array {
            element: Box::new(type_of_arrow(item.data_type())?),
            nullable: true,
        },
        DataType::Map(entries, _) => {
            let DataType::Struct(pair) = entries.data_type() else {
                return Err(Error::internal("a map without entries"));
            };
            let part = |position: usize| {
                let field = pair
                    .get(position)
                    .ok_or_else(|| Error::internal("a map without entries"))?;
                type_of_arrow(field.data_type()).map(Box::new)
            };
            ColumnType::Map {
                key: part(0)?,
                value: part(1)?,
                nullable: true,
            }
        }
        primitive => {
            types::type_name(primitive)?;
            ColumnType::Primitive(primitive.clone())
        }
    })
}

/// The JSON of a table's schema.
pub(crate) fn to_json(columns: &[Column]) -> String {
    struct_json(columns).to_string()
}

fn struct_json(columns: &[Column]) -> Value {
    let fields: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name,
                "type": type_json(&column.data_type),
                "nullable": column.nullable,
                "metadata": column.metadata,
            })
        })
        .collect();
    json!({ "type": "struct", "fields": fields })
}

fn type_json(data_type: &ColumnType) -> Value {
    match data_type {
        ColumnType::Primitive(primitive) => {
            Value::String(types::type_name(primitive).unwrap_or_default())
        }
        ColumnType::Struct(columns) => struct_json(columns),
        ColumnType::Array { element, nullable } => json!({
            "type": "array", "elementType": type_json(element), "containsNull": nullable,
        }),
        ColumnType::Map {
            key,
            value,
            nullable,
        } => json!({
            "type": "map", "keyType": type_json(key), "valueType": type_json(value),
            "valueContainsNull": nullable,
        }),
    }
}

/// The columns of a table's schema JSON.
pub(crate) fn parse(text: &str) -> Result<Vec<Column>> {
    let value: Value = serde_json::from_str(text)
        .map_err(|e| Error::corrupt("table schema: no JSON").with_source(e))?;
    parse_struct(&value)
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!("table schema: {what}"))
}

fn parse_struct(value: &Value) -> Result<Vec<Column>> {
    let fields = value.get("fields").and_then(Value::as_array);
    let fields = fields.ok_or_else(|| damaged("a struct without fields"))?;
    fields
        .iter()
        .map(|field| {
            let name = field.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| damaged("a field without name"))?;
            let data_type = field
                .get("type")
                .ok_or_else(|| damaged("a field without type"))?;
            let data_type =
                parse_column_type(data_type).map_err(|e| e.context(format!("column {name}")))?;
            let metadata = field.get("metadata").and_then(Value::as_object).cloned();
            Ok(Column {
                name: name.to_owned(),
                data_type,
                nullable: field
                    .get("nullable")
                    .and_then(Value::as_bool)
                    .unwrap_or(true),
                metadata: metadata.unwrap_or_default(),
            })
        })
        .collect()
}

fn parse_column_type(value: &Value) -> Result<ColumnType> {
    let member = |name: &str| {
        let inner = value
            .get(name)
            .ok_or_else(|| damaged(&format!("a type without {name}")))?;
        parse_column_type(inner).map(Box::new)
    };
    let flag = |name: &str| value.get(name).and_then(Value::as_bool).unwrap_or(true);
    if let Some(name) = value.as_str() {
        let parsed = types::parse_type(name)
            .map_err(|e| Error::new(tidegate_change::Code::Unsupported, e.to_string()))?;
        return Ok(ColumnType::Primitive(parsed));
    }
    match value.get("type").and_then(Value::as_str) {
        Some("struct") => parse_struct(value).map(ColumnType::Struct),
        Some("array") => Ok(ColumnType::Array {
            element: member("elementType")?,
            nullable: flag("containsNull"),
        }),
        Some("map") => Ok(ColumnType::Map {
            key: member("keyType")?,
            value: member("valueType")?,
            nullable: flag("valueContainsNull"),
        }),
        _ => Err(damaged("a type of no kind")),
    }
}

//! Schemas of a table over its versions: names, ids of column mapping, and the record of widening.

use std::collections::BTreeSet;

use arrow::datatypes::{DataType, Schema};
use serde_json::{Value, json};
use tidegate_change::{Code, Error, Result, types};

use super::Column;
use super::column::{ColumnType, of_arrow};

const TYPE_CHANGES: &str = "delta.typeChanges";
/// Characters that Delta forbids in column names without column mapping.
const FORBIDDEN: &str = " ,;{}()\n\t=";

/// Columns with their metadata, and the highest id of column mapping.
#[derive(Clone, Debug)]
pub(crate) struct Assigned {
    pub(crate) columns: Vec<Column>,
    pub(crate) max_id: i64,
}

/// Whether a name, here or in a struct, needs column mapping.
pub(crate) fn needs_mapping(columns: &[Column]) -> bool {
    forbidden_column(columns).is_some()
}

/// The first column whose name, or a name in it, needs column mapping.
pub(crate) fn forbidden_column(columns: &[Column]) -> Option<&str> {
    let is_bad = |column: &Column| is_forbidden(&column.name);
    let found = columns
        .iter()
        .find(|column| is_bad(column) || any_in_type(&column.data_type, &is_bad));
    found.map(|column| column.name.as_str())
}

/// Whether Delta forbids the name without column mapping.
fn is_forbidden(name: &str) -> bool {
    name.contains(|c| FORBIDDEN.contains(c))
}

/// Whether a type is used anywhere.
pub(crate) fn uses_type(columns: &[Column], wanted: &DataType) -> bool {
    columns
        .iter()
        .any(|column| type_uses(&column.data_type, wanted))
}

/// Whether some column was widened.
pub(crate) fn was_widened(columns: &[Column]) -> bool {
    any_column(columns, &|column| {
        column.metadata.contains_key(TYPE_CHANGES)
    })
}

fn any_column(columns: &[Column], holds: &dyn Fn(&Column) -> bool) -> bool {
    columns
        .iter()
        .any(|column| holds(column) || any_in_type(&column.data_type, holds))
}

fn any_in_type(data_type: &ColumnType, holds: &dyn Fn(&Column) -> bool) -> bool {
    match data_type {
        ColumnType::Primitive(_) => false,
        ColumnType::Struct(members) => any_column(members, holds),
        ColumnType::Array { element, .. } => any_in_type(element, holds),
        ColumnType::Map { key, value, .. } => any_in_type(key, holds) || any_in_type(value, holds),
    }
}

fn type_uses(data_type: &ColumnType, wanted: &DataType) -> bool {
    match data_type {
        ColumnType::Primitive(primitive) => primitive == wanted,
        ColumnType::Struct(members) => uses_type(members, wanted),
        ColumnType::Array { element, .. } => type_uses(element, wanted),
        ColumnType::Map { key, value, .. } => type_uses(key, wanted) || type_uses(value, wanted),
    }
}

/// The columns of a schema with the metadata of the same columns before, and the record of what was widened.
///
/// # Errors
/// `INVALID_SPEC` for names that Delta cannot hold, `INVALID_ALTER` for a change that is no widening.
pub(crate) fn assign(
    previous: &[Column],
    schema: &Schema,
    table_id: &str,
    mapping: Option<i64>,
) -> Result<Assigned> {
    let mut columns = of_arrow(schema.fields())?;
    check_names(&columns)?;
    inherit(&mut columns, previous)?;
    let mut max_id = mapping.unwrap_or(0);
    if mapping.is_some() {
        assign_ids(&mut columns, previous, table_id, &mut max_id);
    }
    Ok(Assigned { columns, max_id })
}

fn check_names(columns: &[Column]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for column in columns {
        let name = &column.name;
        if name.is_empty() {
            return Err(Error::new(Code::InvalidSpec, "a column has an empty name")
                .with_hint("give it a name under source.columns"));
        }
        if !seen.insert(name.to_lowercase()) {
            let message = format!("column {name}: another column's name differs only in case");
            return Err(Error::new(Code::InvalidSpec, message)
                .with_hint("rename one of them under source.columns"));
        }
        if let ColumnType::Struct(members) = &column.data_type {
            check_names(members).map_err(|e| e.context(format!("column {name}")))?;
        }
    }
    Ok(())
}

fn inherit(columns: &mut [Column], previous: &[Column]) -> Result<()> {
    for column in columns {
        let Some(before) = previous.iter().find(|before| before.name == column.name) else {
            continue;
        };
        column.metadata = before.metadata.clone();
        let mut changes = Vec::new();
        inherit_type(&mut column.data_type, &before.data_type, "", &mut changes)
            .map_err(|e| e.context(format!("column {}", column.name)))?;
        if !changes.is_empty() {
            let known = column
                .metadata
                .get(TYPE_CHANGES)
                .and_then(Value::as_array)
                .cloned();
            let mut all = known.unwrap_or_default();
            all.extend(changes);
            column
                .metadata
                .insert(TYPE_CHANGES.into(), Value::Array(all));
        }
    }
    Ok(())
}

fn inherit_type(
    data_type: &mut ColumnType,
    before: &ColumnType,
    field_path: &str,
    changes: &mut Vec<Value>,
) -> Result<()> {
    let below = |part: &str| {
        if field_path.is_empty() {
            part.to_owned()
        } else {
            format!("{field_path}.{part}")
        }
    };
    match (data_type, before) {
        (ColumnType::Primitive(to), ColumnType::Primitive(from)) if to == from => Ok(()),
        (ColumnType::Primitive(to), ColumnType::Primitive(from)) => {
            let (from_type, to_type) = (types::type_name(from)?, types::type_name(to)?);
            if !types::widens_to(from, to) {
                let message = format!("{to_type} cannot hold every {from_type}");
                return Err(Error::new(Code::InvalidAlter, message));
            }
            let mut change = json!({ "fromType": from_type, "toType": to_type });
            if let Some(map) = change.as_object_mut().filter(|_| !field_path.is_empty()) {
                map.insert("fieldPath".into(), field_path.into());
            }
            changes.push(change);
            Ok(())
        }
        (ColumnType::Struct(members), ColumnType::Struct(before)) => inherit(members, before),
        (
            ColumnType::Array { element, .. },
            ColumnType::Array {
                element: before, ..
            },
        ) => inherit_type(element, before, &below("element"), changes),
        (
            ColumnType::Map { key, value, .. },
            ColumnType::Map {
                key: key_before,
                value: value_before,
                ..
            },
        ) => {
            inherit_type(key, key_before, &below("key"), changes)?;
            inherit_type(value, value_before, &below("value"), changes)
        }
        _ => Err(Error::new(Code::InvalidAlter, "a type of another kind")),
    }
}

fn assign_ids(columns: &mut [Column], previous: &[Column], table_id: &str, max_id: &mut i64) {
    for column in columns {
        let before = previous.iter().find(|before| before.name == column.name);
        if column.mapping_id().is_none() {
            *max_id += 1;
            // Files from before the mapping have the column's name; and where names are the same,
            // readers that map only half (partition values, change data) are right.
            let physical = match before.is_some() || !is_forbidden(&column.name) {
                true => column.name.clone(),
                false => physical_name(table_id, *max_id),
            };
            column.set_mapping(*max_id, &physical);
        }
        let before = before.map(|before| &before.data_type);
        assign_type_ids(&mut column.data_type, before, table_id, max_id);
    }
}

fn assign_type_ids(
    data_type: &mut ColumnType,
    before: Option<&ColumnType>,
    table_id: &str,
    max_id: &mut i64,
) {
    match data_type {
        ColumnType::Primitive(_) => {}
        ColumnType::Struct(members) => {
            let before = match before {
                Some(ColumnType::Struct(before)) => before.as_slice(),
                _ => &[],
            };
            assign_ids(members, before, table_id, max_id);
        }
        ColumnType::Array { element, .. } => {
            let before = match before {
                Some(ColumnType::Array { element, .. }) => Some(element.as_ref()),
                _ => None,
            };
            assign_type_ids(element, before, table_id, max_id);
        }
        ColumnType::Map { key, value, .. } => {
            let (key_before, value_before) = match before {
                Some(ColumnType::Map { key, value, .. }) => {
                    (Some(key.as_ref()), Some(value.as_ref()))
                }
                _ => (None, None),
            };
            assign_type_ids(key, key_before, table_id, max_id);
            assign_type_ids(value, value_before, table_id, max_id);
        }
    }
}

/// A name that depends on the table and the column's id alone, so that a retry gives the same.
fn physical_name(table_id: &str, id: i64) -> String {
    let digest = blake3::hash(format!("{table_id}/{id}").as_bytes());
    let mut bytes = [0u8; 16];
    for (to, from) in bytes.iter_mut().zip(digest.as_bytes()) {
        *to = *from;
    }
    format!(
        "col-{}",
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    )
}

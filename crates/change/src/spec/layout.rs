//! What a table looks like once its source columns are known: roles, types and order of columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use super::{ColumnSpec, OneOrMany, TableMode, TableSpec, TimestampEncoding};
use crate::position::POSITION_TYPE;
use crate::{Code, Error, Result, hidden, types};

/// A source column with the schema number that it came with (R-E1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredColumn", into = "StoredColumn")]
pub struct ResolvedColumn {
    /// The column.
    pub column: ColumnSpec,
    /// First schema number that has it; rows of lower numbers do not author it.
    pub since: u32,
}

/// The stored form of a [`ResolvedColumn`]. Its fields are written out: serde's `flatten` cannot read
/// numbers back once JSON numbers keep all their digits.
#[derive(Serialize, Deserialize)]
struct StoredColumn {
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<TimestampEncoding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<i8>,
    since: u32,
}

impl From<StoredColumn> for ResolvedColumn {
    fn from(stored: StoredColumn) -> Self {
        let StoredColumn {
            name,
            type_name,
            default,
            encoding,
            scale,
            since,
        } = stored;
        Self {
            column: ColumnSpec {
                name,
                type_name,
                default,
                encoding,
                scale,
            },
            since,
        }
    }
}

impl From<ResolvedColumn> for StoredColumn {
    fn from(resolved: ResolvedColumn) -> Self {
        let ColumnSpec {
            name,
            type_name,
            default,
            encoding,
            scale,
        } = resolved.column;
        Self {
            name,
            type_name,
            default,
            encoding,
            scale,
            since: resolved.since,
        }
    }
}

/// A spec with everything that the first batches fixed; stored in `tidegate.spec`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedSpec {
    /// The spec as written.
    pub spec: TableSpec,
    /// All source columns in payload order: declared ones first, then inferred ones.
    pub columns: Vec<ResolvedColumn>,
    /// Type of the sequence, once known; never changes then (R-S1).
    pub sequence_type: Option<String>,
    /// Number of the newest schema; rises with each added or widened column.
    pub schema_number: u32,
}

/// What a stored column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnRole {
    /// A key column, with its position in the key.
    Key(usize),
    /// A value, with whether its NULLs are not authored (R-N2).
    Payload {
        /// Whether a NULL keeps the stored value.
        ignore_null: bool,
    },
}

/// A visible column of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn {
    /// Name.
    pub name: String,
    /// Arrow type.
    pub data_type: DataType,
    /// Key or value.
    pub role: ColumnRole,
    /// Position among the source columns; beyond them for a column that no source has.
    pub source: usize,
    /// First schema number that has it.
    pub since: u32,
}

/// Where the sequence comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceSource {
    /// One source column.
    Column(String),
    /// A STRUCT of source columns and pseudo-columns.
    Struct(Vec<String>),
    /// The source position of the format (R-T6).
    Position,
    /// None: insert-only tables without `sequence_by` order by payload alone, append tables not at all.
    None,
}

/// Columns, roles and types of a table, resolved against its source columns.
#[derive(Clone, Debug)]
pub struct TableLayout {
    /// Source columns in payload order.
    pub source: Vec<ResolvedColumn>,
    /// Types of [`Self::source`].
    pub source_types: Vec<DataType>,
    /// Visible stored columns in table order, without those of soft delete.
    pub columns: Vec<TableColumn>,
    /// Positions in [`Self::columns`] of the key columns, in key order; none in append tables.
    pub keys: Vec<usize>,
    /// Append tables only: the hidden column that is their key, which has no source column (R-K7).
    pub position: Option<TableColumn>,
    /// Where the sequence comes from.
    pub sequence_by: SequenceSource,
    /// Type of the sequence; None while it is not known.
    pub sequence_type: Option<DataType>,
    /// Whether deletes flag rows.
    pub soft_delete: bool,
    /// Number of the newest schema.
    pub schema_number: u32,
}

impl ResolvedSpec {
    /// A spec of which nothing but the declaration is known.
    #[must_use]
    pub fn declared(spec: TableSpec) -> Self {
        let columns = spec
            .schema
            .iter()
            .flatten()
            .map(|column| ResolvedColumn {
                column: column.clone(),
                since: 0,
            })
            .collect();
        Self {
            spec,
            columns,
            sequence_type: None,
            schema_number: 0,
        }
    }

    /// The layout for these columns.
    ///
    /// # Errors
    /// `UNKNOWN_COLUMN` or `INVALID_SPEC` where the spec names what the columns lack.
    pub fn layout(&self) -> Result<TableLayout> {
        let source_types = self
            .columns
            .iter()
            .map(|c| c.column.data_type())
            .collect::<Result<Vec<_>>>()?;
        let columns = self.stored_columns(&source_types);
        let keys = self
            .spec
            .keys
            .iter()
            .map(|key| {
                columns
                    .iter()
                    .position(|c| c.name == *key)
                    .ok_or_else(|| self.lacks(key))
            })
            .collect::<Result<Vec<_>>>()?;
        let sequence_by = self.sequence_source();
        let sequence_type = self.resolve_sequence_type(&sequence_by, &source_types)?;
        Ok(TableLayout {
            source: self.columns.clone(),
            source_types,
            columns,
            keys,
            position: (self.spec.mode == TableMode::Append).then(position_column),
            sequence_by,
            sequence_type,
            soft_delete: self.spec.is_soft_delete(),
            schema_number: self.schema_number,
        })
    }

    fn stored_columns(&self, source_types: &[DataType]) -> Vec<TableColumn> {
        let spec = &self.spec;
        let stored = |name: &String| match (&spec.column_list, &spec.except_column_list) {
            (Some(list), _) => list.contains(name),
            (None, Some(except)) => !except.contains(name),
            (None, None) => spec.columns_to_update.as_ref() != Some(name),
        };
        self.columns
            .iter()
            .zip(source_types)
            .enumerate()
            .filter(|(_, (resolved, _))| stored(&resolved.column.name))
            .map(|(source, (resolved, data_type))| {
                let name = resolved.column.name.clone();
                let role = match spec.keys.iter().position(|key| *key == name) {
                    Some(position) => ColumnRole::Key(position),
                    None => ColumnRole::Payload {
                        ignore_null: spec.ignore_null_updates.covers(&name),
                    },
                };
                TableColumn {
                    name,
                    data_type: data_type.clone(),
                    role,
                    source,
                    since: resolved.since,
                }
            })
            .collect()
    }

    fn sequence_source(&self) -> SequenceSource {
        match &self.spec.sequence_by {
            Some(OneOrMany::One(name)) => SequenceSource::Column(name.clone()),
            Some(OneOrMany::Many(names)) => SequenceSource::Struct(names.clone()),
            None if self.spec.has_derived_sequence() => SequenceSource::Position,
            None => SequenceSource::None,
        }
    }

    fn resolve_sequence_type(
        &self,
        by: &SequenceSource,
        source_types: &[DataType],
    ) -> Result<Option<DataType>> {
        if let Some(name) = &self.sequence_type {
            return types::parse_type(name).map(Some);
        }
        let member = |name: &String| -> Result<DataType> {
            if let Some(pseudo) = pseudo_column_type(name) {
                return Ok(pseudo);
            }
            let position = self.columns.iter().position(|c| c.column.name == *name);
            position
                .and_then(|p| source_types.get(p).cloned())
                .ok_or_else(|| self.lacks(name))
        };
        Ok(match by {
            SequenceSource::Column(name) => Some(member(name)?),
            SequenceSource::Struct(names) => {
                let fields: Fields = names
                    .iter()
                    .map(|name| Ok(Field::new(name, member(name)?, true)))
                    .collect::<Result<Vec<_>>>()?
                    .into();
                Some(DataType::Struct(fields))
            }
            SequenceSource::None if self.spec.mode != TableMode::Cdc => Some(DataType::Int64),
            SequenceSource::Position | SequenceSource::None => None,
        })
    }

    fn lacks(&self, name: &str) -> Error {
        let message = format!(
            "table {}: column {name} is not in the source schema",
            self.spec.name
        );
        Error::new(Code::UnknownColumn, message)
    }
}

fn position_column() -> TableColumn {
    TableColumn {
        name: hidden::POSITION.into(),
        data_type: POSITION_TYPE,
        role: ColumnRole::Key(0),
        source: usize::MAX,
        since: 0,
    }
}

/// Type of a pseudo-column that every source fills where it can (R-T5).
#[must_use]
pub fn pseudo_column_type(name: &str) -> Option<DataType> {
    match name {
        "_source_file" => Some(DataType::Utf8),
        "_source_row" | "_source_partition" | "_source_offset" => Some(DataType::Int64),
        _ => None,
    }
}

impl TableLayout {
    /// Arrow schema of the visible table, with the columns of soft delete.
    #[must_use]
    pub fn table_schema(&self) -> SchemaRef {
        let mut fields: Vec<Field> = self
            .columns
            .iter()
            .map(|c| Field::new(&c.name, c.data_type.clone(), true))
            .collect();
        if self.soft_delete {
            let deleted_at = self.sequence_type.clone().unwrap_or(DataType::Int64);
            fields.push(Field::new("is_deleted", DataType::Boolean, true));
            fields.push(Field::new("deleted_at", deleted_at, true));
        }
        Arc::new(Schema::new(fields))
    }

    /// Arrow schema of a data file: the visible columns and the hidden ones behind them.
    #[must_use]
    pub fn file_schema(&self) -> SchemaRef {
        let sequence = self.sequence_type.clone().unwrap_or(DataType::Int64);
        let mut fields: Vec<Arc<Field>> = self.table_schema().fields().iter().cloned().collect();
        fields.extend(
            hidden::fields(&sequence, self.soft_delete)
                .into_iter()
                .map(Arc::new),
        );
        let position = self.position.iter();
        fields.extend(position.map(|c| Arc::new(Field::new(&c.name, c.data_type.clone(), true))));
        Arc::new(Schema::new(fields))
    }

    /// Types of the key columns, in key order.
    #[must_use]
    pub fn key_types(&self) -> Vec<DataType> {
        self.key_columns().map(|c| c.data_type.clone()).collect()
    }

    /// The key columns, in key order; of an append table the hidden one.
    pub fn key_columns(&self) -> impl Iterator<Item = &TableColumn> {
        self.keys
            .iter()
            .filter_map(|position| self.columns.get(*position))
            .chain(&self.position)
    }

    /// The columns that are no keys, in table order: the payload of ties (R-T2).
    pub fn payload_columns(&self) -> impl Iterator<Item = &TableColumn> {
        self.columns
            .iter()
            .filter(|c| matches!(c.role, ColumnRole::Payload { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolved_spec_with_numbers_survives_storage() {
        let text = "name: t\nkeys: [id]\nsequence_by: id\nschema:\n  - {name: id, type: long, default: 7}\n  - {name: d, type: \"decimal(10,2)\", scale: 2}\n";
        let resolved = ResolvedSpec::declared(TableSpec::from_yaml(text).unwrap());
        let json = serde_json::to_string(&resolved).unwrap();
        assert_eq!(
            serde_json::from_str::<ResolvedSpec>(&json).unwrap(),
            resolved
        );
    }
}

//! Physical columns of data files that the Delta schema does not name, so that readers skip them.
//!
//! They let the table alone rebuild index and state (table format: "Hidden columns").

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};

use crate::types;

/// Sequence of the row's newest upsert; type of the table's sequence; never NULL.
pub const SEQUENCE: &str = "__tidegate_seq";
/// Greatest delete of the key at or below the row's sequence, NULL where none is known (R-D4). Truncates
/// are the table's: they stand in its progress and are never repeated here.
pub const FLOOR: &str = "__tidegate_floor";
/// Leaf path to the sequence of its author, only for leaves that differ from the row's sequence; a NULL
/// value says that no event authored the leaf (R-N3, R-T3b).
pub const LEAVES: &str = "__tidegate_leaves";
/// Number of the schema that the row was written under (R-E1); its complement (`!n`, negative) where another
/// engine wrote values of the row, which then win a tie with their own sequence.
pub const SCHEMA: &str = "__tidegate_schema";
/// Soft delete only: the deletes above the row's newest upsert, ascending, NULL where none (R-L1).
pub const DELETES: &str = "__tidegate_deletes";
/// Append tables only: the key that tells rows apart, see [`crate::position`]; never NULL (R-K7).
pub const POSITION: &str = "__tidegate_position";
/// In hidden state files: when the tombstone's deciding delete arrived, ms since the epoch (R-G2).
pub const ARRIVED: &str = "__tidegate_arrived";

/// Type of [`LEAVES`].
#[must_use]
pub fn leaves_type(sequence: &DataType) -> DataType {
    let pair = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", sequence.clone(), true),
    ]);
    DataType::Map(
        Arc::new(Field::new("key_value", DataType::Struct(pair), false)),
        false,
    )
}

/// The hidden columns of a data file, in order.
#[must_use]
pub fn fields(sequence: &DataType, soft_delete: bool) -> Vec<Field> {
    let mut fields = vec![
        Field::new(SEQUENCE, sequence.clone(), true),
        Field::new(FLOOR, sequence.clone(), true),
        Field::new(LEAVES, leaves_type(sequence), true),
        Field::new(SCHEMA, DataType::Int32, true),
    ];
    if soft_delete {
        fields.push(Field::new(DELETES, types::list_of(sequence.clone()), true));
    }
    fields
}

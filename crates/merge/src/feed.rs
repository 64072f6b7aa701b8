//! The change rows of a commit (R-C1 to R-C5): of each key at most its net change.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Field, Schema};

use crate::{Error, MergeRules, Result};

/// Name of the column that says what a change row is.
pub const CHANGE_TYPE: &str = "_change_type";

/// What a change row is, and where its image lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The row that was written.
    Insert { new: usize },
    /// The stored row.
    Delete { old: usize },
    /// Both images.
    Update { old: usize, new: usize },
}

/// The change rows, from the stored rows and the written ones.
pub(crate) fn change_rows(
    rules: &MergeRules,
    stored: &RecordBatch,
    written: &RecordBatch,
    changes: &[Change],
) -> Result<RecordBatch> {
    let failed = |e| Error::internal("change rows cannot be gathered").with_source(e);
    let (mut names, mut places) = (Vec::new(), Vec::new());
    for change in changes {
        match *change {
            Change::Insert { new } => {
                names.push("insert");
                places.push((1, new));
            }
            Change::Delete { old } => {
                names.push("delete");
                places.push((0, old));
            }
            Change::Update { old, new } => {
                names.extend(["update_preimage", "update_postimage"]);
                places.extend([(0, old), (1, new)]);
            }
        }
    }
    let schema = rules.layout.table_schema();
    let mut columns = Vec::with_capacity(schema.fields().len() + 1);
    for (old, new) in stored
        .columns()
        .iter()
        .zip(written.columns())
        .take(schema.fields().len())
    {
        columns.push(interleave(&[old.as_ref(), new.as_ref()], &places).map_err(failed)?);
    }
    columns.push(Arc::new(StringArray::from(names)));
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, false)));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(failed)
}

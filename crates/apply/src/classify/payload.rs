//! What events say of the columns that are no keys, and which of it they author (R-N2, R-N5, R-N6).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::DataType;
use tidegate_change::Result;
use tidegate_change::source::SourceBatch;
use tidegate_merge::PayloadColumn;

use super::{Classifier, taken};

impl Classifier {
    pub(super) fn payload(
        &self,
        batch: &SourceBatch,
        source: &RecordBatch,
        changes: &UInt32Array,
        all: bool,
    ) -> Result<Vec<PayloadColumn>> {
        let listed = self.listed_columns(source);
        self.layout
            .payload_columns()
            .map(|column| {
                let carried = batch.columns.schema_ref().index_of(&column.name).ok();
                if carried.is_none() && self.default_of(&column.name)?.is_none() {
                    return Ok(PayloadColumn {
                        values: None,
                        authored: None,
                    });
                }
                let mask = carried.and_then(|i| batch.authored.get(i).cloned().flatten());
                let by_list = listed.as_ref().map(|list| authors(list, &column.name));
                let authored = match (mask, by_list) {
                    (Some(a), Some(b)) => Some(&a & &b),
                    (a, b) => a.or(b),
                };
                let values = source.column(column.source);
                if all {
                    return Ok(PayloadColumn {
                        values: Some(Arc::clone(values)),
                        authored,
                    });
                }
                let authored = authored
                    .map(|mask| {
                        let mask: ArrayRef = Arc::new(BooleanArray::new(mask, None));
                        taken(&mask, changes).map(|mask| mask.as_boolean().values().clone())
                    })
                    .transpose()?;
                Ok(PayloadColumn {
                    values: Some(taken(values, changes)?),
                    authored,
                })
            })
            .collect()
    }

    /// The column that lists what each event authors (R-N6).
    fn listed_columns(&self, source: &RecordBatch) -> Option<ArrayRef> {
        let name = self.spec.columns_to_update.as_ref()?;
        let column = source.column_by_name(name)?;
        matches!(column.data_type(), DataType::List(_)).then(|| Arc::clone(column))
    }
}

/// Which events list the column; a NULL list lists all (R-N6).
fn authors(list: &ArrayRef, column: &str) -> BooleanBuffer {
    let list = list.as_list::<i32>();
    BooleanBuffer::collect_bool(list.len(), |row| {
        if list.is_null(row) {
            return true;
        }
        let names = list.value(row);
        let Some(names) = names.as_string_opt::<i32>() else {
            return false;
        };
        names.iter().flatten().any(|name| name == column)
    })
}

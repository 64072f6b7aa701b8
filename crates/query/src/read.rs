//! A version of a table as rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use futures::{StreamExt, TryStreamExt};
use tidegate_change::position::POSITION_TYPE;
use tidegate_change::{Code, Error, Result, hidden};
use tidegate_delta::actions::AddFile;
use tidegate_delta::data::{self, read_file};
use tidegate_delta::{TableRoot, TableSnapshot};
use tidegate_expression::Compiled;

use crate::{Rows, columns, order};

/// Rows of a batch where few rows are asked for.
const FEW_ROWS: u64 = 8192;

/// What is read of a version.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Names of the columns, in that order; None = all.
    pub columns: Option<Vec<String>>,
    /// SQL over the table's columns; rows where it is not true are left out.
    pub filter: Option<String>,
    /// The columns to order by, as `TableSpec::order_columns` names them; None = as the files come.
    pub order_by: Option<Vec<String>>,
    /// Rows at most; reading stops there.
    pub limit: Option<u64>,
}

/// The rows of a table version. Hidden columns never show, deleted rows are left out.
///
/// # Errors
/// `UNKNOWN_COLUMN` and `INVALID_EXPRESSION` for the options; failures of reading come with the rows.
pub fn read(root: &TableRoot, snapshot: &TableSnapshot, options: &ReadOptions) -> Result<Rows> {
    let table = snapshot.schema().arrow();
    let shown = match &options.columns {
        Some(names) => columns::positions(table, names)?,
        None => (0..table.fields().len()).collect(),
    };
    let filter = options
        .filter
        .as_ref()
        .map(|sql| Compiled::condition(sql, table))
        .transpose()?;
    let table = &with_position(table);
    let order_by = match &options.order_by {
        Some(names) if names.is_empty() => {
            let message = "the table has no primary key to order by";
            return Err(Error::new(Code::InvalidArgument, message));
        }
        Some(names) => columns::positions(table, names)?,
        None => Vec::new(),
    };

    // The shown columns come first, so that the others can be cut off at the end.
    let mut needed = shown.clone();
    let filtered = filter
        .iter()
        .flat_map(Compiled::columns)
        .filter_map(|n| table.index_of(n).ok());
    for position in order_by.iter().copied().chain(filtered) {
        if !needed.contains(&position) {
            needed.push(position);
        }
    }
    let internal = |e| Error::internal("columns of a table").with_source(e);
    let projection: SchemaRef = Arc::new(table.project(&needed).map_err(internal)?);
    let visible: SchemaRef = Arc::new(table.project(&shown).map_err(internal)?);
    if projection.fields().is_empty() || options.limit == Some(0) {
        return Ok(Rows::empty(visible));
    }

    let mut rows = scan(root, snapshot, &projection, options);
    if let Some(filter) = filter {
        rows = filtered_by(rows, filter);
    }
    rows = match &options.order_by {
        Some(_) => {
            let keys: Vec<usize> = order_by
                .iter()
                .filter_map(|key| needed.iter().position(|position| position == key))
                .collect();
            order::by_columns(rows, &keys, options.limit)?
        }
        None => rows.limited(options.limit),
    };
    Ok(cut(rows, visible))
}

/// The table's columns and the hidden one that orders the rows of append tables (R-K7).
fn with_position(table: &SchemaRef) -> Schema {
    let position = Field::new(hidden::POSITION, POSITION_TYPE, true);
    let mut fields: Vec<Arc<Field>> = table.fields().iter().cloned().collect();
    fields.push(Arc::new(position));
    Schema::new(fields)
}

/// All live rows, file by file; a file is opened when the rows before it were taken.
fn scan(
    root: &TableRoot,
    snapshot: &TableSnapshot,
    projection: &SchemaRef,
    options: &ReadOptions,
) -> Rows {
    let files: Vec<Arc<AddFile>> = snapshot.files.iter().map(Arc::clone).collect();
    let (root, schema) = (root.clone(), snapshot.schema().clone());
    let mut reading = data::ReadOptions::live(Arc::clone(projection));
    if let (None, None, Some(limit)) = (&options.order_by, &options.filter, options.limit) {
        reading.batch_rows = usize::try_from(limit.min(FEW_ROWS)).unwrap_or(reading.batch_rows);
    }
    let reading = Arc::new(reading);
    let stream = futures::stream::iter(files)
        .then(move |file| {
            let (root, schema, reading) = (root.clone(), schema.clone(), Arc::clone(&reading));
            async move { read_file(&root, &schema, &file, &reading).await }
        })
        .map_ok(|file| file.into_stream().map_ok(|batch| batch.rows))
        .try_flatten();
    Rows::new(Arc::clone(projection), stream)
}

fn filtered_by(rows: Rows, filter: Compiled) -> Rows {
    let schema = Arc::clone(rows.schema());
    let keep = move |batch: RecordBatch| {
        let mask = filter.predicate(&batch)?;
        filter_record_batch(&batch, &mask)
            .map_err(|e| Error::internal("rows cannot be filtered").with_source(e))
    };
    let stream = rows
        .into_stream()
        .and_then(move |batch| std::future::ready(keep(batch)));
    Rows::new(schema, stream)
}

fn cut(rows: Rows, visible: SchemaRef) -> Rows {
    if rows.schema().fields().len() == visible.fields().len() {
        return rows;
    }
    let kept: Vec<usize> = (0..visible.fields().len()).collect();
    let stream = rows.into_stream().and_then(move |batch| {
        let cut = batch.project(&kept);
        std::future::ready(cut.map_err(|e| Error::internal("rows lost a column").with_source(e)))
    });
    Rows::new(visible, stream)
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;

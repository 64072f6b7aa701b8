//! Rows in the order of their primary key, within a fixed amount of memory.

use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use tidegate_change::sequence::normalize_floats;
use tidegate_change::{Code, Error, Result};

use crate::Rows;

/// Memory of a sort, bytes; beyond it the sort spills to temporary files.
const SORT_BYTES_MAX: usize = 256 << 20;
/// Name of the column that holds the key as comparable bytes while rows are sorted.
const ORDER: &str = "__tidegate_order";

/// The rows in ascending order of the columns at these positions, at most `limit` of them.
pub(crate) fn by_columns(rows: Rows, keys: &[usize], limit: Option<u64>) -> Result<Rows> {
    within(SORT_BYTES_MAX, rows, keys, limit)
}

/// NULL sorts first, floats have one NaN on top and one zero, text sorts by its bytes: the order in which
/// the merge compares keys.
fn within(memory_bytes: usize, rows: Rows, keys: &[usize], limit: Option<u64>) -> Result<Rows> {
    let visible = Arc::clone(rows.schema());
    let mut fields: Vec<Arc<Field>> = visible.fields().iter().map(Arc::clone).collect();
    let order = fields.len();
    fields.push(Arc::new(Field::new(ORDER, DataType::Binary, false)));
    let schema: SchemaRef = Arc::new(Schema::new(fields));

    let encoder = KeyEncoder::new(&visible, keys)?;
    let with_key = Arc::clone(&schema);
    let keyed = rows
        .into_stream()
        .and_then(move |batch| std::future::ready(encoder.append(&batch, &with_key)));
    let source = Source {
        schema: Arc::clone(&schema),
        rows: Mutex::new(Some(Box::pin(
            keyed.map_err(|e| DataFusionError::External(Box::new(e))),
        ))),
    };
    let sorted = sort(memory_bytes, source, order, limit).map_err(failed)?;
    let kept: Vec<usize> = (0..order).collect();
    let stream = sorted.map_err(failed).and_then(move |batch| {
        std::future::ready(
            batch
                .project(&kept)
                .map_err(|e| Error::internal("sorted rows lost a column").with_source(e)),
        )
    });
    Ok(Rows::new(visible, stream))
}

fn sort(
    memory_bytes: usize,
    source: Source,
    order: usize,
    limit: Option<u64>,
) -> Result<SendableRecordBatchStream, DataFusionError> {
    let schema = Arc::clone(&source.schema);
    let input = StreamingTableExec::try_new(schema, vec![Arc::new(source)], None, [], false, None)?;
    let key = PhysicalSortExpr::new(Arc::new(Column::new(ORDER, order)), SortOptions::default());
    let Some(ordering) = LexOrdering::new([key]) else {
        return Err(DataFusionError::Internal("an order needs a column".into()));
    };
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let plan = SortExec::new(ordering, Arc::new(input)).with_fetch(limit);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(memory_bytes, 1.0)
        .build_arc()?;
    plan.execute(0, Arc::new(TaskContext::default().with_runtime(runtime)))
}

/// Appends the key of each row as bytes whose order is that of the key.
struct KeyEncoder {
    converter: RowConverter,
    keys: Vec<usize>,
}

impl KeyEncoder {
    fn new(schema: &Schema, keys: &[usize]) -> Result<Self> {
        let fields = keys
            .iter()
            .filter_map(|key| schema.fields().get(*key))
            .map(|field| SortField::new(field.data_type().clone()))
            .collect();
        let converter = RowConverter::new(fields).map_err(|e| {
            Error::new(Code::Unsupported, "the key's type has no order").with_source(e)
        })?;
        Ok(Self {
            converter,
            keys: keys.to_vec(),
        })
    }

    fn append(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let internal = |e| Error::internal("rows cannot be ordered by their key").with_source(e);
        let keys: Vec<ArrayRef> = self
            .keys
            .iter()
            .map(|key| normalize_floats(batch.column(*key)))
            .collect();
        let rows = self.converter.convert_columns(&keys).map_err(internal)?;
        let order = BinaryArray::from_iter_values(rows.iter().map(|row| row.data().to_vec()));
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(order));
        RecordBatch::try_new(Arc::clone(schema), columns).map_err(internal)
    }
}

type Keyed = BoxStream<'static, Result<RecordBatch, DataFusionError>>;

/// The rows as DataFusion takes them; they are taken once.
struct Source {
    schema: SchemaRef,
    rows: Mutex<Option<Keyed>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl PartitionStream for Source {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let taken = self.rows.lock().ok().and_then(|mut rows| rows.take());
        let rows = taken.unwrap_or_else(|| {
            let twice = DataFusionError::Internal("rows were asked for twice".into());
            Box::pin(futures::stream::once(async { Err(twice) }))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        ))
    }
}

/// Our own errors come back as they were; the rest is about memory and temporary files.
fn failed(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(cause) => match cause.downcast::<Error>() {
            Ok(error) => *error,
            Err(cause) => Error::internal("sorting by key failed").with_source(cause),
        },
        DataFusionError::Context(_, cause) => failed(*cause),
        DataFusionError::Shared(cause) => match Arc::try_unwrap(cause) {
            Ok(error) => failed(error),
            Err(cause) => Error::internal("sorting by key failed").with_source(cause.to_string()),
        },
        DataFusionError::ResourcesExhausted(_) => Error::new(
            Code::ResourceExhausted,
            "sorting by key needs more memory or temporary space",
        )
        .with_source(error),
        DataFusionError::IoError(cause) => Error::io("temporary files of a sort", cause),
        other => Error::internal("sorting by key failed").with_source(other),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::{Float64Type, Int64Type};

    use super::*;

    fn rows(batches: Vec<RecordBatch>) -> Rows {
        let schema = batches[0].schema();
        Rows::new(schema, futures::stream::iter(batches.into_iter().map(Ok)))
    }

    #[tokio::test]
    async fn a_sort_beyond_its_memory_spills() {
        let batches = (0..100_i64).map(|part| {
            let ids =
                Int64Array::from_iter_values((0..2000).map(|n| (n * 7919 + part * 31) % 200_003));
            let texts = StringArray::from_iter_values((0..2000).map(|n| format!("{n:>200}")));
            let columns: Vec<(&str, ArrayRef)> =
                vec![("id", Arc::new(ids)), ("v", Arc::new(texts))];
            RecordBatch::try_from_iter(columns).unwrap()
        });
        let mut sorted = within(16 << 20, rows(batches.collect()), &[0], None).unwrap();
        let (mut count, mut last) = (0, i64::MIN);
        while let Some(batch) = sorted.next_batch().await.unwrap() {
            assert_eq!(batch.num_columns(), 2);
            for id in batch.column(0).as_primitive::<Int64Type>().values() {
                assert!(*id >= last);
                last = *id;
                count += 1;
            }
        }
        assert_eq!(count, 200_000);
    }

    #[tokio::test]
    async fn composite_keys_sort_by_value() {
        let floats = Float64Array::from(vec![f64::NAN, 0.0, -0.0, 1.0, -f64::NAN]);
        let ids = Int64Array::from(vec![1, 2, 1, 0, 0]);
        let columns: Vec<(&str, ArrayRef)> = vec![("f", Arc::new(floats)), ("id", Arc::new(ids))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut sorted = by_columns(rows(vec![batch]), &[0, 1], Some(4)).unwrap();
        let batch = sorted.next_batch().await.unwrap().unwrap();
        assert_eq!(
            batch.column(1).as_primitive::<Int64Type>().values(),
            &[1, 2, 0, 0]
        );
        assert!(
            batch
                .column(0)
                .as_primitive::<Float64Type>()
                .value(3)
                .is_nan()
        );
    }

    #[tokio::test]
    async fn a_failure_of_reading_comes_out_as_it_was() {
        let schema: SchemaRef =
            Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
        let gone = Error::new(Code::NotFound, "file a: does not exist");
        let rows = Rows::new(schema, futures::stream::iter([Err(gone)]));
        let mut sorted = by_columns(rows, &[0], None).unwrap();
        assert_eq!(
            sorted.next_batch().await.unwrap_err().code(),
            Code::NotFound
        );
    }
}

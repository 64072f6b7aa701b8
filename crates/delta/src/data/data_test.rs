//! Data files: what is written is read back, by position, sparse or dense, with statistics that hold.

use std::sync::Arc;

use arrow::array::{
    Array, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use serde_json::Value;
use tidegate_change::hidden;

use super::*;
use crate::actions::AddFile;
use crate::dv::{self, DeletionVector};
use crate::schema::columns_of_arrow;
use crate::{PartitionValues, TableRoot, TableSchema};

fn table(fields: Vec<Field>) -> TableSchema {
    TableSchema::new(columns_of_arrow(&Schema::new(fields)).unwrap(), Vec::new()).unwrap()
}

fn plain_table() -> TableSchema {
    table(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("v", DataType::Utf8, true),
    ])
}

fn file_schema(schema: &TableSchema) -> SchemaRef {
    let mut fields = schema.arrow().fields().to_vec();
    fields.extend(
        hidden::fields(&DataType::Int64, false)
            .into_iter()
            .map(Arc::new),
    );
    Arc::new(Schema::new(fields))
}

fn batch(schema: &TableSchema, ids: std::ops::Range<i64>, floor: Option<i64>) -> RecordBatch {
    let rows = usize::try_from(ids.end - ids.start).unwrap();
    let names = ids
        .clone()
        .map(|id| format!("name {id}"))
        .collect::<Vec<_>>();
    let sequences = ids.clone().map(|id| id * 10).collect::<Vec<_>>();
    let file = file_schema(schema);
    let leaves = new_null_array(
        file.field_with_name(hidden::LEAVES).unwrap().data_type(),
        rows,
    );
    RecordBatch::try_new(
        file,
        vec![
            Arc::new(Int64Array::from(ids.collect::<Vec<_>>())),
            Arc::new(StringArray::from(names)),
            Arc::new(Int64Array::from(sequences)),
            Arc::new(Int64Array::from(vec![floor; rows])),
            leaves,
            Arc::new(Int32Array::from(vec![1; rows])),
        ],
    )
    .unwrap()
}

async fn written(root: &TableRoot, rows: i64) -> AddFile {
    let schema = plain_table();
    let mut options = WriterOptions::new(vec!["id".into()], 5);
    options.row_group_rows_max = 10_000;
    let partition = PartitionValues::default();
    let mut writer = DataFileWriter::new(root, &schema, &partition, "d.parquet", options).unwrap();
    for start in (0..rows).step_by(3000) {
        writer
            .write(&batch(&schema, start..(start + 3000).min(rows), None))
            .await
            .unwrap();
    }
    assert_eq!(writer.rows(), u64::try_from(rows).unwrap());
    writer.finish().await.unwrap().unwrap()
}

fn ids(batch: &FileBatch) -> Vec<i64> {
    batch
        .rows
        .column_by_name("id")
        .unwrap()
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

async fn read(root: &TableRoot, add: &AddFile, options: ReadOptions) -> FileBatch {
    read_file(root, &plain_table(), add, &options)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap()
}

#[tokio::test]
async fn positions_are_read_sparse_and_dense() {
    let directory = tempfile::tempdir().unwrap();
    let root = TableRoot::local(directory.path());
    let add = written(&root, 25_000).await;
    let projection = file_schema(&plain_table());
    for step in [1usize, 7, 2_499] {
        let positions: Vec<u32> = (0..25_000).step_by(step).collect();
        let found = read(
            &root,
            &add,
            ReadOptions::at(Arc::clone(&projection), positions.clone()),
        )
        .await;
        assert_eq!(found.positions, positions);
        assert_eq!(
            ids(&found),
            positions.iter().map(|p| i64::from(*p)).collect::<Vec<_>>()
        );
    }
    let none = read(
        &root,
        &add,
        ReadOptions::at(Arc::clone(&projection), Vec::new()),
    )
    .await;
    assert_eq!(none.rows.num_rows(), 0);
    for bad in [vec![25_000], vec![2, 1], vec![1, 1]] {
        let options = ReadOptions::at(Arc::clone(&projection), bad);
        assert!(
            read_file(&root, &plain_table(), &add, &options)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn few_rows_read_few_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let counted = counting::CountingStore::new(directory.path());
    let root = TableRoot::new(
        Arc::new(counted.clone()),
        object_store::path::Path::default(),
    );
    let add = written(&root, 200_000).await;
    let projection = file_schema(&plain_table());
    let before = counted.bytes();
    let found = read(&root, &add, ReadOptions::at(projection, vec![150_000])).await;
    assert_eq!(ids(&found), [150_000]);
    let bytes = counted.bytes() - before;
    assert!(
        bytes < u64::try_from(add.size).unwrap() / 4,
        "{bytes} of {}",
        add.size
    );
}

#[tokio::test]
async fn dead_rows_are_left_out_unless_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let root = TableRoot::local(directory.path());
    let add = written(&root, 10_000).await;
    let dead = DeletionVector::from_positions((0..10_000).filter(|p| p % 3 == 0 || *p < 9_000));
    let attempt = tidegate_change::AttemptId {
        writer: tidegate_change::WriterId(1),
        index: 1,
    };
    let descriptor = dv::write_packed(&root, attempt, 0, std::slice::from_ref(&dead))
        .await
        .unwrap();
    let add = add.with_deletion_vector(descriptor[0].clone(), true);
    let projection = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
    let live = read(&root, &add, ReadOptions::live(Arc::clone(&projection))).await;
    assert_eq!(
        live.positions.len(),
        10_000 - usize::try_from(dead.len()).unwrap()
    );
    assert!(live.positions.iter().all(|p| !dead.contains(u64::from(*p))));
    let mut some = ReadOptions::live(Arc::clone(&projection));
    some.rows = RowSelection::Positions(vec![0, 9_001, 9_003]);
    assert_eq!(read(&root, &add, some).await.positions, [9_001]);
    assert_eq!(
        ids(&read(&root, &add, ReadOptions::at(projection, vec![0])).await),
        [0]
    );
}

#[tokio::test]
async fn lost_columns_read_null_in_the_order_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let root = TableRoot::local(directory.path());
    let add = written(&root, 10).await;
    let later = table(vec![
        Field::new("new", DataType::Float64, true),
        Field::new("id", DataType::Int64, true),
        Field::new("v", DataType::Utf8, true),
    ]);
    let mut fields = later.arrow().fields().to_vec();
    fields.reverse();
    fields.insert(
        0,
        Arc::new(Field::new(hidden::SEQUENCE, DataType::Int64, true)),
    );
    fields.push(Arc::new(Field::new(hidden::FLOOR, DataType::Int64, true)));
    let options = ReadOptions::at(Arc::new(Schema::new(fields)), vec![3]);
    let found = read_file(&root, &later, &add, &options)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap()
        .rows;
    assert_eq!(found.column(0).as_primitive::<Int64Type>().value(0), 30);
    assert_eq!(found.column(1).as_string::<i32>().value(0), "name 3");
    assert_eq!(found.column(2).as_primitive::<Int64Type>().value(0), 3);
    assert!(found.column(3).is_null(0) && found.column(4).is_null(0));
}

#[test]
fn sparse_columns_are_in_a_file_only_when_a_row_needs_them() {
    let schema = plain_table();
    let options = WriterOptions::new(vec!["id".into()], 5);
    let encode = |floor| {
        let rows = batch(&schema, 0..3, floor);
        encode_file(
            &schema,
            &PartitionValues::default(),
            "x.parquet",
            &options,
            &[rows],
        )
        .unwrap()
        .unwrap()
    };
    let (plain, sparse) = (encode(None), encode(Some(4)));
    assert!(!plain.add.is_sparse() && sparse.add.is_sparse());
    let names = |file: &EncodedFile| {
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(
            file.bytes.clone(),
        );
        let schema = Arc::clone(reader.unwrap().schema());
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&plain), ["id", "v", hidden::SEQUENCE, hidden::SCHEMA]);
    assert_eq!(
        names(&sparse),
        [
            "id",
            "v",
            hidden::SEQUENCE,
            hidden::FLOOR,
            hidden::LEAVES,
            hidden::SCHEMA
        ]
    );
    let nothing = encode_file(&schema, &PartitionValues::default(), "x", &options, &[]).unwrap();
    assert!(nothing.is_none());
}

#[test]
fn statistics_bound_the_key() {
    let schema = plain_table();
    let mut options = WriterOptions::new(vec!["id".into(), "v".into()], 5);
    options.is_clustered = true;
    let batches = [batch(&schema, 5..9, None), batch(&schema, 0..3, None)];
    let file = encode_file(
        &schema,
        &PartitionValues::default(),
        "x.parquet",
        &options,
        &batches,
    );
    let add = file.unwrap().unwrap().add;
    let stats: Value = serde_json::from_str(add.stats.as_deref().unwrap()).unwrap();
    let expected = serde_json::json!({
        "numRecords": 7, "minValues": {"id": 0, "v": "name 0"}, "maxValues": {"id": 8, "v": "name 8"},
        "nullCount": {"id": 0, "v": 0}, "tightBounds": true,
    });
    assert_eq!(stats, expected);
    assert_eq!(add.clustering_provider.as_deref(), Some("tidegate"));
    assert_eq!(add.num_records().unwrap(), 7);
    assert_eq!(add.max_sequence(), Some("80"));
}

#[test]
fn bounds_hold_where_text_is_cut_or_rounded() {
    use arrow::array::{Float64Array, TimestampMicrosecondArray};
    let long = "é".repeat(100);
    let fields = vec![
        Field::new("s", DataType::Utf8, true),
        Field::new("t", tidegate_change::types::timestamp_utc(), true),
        Field::new("f", DataType::Float64, true),
    ];
    let schema = table(fields);
    let rows = RecordBatch::try_new(
        Arc::clone(schema.arrow()),
        vec![
            Arc::new(StringArray::from(vec![long.as_str()])),
            Arc::new(TimestampMicrosecondArray::from(vec![-1]).with_timezone("UTC")),
            Arc::new(Float64Array::from(vec![f64::NAN])),
        ],
    );
    let options = WriterOptions::new(vec!["s".into(), "t".into(), "f".into()], 5);
    let file = encode_file(
        &schema,
        &PartitionValues::default(),
        "x",
        &options,
        &[rows.unwrap()],
    );
    let stats = file.unwrap().unwrap().add.stats.unwrap();
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["minValues"]["s"], "é".repeat(64));
    assert!(stats["maxValues"].get("s").is_none() && stats["minValues"].get("f").is_none());
    assert_eq!(stats["minValues"]["t"], "1969-12-31T23:59:59.999Z");
    assert_eq!(stats["maxValues"]["t"], "1970-01-01T00:00:00.000Z");
}

#[tokio::test]
async fn private_files_are_read_back_by_position() {
    let directory = tempfile::tempdir().unwrap();
    let root = TableRoot::local(directory.path());
    let schema = plain_table();
    let rows = batch(&schema, 0..5000, Some(1));
    let path = "_tidegate/state/s.parquet";
    let bytes = write_rows(&root, path, &rows.schema(), std::slice::from_ref(&rows))
        .await
        .unwrap();
    assert!(bytes > 0);
    let all = read_rows(&root, path, None, RowSelection::All)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    assert_eq!(
        arrow::compute::concat_batches(&rows.schema(), &all).unwrap(),
        rows
    );
    let some = RowSelection::Positions(vec![4999]);
    let mut file = read_rows(&root, path, Some(&["id"]), some).await.unwrap();
    let (found, positions) = file.next_batch().await.unwrap().unwrap();
    assert_eq!((found.num_columns(), positions), (1, vec![4999]));
    assert_eq!(found.column(0).as_primitive::<Int64Type>().value(0), 4999);
}

#[tokio::test]
async fn a_lost_file_is_not_a_damaged_one() {
    let directory = tempfile::tempdir().unwrap();
    let root = TableRoot::local(directory.path());
    let add = written(&root, 10).await;
    let options = ReadOptions::live(Arc::clone(plain_table().arrow()));
    let path = directory.path().join("d.parquet");
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, &good[..good.len() - 9]).unwrap();
    let code = |result: Result<FileStream, tidegate_change::Error>| result.unwrap_err().code();
    let damaged = read_file(&root, &plain_table(), &add, &options).await;
    assert_eq!(code(damaged), tidegate_change::Code::Corrupt);
    std::fs::remove_file(&path).unwrap();
    let lost = read_file(&root, &plain_table(), &add, &options).await;
    assert_eq!(code(lost), tidegate_change::Code::NotFound);
}

mod counting {
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use bytes::Bytes;
    use futures::stream::BoxStream;
    use object_store::path::Path;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    };

    use crate::store::LocalStore;

    /// Counts the bytes that are read.
    #[derive(Clone, Debug)]
    pub(super) struct CountingStore {
        inner: LocalStore,
        bytes: Arc<AtomicU64>,
    }

    impl CountingStore {
        pub(super) fn new(path: &std::path::Path) -> Self {
            Self {
                inner: LocalStore::new(path),
                bytes: Arc::default(),
            }
        }

        pub(super) fn bytes(&self) -> u64 {
            self.bytes.load(Ordering::Relaxed)
        }
    }

    impl std::fmt::Display for CountingStore {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("counting")
        }
    }

    #[async_trait]
    impl ObjectStore for CountingStore {
        async fn put_opts(
            &self,
            location: &Path,
            payload: PutPayload,
            opts: PutOptions,
        ) -> Result<PutResult> {
            self.inner.put_opts(location, payload, opts).await
        }

        async fn put_multipart_opts(
            &self,
            location: &Path,
            opts: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.inner.put_multipart_opts(location, opts).await
        }

        async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
            let result = self.inner.get_opts(location, options).await?;
            self.bytes
                .fetch_add(result.range.end - result.range.start, Ordering::Relaxed);
            Ok(result)
        }

        async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.inner.get_ranges(location, ranges).await
        }

        fn delete_stream(
            &self,
            locations: BoxStream<'static, Result<Path>>,
        ) -> BoxStream<'static, Result<Path>> {
            self.inner.delete_stream(locations)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.inner.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.inner.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.inner.copy_opts(from, to, options).await
        }
    }
}

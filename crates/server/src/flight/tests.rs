//! Flight from outside, with the workers of the product.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::Int64Type;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, Ticket as WireTicket};
use futures::TryStreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_change::Code;
use tidegate_cluster::LocalWorkers;
use tidegate_rpc::flight::PutAnswer;
use tidegate_rpc::status::error_of;
use tidegate_rpc::v1;
use tidegate_rpc::v1::table_service_client::TableServiceClient;
use tonic::Status;
use tonic::transport::Channel;

use crate::config::{Bytes, Config};
use crate::node::Node;
use crate::node::tests::{channel, start_with};
use crate::{ApplyOptions, Embedded, OpenOptions, SourceArgument};

const FLAT: &str = "name: t\nkeys: [id]\nsequence_by: seq\nchange_data_feed: true\nschema:\n  - {name: id, type: long}\n  - {name: seq, type: long}\n  - {name: name, type: string}\n";
const DEBEZIUM: &str = "name: t\nkeys: [id]\nsource: {format: debezium}\nschema:\n  - {name: id, type: long}\n  - {name: name, type: string}\n";
const LINES: &str = "{\"id\":1,\"seq\":1,\"name\":\"a\"}\n{\"id\":2,\"seq\":1,\"name\":\"b\"}\n{\"id\":1,\"seq\":2,\"name\":\"c\"}\n";

struct Bench {
    dir: TempDir,
    node: Node,
    channel: Channel,
}

impl Bench {
    async fn new(spec: &str) -> Self {
        Self::with(spec, |_| {}).await
    }

    async fn with(spec: &str, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = start_with(dir.path(), Arc::new(LocalWorkers), change).await;
        let channel = channel(&node).await;
        let mut tables = TableServiceClient::new(channel.clone());
        let spec = spec.to_owned();
        tables
            .create_table(v1::CreateTableRequest { spec })
            .await
            .unwrap();
        Self { dir, node, channel }
    }

    async fn put(&self, metadata: Value, batches: Vec<RecordBatch>) -> Result<Value, Status> {
        let descriptor = FlightDescriptor::new_path(vec!["t".into()]);
        let messages = FlightDataEncoderBuilder::new()
            .with_metadata(metadata.to_string().into())
            .with_flight_descriptor(Some(descriptor))
            .build(futures::stream::iter(batches.into_iter().map(Ok)));
        let messages: Vec<FlightData> = messages.try_collect().await.unwrap();
        self.put_messages(messages).await
    }

    /// The result of a put, after checking what came before it.
    async fn put_messages(&self, messages: Vec<FlightData>) -> Result<Value, Status> {
        let mut flights = FlightServiceClient::new(self.channel.clone());
        let answers = flights.do_put(futures::stream::iter(messages)).await?;
        let answers: Vec<_> = answers.into_inner().try_collect().await?;
        let answers: Vec<PutAnswer> = answers
            .iter()
            .map(|answer| serde_json::from_slice(&answer.app_metadata).unwrap())
            .collect();
        assert!(
            matches!(answers[0], PutAnswer::Received { bytes } if bytes > 0),
            "{answers:?}"
        );
        match answers.last() {
            Some(PutAnswer::Result(result)) => Ok(result.clone()),
            other => panic!("the last answer is {other:?}"),
        }
    }

    async fn get(&self, ticket: Value) -> Result<RecordBatch, Status> {
        let mut flights = FlightServiceClient::new(self.channel.clone());
        let ticket = WireTicket::new(ticket.to_string());
        let messages = flights.do_get(ticket).await?.into_inner();
        let mut rows =
            FlightRecordBatchStream::new_from_flight_data(messages.map_err(FlightError::from));
        let batches: Vec<RecordBatch> = (&mut rows).try_collect().await.map_err(Status::from)?;
        let schema = rows.schema().cloned().unwrap();
        Ok(concat_batches(&schema, &batches).unwrap())
    }

    async fn names(&self) -> Vec<(i64, String)> {
        let rows = self
            .get(json!({"read": {"table": "t", "order": true}}))
            .await
            .unwrap();
        let ids = rows["id"].as_primitive::<Int64Type>();
        let names = rows["name"].as_string::<i32>();
        let row = |row| (ids.value(row), names.value(row).to_owned());
        (0..rows.num_rows()).map(row).collect()
    }

    /// Nothing of a put that ended may stay on disk.
    fn spool_is_empty(&self) -> bool {
        let spool = self.dir.path().join("data/spool");
        std::fs::read_dir(spool).map_or(true, |mut entries| entries.next().is_none())
    }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn strings<const N: usize>(values: [&str; N]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn longs<const N: usize>(values: [i64; N]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn bytes<const N: usize>(values: [&str; N]) -> ArrayRef {
    let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
    Arc::new(BinaryArray::from(values))
}

fn after_both() -> Vec<(i64, String)> {
    vec![(1, "c".into()), (2, "b".into())]
}

#[tokio::test]
async fn files_in_pieces_are_the_batch_that_they_are_on_disk() {
    let bench = Bench::new(FLAT).await;
    let (first, second) = LINES.split_at(20);
    let pieces = batch(vec![
        ("file", strings(["a.jsonl", "a.jsonl", "b.jsonl"])),
        ("chunk", bytes([first, second, ""])),
    ]);
    let result = bench.put(json!({}), vec![pieces]).await.unwrap();
    assert_eq!(
        (&result["version"], &result["events"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(bench.names().await, after_both());
    assert!(bench.spool_is_empty());
    // The same files applied in the directory itself have the same id: they are the same batch.
    for (name, text) in [("a.jsonl", LINES), ("b.jsonl", "")] {
        std::fs::write(bench.dir.path().join(name), text).unwrap();
    }
    let Bench { dir, node, channel } = bench;
    drop(channel);
    node.stop().await.unwrap();
    let options = OpenOptions {
        wait_lock: true,
        ..OpenOptions::default()
    };
    let embedded = Embedded::open(&dir.path().join("data"), options)
        .await
        .unwrap();
    let sources = ["a.jsonl", "b.jsonl"]
        .map(|name| SourceArgument::Path(dir.path().join(name).display().to_string()));
    let again = embedded
        .apply("t", &sources, &ApplyOptions::default())
        .await
        .unwrap();
    assert_eq!(
        (json!(again.batch_id), json!(again.version)),
        (result["batch_id"].clone(), json!(1))
    );
}

#[tokio::test]
async fn files_of_one_name_are_told_apart_by_their_number() {
    let bench = Bench::new(FLAT).await;
    let pieces = |numbers: [i64; 2]| {
        batch(vec![
            ("file", strings(["a.jsonl", "a.jsonl"])),
            (
                "chunk",
                bytes([
                    &LINES[..LINES.len() - 1],
                    "{\"id\":3,\"seq\":1,\"name\":\"d\"}",
                ]),
            ),
            ("file_number", longs(numbers)),
        ])
    };
    // One file: its third line goes on with the next piece and is no JSON.
    let refused = bench
        .put(json!({}), vec![pieces([0, 0])])
        .await
        .unwrap_err();
    assert_eq!(error_of(&refused).code(), Code::InvalidRecord);
    let result = bench.put(json!({}), vec![pieces([0, 1])]).await.unwrap();
    assert_eq!(result["events"], json!(4));
}

#[tokio::test]
async fn raw_records_of_an_envelope_are_decoded_by_the_spec() {
    let bench = Bench::new(DEBEZIUM).await;
    let value = |id: i64, name: &str, lsn: i64| {
        let source = json!({"connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn});
        json!({"op": "c", "after": {"id": id, "name": name}, "source": source}).to_string()
    };
    let (one, two) = (value(1, "c", 10), value(2, "b", 11));
    let records = batch(vec![
        ("key", bytes(["{\"id\":1}", "{\"id\":2}"])),
        ("value", bytes([&one, &two])),
        ("topic", strings(["shop", "shop"])),
        (
            "partition",
            Arc::new(Int32Array::from(vec![3, 3])) as ArrayRef,
        ),
        ("offset", longs([41, 42])),
    ]);
    let result = bench
        .put(json!({"batch_id": "r"}), vec![records])
        .await
        .unwrap();
    assert_eq!(result["events"], json!(2));
    assert_eq!(result["offsets"], json!({"shop/3": 43}));
    assert_eq!(bench.names().await, after_both());
    let columns = batch(vec![("id", longs([1])), ("name", strings(["x"]))]);
    let refused = bench.put(json!({}), vec![columns]).await.unwrap_err();
    assert_eq!(error_of(&refused).code(), Code::InvalidArgument);
    assert!(bench.spool_is_empty());
}

#[tokio::test]
async fn raw_records_of_rows_keep_their_offsets_and_a_bad_one_is_named() {
    let bench = Bench::new(FLAT).await;
    let records = |value: &str, offset: i64| {
        batch(vec![
            ("value", bytes([value])),
            ("topic", strings(["shop"])),
            ("offset", longs([offset])),
        ])
    };
    let pretty = "{\n  \"id\": 1,\n  \"seq\": 2,\n  \"name\": \"c\"\n}";
    let other = "{\"id\":2,\"seq\":1,\"name\":\"b\"}";
    let both = vec![records(pretty, 7), records(other, 3)];
    let result = bench.put(json!({}), both.clone()).await.unwrap();
    assert_eq!(result["offsets"], json!({"shop/0": 8}));
    assert_eq!(bench.names().await, after_both());
    // However the same records are cut into messages, they are the same batch.
    let whole = concat_batches(&both[0].schema(), &both).unwrap();
    assert_eq!(bench.put(json!({}), vec![whole]).await.unwrap(), result);
    let refused = bench
        .put(json!({}), vec![records("no JSON", 9)])
        .await
        .unwrap_err();
    assert_eq!(error_of(&refused).code(), Code::InvalidRecord);
    assert!(
        refused.message().contains("stream"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn columns_are_one_batch_however_they_are_cut() {
    let bench = Bench::new(FLAT).await;
    let rows = batch(vec![
        ("id", longs([1, 2, 1])),
        ("seq", longs([1, 1, 2])),
        ("name", strings(["a", "b", "c"])),
    ]);
    let result = bench.put(json!({}), vec![rows.clone()]).await.unwrap();
    assert_eq!(
        (&result["version"], &result["events"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(bench.names().await, after_both());
    let cut = vec![rows.slice(0, 1), rows.slice(1, 2)];
    assert_eq!(bench.put(json!({"rows": 3}), cut).await.unwrap(), result);
    let named = bench
        .put(json!({"batch_id": "n"}), vec![rows.clone()])
        .await
        .unwrap();
    assert_eq!(named["version"], json!(2));
    let other = bench
        .put(json!({"batch_id": "n"}), vec![rows.slice(0, 2)])
        .await
        .unwrap_err();
    assert_eq!(error_of(&other).code(), Code::BatchContentMismatch);
    let dry = bench
        .put(json!({"dry_run": true, "force": true}), vec![rows])
        .await
        .unwrap();
    assert_eq!(dry["version"], json!(3));
    assert!(bench.spool_is_empty());
}

#[tokio::test]
async fn offsets_that_are_sent_are_checked() {
    let bench = Bench::new(FLAT).await;
    let row = |id| {
        batch(vec![
            ("id", longs([id])),
            ("seq", longs([1])),
            ("name", strings(["x"])),
        ])
    };
    let from = |from: i64, to: i64| json!({"offsets": {"shop/0": {"from": from, "to": to}}});
    bench.put(from(0, 10), vec![row(1)]).await.unwrap();
    let gap = bench.put(from(11, 12), vec![row(2)]).await.unwrap_err();
    assert_eq!(error_of(&gap).code(), Code::InvalidArgument);
    let next = bench.put(from(10, 12), vec![row(3)]).await.unwrap();
    assert_eq!(next["offsets"], json!({"shop/0": 12}));
}

#[tokio::test]
async fn a_put_that_ends_too_early_or_is_too_large_leaves_nothing() {
    let bench = Bench::with(FLAT, |config| config.limits.put_bytes = Bytes(4 << 10)).await;
    let rows = batch(vec![
        ("id", longs([1])),
        ("seq", longs([1])),
        ("name", strings(["x"])),
    ]);
    let short = bench
        .put(json!({"rows": 2}), vec![rows.clone()])
        .await
        .unwrap_err();
    assert_eq!(error_of(&short).code(), Code::InvalidArgument);
    let large = batch(vec![
        ("file", strings(["a"])),
        ("chunk", bytes([&"x".repeat(8 << 10)])),
    ]);
    let refused = bench.put(json!({}), vec![large]).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert_eq!(bench.names().await, []);
    // The writer of the refused put may be ending still.
    for _ in 0..100 {
        if bench.spool_is_empty() {
            return;
        }
        tokio::task::spawn_blocking(|| std::thread::sleep(std::time::Duration::from_millis(20)))
            .await
            .unwrap();
    }
    panic!("the spool holds what was refused");
}

#[tokio::test]
async fn what_is_no_arrow_data_is_refused_and_the_node_lives() {
    let bench = Bench::new(FLAT).await;
    let descriptor = FlightDescriptor::new_path(vec!["t".into()]);
    let rows = batch(vec![
        ("id", longs([1])),
        ("seq", longs([1])),
        ("name", strings(["x"])),
    ]);
    let whole = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(descriptor.clone()))
        .build(futures::stream::iter([Ok(rows)]));
    let whole: Vec<FlightData> = whole.try_collect().await.unwrap();
    let garbage = FlightData::new()
        .with_descriptor(descriptor)
        .with_data_header(vec![7_u8; 64]);
    let refused = bench.put_messages(vec![garbage]).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    // Every byte of the batch's header and every cut of its body.
    let rows_message = whole.last().unwrap();
    for place in 0..rows_message.data_header.len() {
        let mut header = rows_message.data_header.to_vec();
        header[place] ^= 0xff;
        let body = rows_message
            .data_body
            .slice(..rows_message.data_body.len().min(place * 4));
        let bad = FlightData::new()
            .with_data_header(header)
            .with_data_body(body);
        // It may still be a batch; whatever it is, the answer comes and the node lives.
        let _ = bench.put_messages(vec![whole[0].clone(), bad]).await;
    }
    bench
        .put(
            json!({"batch_id": "good"}),
            vec![batch(vec![
                ("id", longs([5])),
                ("seq", longs([9])),
                ("name", strings(["y"])),
            ])],
        )
        .await
        .unwrap();
    let names = bench.names().await;
    assert!(names.contains(&(5, "y".into())), "{names:?}");
}

#[tokio::test]
async fn a_put_says_what_is_wrong_with_its_first_message() {
    let bench = Bench::new(FLAT).await;
    let rows = || {
        vec![batch(vec![
            ("id", longs([1])),
            ("seq", longs([1])),
            ("name", strings(["x"])),
        ])]
    };
    let unknown = bench
        .put(json!({"batchid": "x"}), rows())
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::InvalidArgument);
    let message = FlightData::new();
    let nameless = bench.put_messages(vec![message]).await.unwrap_err();
    assert_eq!(nameless.code(), tonic::Code::InvalidArgument);
    let nobody = FlightDescriptor::new_path(vec!["nope".into()]);
    let message = FlightData::new().with_descriptor(nobody);
    let missing = bench.put_messages(vec![message]).await.unwrap_err();
    assert_eq!(error_of(&missing).code(), Code::TableNotFound);
}

#[tokio::test]
async fn versions_changes_and_their_columns_come_by_ticket() {
    let bench = Bench::new(FLAT).await;
    let row = |seq, name| {
        batch(vec![
            ("id", longs([1])),
            ("seq", longs([seq])),
            ("name", strings([name])),
        ])
    };
    bench.put(json!({}), vec![row(1, "a")]).await.unwrap();
    let mut flights = FlightServiceClient::new(bench.channel.clone());
    let descriptor = FlightDescriptor::new_path(vec!["t".into()]);
    let info = flights
        .get_flight_info(descriptor.clone())
        .await
        .unwrap()
        .into_inner();
    let pinned = info.endpoint[0].ticket.clone().unwrap();
    bench.put(json!({}), vec![row(2, "b")]).await.unwrap();
    // The ticket of before gives the version of before.
    let pinned: Value = serde_json::from_slice(&pinned.ticket).unwrap();
    let rows = bench.get(pinned).await.unwrap();
    assert_eq!(rows["name"].as_string::<i32>().value(0), "a");
    let newest = json!({"read": {"table": "t", "columns": ["name"], "where": "seq = 2"}});
    let rows = bench.get(newest).await.unwrap();
    assert_eq!(
        (rows.num_columns(), rows["name"].as_string::<i32>().value(0)),
        (1, "b")
    );
    let feed = bench
        .get(json!({"changes": {"table": "t", "from_version": 2}}))
        .await
        .unwrap();
    assert_eq!(feed.num_rows(), 2);
    let schema = flights.get_schema(descriptor).await.unwrap().into_inner();
    let schema: arrow::datatypes::Schema = schema.try_into().unwrap();
    assert_eq!(schema.fields().len(), 3);
    let later = json!({"read": {"table": "t", "min_version": 9}});
    let refused = bench.get(later).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    let wrong = bench.get(json!({"reed": {}})).await.unwrap_err();
    assert_eq!(wrong.code(), tonic::Code::InvalidArgument);
    let none = bench
        .get(json!({"changes": {"table": "t"}}))
        .await
        .unwrap_err();
    assert_eq!(error_of(&none).code(), Code::NoStart);
}

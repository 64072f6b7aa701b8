//! The golden values were computed with another implementation (Python `struct` and `xxhash`). They must
//! never change: rows that are stored are known by them.

use arrow::array::{BinaryArray, Int8Array};
use arrow::array::{
    BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array,
    ListArray, MapArray, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{Field, Fields, Schema};
use std::collections::BTreeMap;

use super::*;
use crate::source::OtherRecords;

/// Digest of the one column `v` with the value 5.
const FIVE: &str = "c5ba90dfb8cbf68c";

fn batch(columns: Vec<(&str, ArrayRef)>, file: &str, row: u64) -> SourceBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let arrays: Vec<ArrayRef> = columns.into_iter().map(|(_, column)| column).collect();
    SourceBatch {
        authored: vec![None; arrays.len()],
        columns: RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap(),
        operations: vec![SourceOperation::Upsert],
        position: None,
        old_keys: None,
        origin: Origin {
            file: file.into(),
            rows: vec![row],
            topics: None,
            partitions: None,
            offsets: None,
            records: None,
        },
        invalid: Vec::new(),
        other: OtherRecords::default(),
        absent: 0,
        unrepresentable: 0,
        offsets: BTreeMap::new(),
    }
}

fn five() -> SourceBatch {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![5]));
    batch(vec![("v", values)], "day1/a.jsonl", 0)
}

fn of(batch: &SourceBatch) -> Vec<u8> {
    let keys = position_keys(batch, |_| true).unwrap();
    keys.as_binary::<i32>().value(0).to_vec()
}

fn hex(batch: &SourceBatch) -> String {
    of(batch).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(column: ArrayRef) -> Vec<u8> {
    of(&batch(vec![("v", column)], "", 0)).split_off(11)
}

fn log_position(members: Vec<(&str, ArrayRef)>) -> ArrayRef {
    let members = members.into_iter().map(|(name, column)| {
        let field = Field::new(name, column.data_type().clone(), true);
        (Arc::new(field), column)
    });
    Arc::new(StructArray::from(members.collect::<Vec<_>>()))
}

fn integers(value: i32) -> ArrayRef {
    Arc::new(Int32Array::from(vec![value]))
}

fn longs(value: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value]))
}

#[test]
fn places_in_files_and_topics_have_golden_bytes() {
    let mut event = five();
    let place = "01646179312f612e6a736f6e6c00018000000000000000";
    assert_eq!(hex(&event), format!("{place}{FIVE}"));
    event.origin.file = "a\0b".into();
    event.origin.rows = vec![41];
    assert_eq!(hex(&event), format!("016100ff6200018000000000000029{FIVE}"));

    event.origin.offsets = Some(vec![Some(-1)]);
    event.origin.partitions = Some(vec![Some(2)]);
    event.origin.topics = Some(vec![Some("s.t".into())]);
    let place = "02732e74000180000000000000027fffffffffffffff";
    assert_eq!(hex(&event), format!("{place}{FIVE}"));
    event.origin = Origin {
        offsets: Some(vec![Some(7)]),
        topics: None,
        partitions: None,
        ..event.origin
    };
    let place = "02000180000000000000008000000000000007";
    assert_eq!(hex(&event), format!("{place}{FIVE}"));
    event.origin.offsets = Some(vec![None]);
    assert_eq!(hex(&event), format!("016100ff6200018000000000000029{FIVE}"));
}

#[test]
fn log_positions_have_golden_bytes_without_their_rank() {
    let mut event = five();
    event.origin.offsets = Some(vec![Some(7)]);
    event.position = Some(log_position(vec![
        ("lsn", longs(34_564_464)),
        ("rank", integers(1)),
    ]));
    assert_eq!(hex(&event), format!("030180000000020f6970{FIVE}"));
    let mysql = vec![
        ("file", longs(2)),
        ("pos", longs(8596)),
        ("row", integers(0)),
        ("rank", integers(1)),
    ];
    event.position = Some(log_position(mysql));
    let place = "03018000000000000002018000000000002194018000000000000000";
    assert_eq!(hex(&event), format!("{place}{FIVE}"));
    let lsn: ArrayRef = Arc::new(StringArray::from(vec!["00000025:00000d98:00a2"]));
    let none: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
    let sql_server = vec![
        ("commit_lsn", lsn),
        ("change_lsn", none),
        ("serial", longs(1)),
        ("rank", integers(1)),
    ];
    event.position = Some(log_position(sql_server));
    let place = "030130303030303032353a30303030306439383a30306132000100018000000000000001";
    assert_eq!(hex(&event), format!("{place}{FIVE}"));
}

#[test]
fn rows_of_a_copy_and_events_without_log_position_stand_in_their_topic() {
    let mut event = five();
    event.origin.offsets = Some(vec![Some(7)]);
    let in_topic = of(&event);
    event.position = Some(log_position(vec![("lsn", longs(3)), ("rank", integers(0))]));
    assert_ne!(of(&event), in_topic);
    event.operations = vec![SourceOperation::Copy];
    assert_eq!(of(&event), in_topic);

    event.operations = vec![SourceOperation::Upsert];
    let lsn: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    event.position = Some(log_position(vec![("lsn", lsn), ("rank", integers(1))]));
    assert_eq!(of(&event), in_topic);
}

#[test]
fn bytes_compare_as_places_do() {
    let place = |file: &str, row| {
        let mut event = five();
        event.origin.file = file.into();
        event.origin.rows = vec![row];
        of(&event)
    };
    let logged = |lsn| {
        let mut event = five();
        event.position = Some(log_position(vec![
            ("lsn", longs(lsn)),
            ("rank", integers(1)),
        ]));
        of(&event)
    };
    let ascending = [
        place("a", 2),
        place("a", 10),
        place("a\0b", 0),
        place("ab", 0),
        logged(-1),
        logged(9),
        logged(10),
    ];
    assert!(ascending.is_sorted());
}

fn all_types() -> Vec<(&'static str, ArrayRef)> {
    let text = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let item = Arc::new(Field::new("item", DataType::Utf8, true));
    let items = text(vec![Some("a"), None]);
    let list = ListArray::new(item, OffsetBuffer::from_lengths([2]), items, None);
    let pair = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, true),
    ]);
    let entries = vec![text(vec![Some("k")]), text(vec![None])];
    let entries = StructArray::new(pair.clone(), entries, None);
    let entry = Arc::new(Field::new("key_value", DataType::Struct(pair), false));
    let map = MapArray::new(entry, OffsetBuffer::from_lengths([1]), entries, None, false);
    let members = vec![
        (
            Arc::new(Field::new("a", DataType::Utf8, true)),
            text(vec![None]),
        ),
        (
            Arc::new(Field::new("b", DataType::Int32, true)),
            integers(7),
        ),
    ];
    let decimal = Decimal128Array::from(vec![1050]).with_precision_and_scale(12, 2);
    vec![
        ("text", text(vec![Some("x")])),
        ("long", longs(-5)),
        ("double", Arc::new(Float64Array::from(vec![2.5]))),
        ("whole", Arc::new(Float32Array::from(vec![3.0]))),
        ("decimal", Arc::new(decimal.unwrap())),
        ("boolean", Arc::new(BooleanArray::from(vec![true]))),
        ("date", Arc::new(Date32Array::from(vec![1]))),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from(vec![-1]).with_timezone("UTC")),
        ),
        ("binary", Arc::new(BinaryArray::from_vec(vec![b"\0\x01"]))),
        ("list", Arc::new(list)),
        ("map", Arc::new(map)),
        ("struct", Arc::new(StructArray::from(members))),
        ("null", text(vec![None])),
    ]
}

#[test]
fn values_of_all_types_have_a_golden_digest_in_any_order_of_columns() {
    let golden = 0x8856_076f_f927_6d70_u64.to_be_bytes();
    let mut columns = all_types();
    let mut event = batch(columns.clone(), "", 0);
    assert_eq!(of(&event).split_off(11), golden);
    columns.reverse();
    event = batch(columns, "", 0);
    assert_eq!(of(&event).split_off(11), golden);
    let nan = Float64Array::from(vec![-f64::NAN]);
    assert_eq!(
        digest(Arc::new(nan)),
        0x34fa_fbc4_ed0f_6660_u64.to_be_bytes()
    );
}

#[test]
fn what_no_event_says_is_not_in_the_digest() {
    let nothing = 0x2d06_8005_38d3_94c2_u64.to_be_bytes();
    let null: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    assert_eq!(digest(null), nothing);
    let mut event = five();
    event.authored = vec![Some(BooleanBuffer::new_unset(1))];
    let tail = |key: Vec<u8>| key[key.len() - 8..].to_vec();
    assert_eq!(tail(of(&event)), nothing);
    let keys = position_keys(&five(), |name| name != "v").unwrap();
    assert_eq!(tail(keys.as_binary::<i32>().value(0).to_vec()), nothing);
}

#[test]
fn a_widened_column_keeps_its_digests() {
    let long = digest(longs(5));
    let five = |scale: u8| {
        let unscaled = 5 * 10_i128.pow(u32::from(scale));
        let decimals = Decimal128Array::from(vec![unscaled]);
        let scale = i8::try_from(scale).unwrap();
        Arc::new(decimals.with_precision_and_scale(20, scale).unwrap()) as ArrayRef
    };
    let same: [ArrayRef; 6] = [
        Arc::new(Int8Array::from(vec![5])),
        integers(5),
        Arc::new(Float64Array::from(vec![5.0])),
        five(0),
        five(2),
        five(4),
    ];
    for column in same {
        assert_eq!(digest(Arc::clone(&column)), long, "{}", column.data_type());
    }
    let zero = |value: f64| digest(Arc::new(Float64Array::from(vec![value])));
    assert_eq!(zero(0.0), zero(-0.0));
    let day: ArrayRef = Arc::new(Date32Array::from(vec![3]));
    let midnight: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![3 * 86_400_000_000]));
    assert_eq!(digest(day), digest(midnight));
}

#[test]
fn structs_of_nulls_are_not_null_and_neighbours_do_not_run_together() {
    let members = |nulls| {
        let field = Arc::new(Field::new("a", DataType::Int32, true));
        let none: ArrayRef = Arc::new(Int32Array::from(vec![None]));
        let fields = Fields::from(vec![field]);
        Arc::new(StructArray::new(fields, vec![none], nulls)) as ArrayRef
    };
    assert_ne!(
        digest(members(None)),
        digest(members(Some(NullBuffer::new_null(1))))
    );
    let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let of = |a, b| of(&batch(vec![("a", text(a)), ("b", text(b))], "", 0));
    assert_ne!(of("xy", "z"), of("x", "yz"));
}

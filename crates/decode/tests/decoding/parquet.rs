//! Parquet files of other writers' types.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::DataType;
use parquet::arrow::ArrowWriter;
use tidegate_change::Code;

use super::{decode, resolved, try_decode};

fn file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.flush().unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn values_are_cast_without_loss_or_refused() {
    let decimals = Decimal128Array::from(vec![150, 155])
        .with_precision_and_scale(5, 2)
        .unwrap();
    let dictionary = arrow::compute::cast(
        &StringArray::from(vec!["x", "y"]),
        &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
    );
    let bytes = file(vec![
        ("id", Arc::new(Int32Array::from(vec![1, 2]))),
        ("seq", Arc::new(Int64Array::from(vec![7, 8]))),
        ("d", Arc::new(decimals)),
        (
            "t",
            Arc::new(TimestampNanosecondArray::from(vec![1_000, 2_000])),
        ),
        ("s", dictionary.unwrap()),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 1]))),
        ("day", Arc::new(Date32Array::from(vec![0, i32::MAX]))),
        ("new", Arc::new(Float64Array::from(vec![0.5, 1.5]))),
    ]);
    let spec = "name: t\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  \
        - {name: seq, type: long}\n  - {name: d, type: 'decimal(5,1)'}\n  - {name: t, type: timestamp}\n  \
        - {name: s, type: string}\n  - {name: u, type: 'decimal(20,0)'}\n  - {name: day, type: date}\n  \
        - {name: gone, type: long}\n";
    let whole = decode(&resolved(spec), None, bytes.clone());
    assert_eq!(whole.column("id"), ["1", "1"]);
    assert_eq!(whole.column("seq"), ["7", "7"]);
    assert_eq!(whole.column("d"), ["\"1.5\""; 2]);
    assert_eq!(whole.column("t"), ["\"1970-01-01T00:00:00.000001Z\""; 2]);
    assert_eq!(whole.column("s"), ["\"x\""; 2]);
    assert_eq!(whole.column("u"), ["\"18446744073709551615\""; 2]);
    assert_eq!(whole.column("gone"), ["-"; 2]);
    assert_eq!(whole.findings.fields[0].name, "new");
    assert_eq!(whole.invalid().len(), 2);
    assert!(whole.invalid()[1].starts_with("INVALID_VALUE row 3 line 4, field d"));
    let next = tidegate_decode::evolve(&resolved(spec), &whole.findings, false)
        .unwrap()
        .unwrap();
    assert_eq!(decode(&next, None, bytes).column("new"), ["0.5", "0.5"]);
}

#[test]
fn a_row_group_of_a_whole_file_is_cut_and_gives_every_row_once_and_in_order() {
    let rows = 60_000i64;
    let text = "x".repeat(800);
    let texts = StringArray::from_iter_values((0..rows).map(|row| format!("{row}{text}")));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::clone(&ids)),
        ("seq", ids),
        ("s", Arc::new(texts)),
    ]);
    let batch = batch.unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    assert_eq!(writer.close().unwrap().num_row_groups(), 1);
    let spec = "name: t\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  \
        - {name: seq, type: long}\n";
    let plan = tidegate_decode::DecodePlan::new(&resolved(spec)).unwrap();
    let input = tidegate_decode::Input::Bytes(bytes.into());
    let length = match &input {
        tidegate_decode::Input::Bytes(bytes) => bytes.len() as u64,
        _ => 0,
    };
    let mut chunks = tidegate_decode::open(&plan, None, "events", input, None).unwrap();
    let (mut parts, mut places, mut values) = (0, Vec::new(), Vec::new());
    for chunk in chunks.by_ref() {
        parts += 1;
        for batch in plan.decode(&chunk.unwrap()).unwrap().batches {
            places.extend(batch.origin.rows.clone());
            let ids = batch.columns.column_by_name("id").unwrap();
            let ids = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(ids);
            values.extend_from_slice(ids.values());
        }
    }
    assert!((3..10).contains(&parts), "{parts} chunks");
    assert!(
        values.into_iter().eq(0..rows),
        "a row is lost, doubled or moved"
    );
    assert!(places.into_iter().eq(0..60_000), "a row has another number");
    let taken = chunks.bytes_taken();
    assert!(
        taken <= length && taken > length * 9 / 10,
        "{taken} of {length} bytes"
    );
}

#[test]
fn damaged_files_are_errors() {
    let bytes = file(vec![
        (
            "id",
            Arc::new(Int64Array::from((0..1000).collect::<Vec<i64>>())),
        ),
        (
            "seq",
            Arc::new(Int64Array::from((0..1000).collect::<Vec<i64>>())),
        ),
    ]);
    let spec = resolved(
        "name: t\nkeys: [id]\nsequence_by: seq\nschema: [{name: id, type: long}, {name: seq, type: long}]\n",
    );
    for cut in [4, 10, bytes.len() / 2, bytes.len() - 1] {
        let error = try_decode(&spec, None, bytes[..cut].to_vec())
            .err()
            .unwrap();
        assert_eq!(error.code(), Code::InvalidRecord);
    }
    for place in (4..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x55;
        let _ = try_decode(&spec, None, damaged);
    }
}

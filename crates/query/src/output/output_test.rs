use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Decimal128Array, Int64Array, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Fields, Schema};

use super::*;

/// An output whose bytes can be looked at.
#[derive(Clone, Debug, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn batch() -> RecordBatch {
    let members = Fields::from(vec![Field::new("x", DataType::Int64, true)]);
    let point = StructArray::new(
        members,
        vec![Arc::new(Int64Array::from(vec![7, 8, 9]))],
        None,
    );
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![1, 22, i64::MAX]))),
        (
            "name",
            Arc::new(StringArray::from(vec![Some("a,\"b\"\nc"), None, Some("")])),
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from(vec![Some(150), None, Some(-1)])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
        ),
        ("point", Arc::new(point)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

fn written(format: OutputFormat, batches: &[RecordBatch]) -> Vec<u8> {
    let sink = Sink::default();
    let schema = batch().schema();
    let mut writer = row_writer(format, &schema, Box::new(sink.clone())).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    std::mem::take(&mut *sink.0.lock().unwrap())
}

fn text(format: OutputFormat, batches: &[RecordBatch]) -> String {
    String::from_utf8(written(format, batches)).unwrap()
}

#[test]
fn json_is_one_array_over_all_batches() {
    let text = text(
        OutputFormat::Json,
        &[batch(), batch().slice(0, 0), batch().slice(1, 1)],
    );
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 4);
    assert_eq!(rows[2]["id"].to_string(), "9223372036854775807");
    assert_eq!(rows[1]["name"], serde_json::Value::Null);
    assert_eq!(rows[0]["price"], "1.50");
    assert_eq!(rows[3]["point"]["x"].to_string(), "8");
    assert_eq!(self::text(OutputFormat::Json, &[]), "[]\n");
}

#[test]
fn json_lines_are_one_object_a_row() {
    let text = text(OutputFormat::JsonLines, &[batch()]);
    assert_eq!(text.lines().count(), 3);
    assert_eq!(
        text.lines().nth(1).unwrap(),
        r#"{"id":22,"name":null,"price":null,"point":{"x":8}}"#
    );
    assert_eq!(self::text(OutputFormat::JsonLines, &[]), "");
}

#[test]
fn csv_tells_null_from_the_empty_string() {
    assert_eq!(
        text(OutputFormat::Csv, &[batch()]),
        "id,name,price,point\n\
         1,\"a,\"\"b\"\"\nc\",1.50,\"{\"\"x\"\":7}\"\n\
         22,,,\"{\"\"x\"\":8}\"\n\
         9223372036854775807,\"\",-0.01,\"{\"\"x\"\":9}\"\n"
    );
}

#[test]
fn tables_align_and_print_no_control_characters() {
    let batch = batch().project(&[0, 1, 2]).unwrap();
    let sink = Sink::default();
    let mut writer =
        row_writer(OutputFormat::Table, &batch.schema(), Box::new(sink.clone())).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let bytes = sink.0.lock().unwrap().clone();
    let expected = concat!(
        "                 id  name      price\n",
        "-------------------  --------  -----\n",
        "                  1  a,\"b\"\\nc   1.50\n",
        "                 22  NULL       NULL\n",
        "9223372036854775807            -0.01\n",
    );
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}

#[test]
fn a_long_table_is_printed_as_it_comes() {
    let many: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2500));
    let batch = RecordBatch::try_from_iter([("n", many)]).unwrap();
    let sink = Sink::default();
    let mut writer =
        row_writer(OutputFormat::Table, &batch.schema(), Box::new(sink.clone())).unwrap();
    writer.write(&batch).unwrap();
    assert!(sink.0.lock().unwrap().len() > 2000);
    writer.finish().unwrap();
    assert_eq!(
        sink.0
            .lock()
            .unwrap()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count(),
        2502
    );
}

#[test]
fn parquet_is_read_back() {
    let bytes = bytes::Bytes::from(written(OutputFormat::Parquet, &[batch()]));
    let mut reader =
        ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes)
            .unwrap()
            .build()
            .unwrap();
    assert_eq!(reader.next().unwrap().unwrap(), batch());
}

#[test]
fn tables_without_columns_are_written_in_every_form() {
    let schema: SchemaRef = Arc::new(Schema::empty());
    for word in OutputFormat::WORDS {
        let format = OutputFormat::from_word(word).unwrap();
        let writer = row_writer(format, &schema, Box::new(Sink::default())).unwrap();
        writer.finish().unwrap();
    }
}

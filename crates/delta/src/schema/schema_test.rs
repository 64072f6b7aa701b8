//! Schemas through JSON, widening, mapping; partition values through text.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, Field, Schema};
use tidegate_change::{Code, types};

use super::evolve::{assign, needs_mapping};
use super::partition::{parse_value, value_text};
use super::*;

fn schema(columns: &[(&str, &str)]) -> Schema {
    let fields = columns
        .iter()
        .map(|(name, kind)| Field::new(*name, types::parse_type(kind).unwrap(), true));
    Schema::new(fields.collect::<Vec<_>>())
}

#[test]
fn schemas_survive_json() {
    let schema = schema(&[
        ("id", "long"),
        ("p", "decimal(38,10)"),
        ("t", "timestamp_ntz"),
        ("m", "map<string,array<struct<a:date,b c:binary>>>"),
    ]);
    let json = to_delta_json(&schema).unwrap();
    assert_eq!(from_delta_json(&json).unwrap().as_ref(), &schema);
    assert!(json.contains(r#""type":"decimal(38,10)""#), "{json}");
}

#[test]
fn widening_is_noted_where_it_happened() {
    let before = assign(
        &[],
        &schema(&[("a", "integer"), ("m", "map<string,array<short>>")]),
        "t",
        None,
    );
    let after = schema(&[
        ("a", "long"),
        ("m", "map<string,array<integer>>"),
        ("b", "string"),
    ]);
    let after = assign(&before.unwrap().columns, &after, "t", None).unwrap();
    let json = column::to_json(&after.columns);
    assert!(
        json.contains(r#""delta.typeChanges":[{"fromType":"integer","toType":"long"}]"#),
        "{json}"
    );
    assert!(
        json.contains(r#""fieldPath":"value.element","fromType":"short""#),
        "{json}"
    );
    assert!(was_widened(&after.columns));
    let narrow = assign(&after.columns, &schema(&[("a", "short")]), "t", None).unwrap_err();
    assert_eq!(narrow.code(), Code::InvalidAlter);
}

#[test]
fn mapped_columns_keep_ids_and_new_ones_get_fresh() {
    let first = schema(&[("a b", "long"), ("s", "struct<x:long>")]);
    assert!(needs_mapping(&columns_of_arrow(&first).unwrap()));
    let first = assign(&[], &first, "t", Some(0)).unwrap();
    assert_eq!(first.max_id, 3);
    let second = schema(&[
        ("a b", "long"),
        ("s", "struct<x:long,y:long>"),
        ("c", "long"),
    ]);
    let second = assign(&first.columns, &second, "t", Some(first.max_id)).unwrap();
    assert_eq!(second.max_id, 5);
    assert_eq!(second.columns[0], first.columns[0]);
    let table = TableSchema::new(second.columns, Vec::new()).unwrap();
    assert!(table.physical_name("a b").starts_with("col-"));
    assert_eq!(table.physical_name("c"), "c");
    assert_eq!(table.physical_name("__tidegate_seq"), "__tidegate_seq");
}

#[test]
fn a_table_that_turns_to_mapping_keeps_its_names_in_files() {
    let plain = assign(&[], &schema(&[("a", "long")]), "t", None).unwrap();
    let mapped = assign(
        &plain.columns,
        &schema(&[("a", "long"), ("b c", "long")]),
        "t",
        Some(0),
    );
    let table = TableSchema::new(mapped.unwrap().columns, Vec::new()).unwrap();
    assert_eq!(table.physical_name("a"), "a");
    assert!(table.physical_name("b c").starts_with("col-"));
}

#[test]
fn names_that_differ_in_case_only_are_refused() {
    let error = assign(&[], &schema(&[("A", "long"), ("a", "long")]), "t", None).unwrap_err();
    assert_eq!(error.code(), Code::InvalidSpec);
    assert!(error.hint().is_some());
}

#[test]
fn partition_values_survive_text() {
    use arrow::array::*;
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(i64::MIN), None])),
        Arc::new(Int8Array::from(vec![Some(-5), None])),
        Arc::new(StringArray::from(vec![Some("a b/ü"), None])),
        Arc::new(BooleanArray::from(vec![Some(true), None])),
        Arc::new(Date32Array::from(vec![Some(-1), None])),
        Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), None])),
        Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), None]).with_timezone("UTC")),
        Arc::new(
            Decimal128Array::from(vec![Some(-5), None])
                .with_precision_and_scale(38, 2)
                .unwrap(),
        ),
        Arc::new(Float64Array::from(vec![Some(0.1), None])),
        Arc::new(Float32Array::from(vec![Some(1e30), None])),
    ];
    for array in arrays {
        for row in 0..2 {
            let text = value_text(&array, row).unwrap();
            let back = parse_value(array.data_type(), text.as_deref()).unwrap();
            assert_eq!(&back, &array.slice(row, 1), "{text:?}");
        }
    }
    let date: ArrayRef = Arc::new(Date32Array::from(vec![Some(-1)]));
    assert_eq!(value_text(&date, 0).unwrap().as_deref(), Some("1969-12-31"));
    let spark = parse_value(
        &tidegate_change::types::timestamp_utc(),
        Some("1970-01-01 00:00:00.000001"),
    )
    .unwrap();
    assert_eq!(
        value_text(&spark, 0).unwrap().as_deref(),
        Some("1970-01-01T00:00:00.000001Z")
    );
    assert!(parse_value(&DataType::Int64, Some("x")).is_err());
}

#[test]
fn structs_gain_members_and_values_widen() {
    let narrow = types::parse_type("struct<a:integer>").unwrap();
    let wide = types::parse_type("struct<a:long,b:string>").unwrap();
    let a: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![Some(1), None]));
    let DataType::Struct(fields) = &narrow else {
        unreachable!()
    };
    let array: ArrayRef = Arc::new(arrow::array::StructArray::new(
        fields.clone(),
        vec![a],
        None,
    ));
    let conformed = conform(&array, &wide).unwrap();
    assert_eq!(conformed.data_type(), &wide);
    let too_narrow = conform(&conformed, &DataType::Int64).unwrap_err();
    assert_eq!(too_narrow.code(), Code::Corrupt);
}

#[test]
fn rows_are_split_in_order_of_appearance() {
    let columns = columns_of_arrow(&schema(&[("id", "long"), ("p", "string")])).unwrap();
    let table = TableSchema::new(columns, vec!["p".into()]).unwrap();
    let ids = arrow::array::Int64Array::from(vec![1, 2, 3, 4]);
    let parts = arrow::array::StringArray::from(vec![Some("b"), None, Some("b"), Some("a/")]);
    let batch = RecordBatch::try_new(
        Arc::clone(table.arrow()),
        vec![Arc::new(ids), Arc::new(parts)],
    );
    let split = split_by_partition(&table, &batch.unwrap()).unwrap();
    let directories: Vec<&str> = split.iter().map(|(values, _)| values.directory()).collect();
    assert_eq!(
        directories,
        ["p=b/", "p=__HIVE_DEFAULT_PARTITION__/", "p=a%2F/"]
    );
    assert_eq!(split[0].1.num_rows(), 2);
}

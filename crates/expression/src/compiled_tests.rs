use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int64Type};

use super::*;

fn batch() -> RecordBatch {
    let members = Fields::from(vec![
        Field::new("City", DataType::Utf8, true),
        Field::new("zip", DataType::Int64, true),
    ]);
    let address = StructArray::new(
        members,
        vec![
            Arc::new(StringArray::from(vec![Some("Pune"), None, Some("Delhi")])),
            Arc::new(Int64Array::from(vec![Some(1), Some(2), None])),
        ],
        None,
    );
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "_cdc_operation",
            Arc::new(StringArray::from(vec![Some("D"), None, Some("U")])),
        ),
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ("ID", Arc::new(Int64Array::from(vec![10, 20, 30]))),
        (
            "Amount",
            Arc::new(
                Decimal128Array::from(vec![Some(110), Some(111), None])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
        ),
        (
            "updated_at",
            Arc::new(
                // 2026-05-01T10:00:00Z, NULL, 9999-12-31T00:00:00Z
                TimestampMicrosecondArray::from(vec![
                    Some(1_777_629_600_000_000),
                    None,
                    Some(253_402_214_400_000_000),
                ])
                .with_timezone("UTC"),
            ),
        ),
        ("address", Arc::new(address)),
        (
            "two words",
            Arc::new(StringArray::from(vec!["a", "b", "c"])),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

fn holds(sql: &str) -> Vec<bool> {
    let batch = batch();
    let compiled = Compiled::condition(sql, &batch.schema()).unwrap();
    compiled
        .predicate(&batch)
        .unwrap()
        .iter()
        .map(|v| v.unwrap())
        .collect()
}

fn error(sql: &str) -> Error {
    Compiled::new(sql, &batch().schema()).unwrap_err()
}

fn texts(sql: &str) -> Vec<Option<String>> {
    let batch = batch();
    let values = Compiled::new(sql, &batch.schema())
        .unwrap()
        .evaluate(&batch)
        .unwrap();
    values
        .as_string::<i32>()
        .iter()
        .map(|v| v.map(str::to_owned))
        .collect()
}

#[test]
fn a_condition_that_is_null_is_false() {
    assert_eq!(holds("_cdc_operation = 'D'"), [true, false, false]);
    assert_eq!(holds("_cdc_operation <> 'D'"), [false, false, true]);
    assert_eq!(holds("NULL"), [false; 3]);
    assert_eq!(holds("true"), [true; 3]);
}

#[test]
fn names_are_exact_and_unquoted_ones_match_any_case_where_unambiguous() {
    assert_eq!(holds("id = 1"), [true, false, false]);
    assert_eq!(holds("ID = 20"), [false, true, false]);
    assert_eq!(holds("amount = 1.1"), [true, false, false]);
    assert_eq!(holds("`two words` = 'b'"), [false, true, false]);
    let ambiguous = error("Id = 1");
    assert_eq!(ambiguous.code(), Code::UnknownColumn);
    let quoted = error("\"amount\" = 1");
    assert_eq!(quoted.code(), Code::UnknownColumn);
    assert_eq!(quoted.hint(), Some("did you mean \"Amount\"?"));
}

#[test]
fn decimals_compare_exactly() {
    assert_eq!(holds("Amount > 1.10"), [false, true, false]);
    assert_eq!(holds("Amount = '1.11'"), [false, true, false]);
    assert_eq!(holds("id > '2'"), [false, false, true]);
}

#[test]
fn timestamps_compare_with_text_and_beyond_the_range_of_nanoseconds() {
    assert_eq!(
        holds("updated_at >= '2026-05-01 10:00:00'"),
        [true, false, true]
    );
    assert_eq!(
        holds("updated_at > TIMESTAMP '2026-05-01 10:00:00'"),
        [false, false, true]
    );
    assert_eq!(
        holds("updated_at < '2026-05-01T12:00:00+02:00'"),
        [false; 3]
    );
    assert_eq!(
        holds("date_part('year', updated_at) = 9999"),
        [false, false, true]
    );
    assert_eq!(
        holds("extract(year from updated_at) = 2026"),
        [true, false, false]
    );
    assert_eq!(
        holds("CAST('2026-05-01' AS date) = CAST(updated_at AS date)"),
        [true, false, false]
    );
}

#[test]
fn members_of_structs_are_reached_with_dots_and_brackets() {
    assert_eq!(holds("address.city = 'Pune'"), [true, false, false]);
    assert_eq!(holds("address['zip'] = 2"), [false, true, false]);
    assert_eq!(error("address.town = 'x'").code(), Code::UnknownColumn);
    assert_eq!(error("id.town = 'x'").code(), Code::InvalidExpression);
}

#[test]
fn text_regex_and_math_functions_are_there() {
    assert_eq!(
        texts("upper(substr(address.\"City\", 1, 2))"),
        [Some("PU".into()), None, Some("DE".into())]
    );
    assert_eq!(
        texts("coalesce(_cdc_operation, 'none')")[1],
        Some("none".into())
    );
    assert_eq!(
        holds("regexp_like(address.city, '^P')"),
        [true, false, false]
    );
    assert_eq!(holds("abs(id - 3) = 0"), [false, false, true]);
    assert_eq!(
        holds("_cdc_operation IN ('D', 'delete')"),
        [true, false, false]
    );
    assert_eq!(
        texts("CAST(id AS string)"),
        [Some("1".into()), Some("2".into()), Some("3".into())]
    );
    assert_eq!(holds("CAST('7' AS long) > id"), [true; 3]);
}

#[test]
fn only_the_columns_in_use_are_asked_of_a_batch() {
    let batch = batch();
    let compiled = Compiled::new("_cdc_operation = 'D' AND id = 1", &batch.schema()).unwrap();
    assert_eq!(
        compiled.columns().collect::<Vec<_>>(),
        ["_cdc_operation", "id"]
    );
    let swapped = batch.project(&[6, 1]).unwrap();
    assert_eq!(
        compiled.predicate(&swapped).unwrap().true_count(),
        0,
        "a missing column is NULL"
    );
    let reversed = batch.project(&[1, 0]).unwrap();
    assert_eq!(compiled.predicate(&reversed).unwrap().true_count(), 1);
}

#[test]
fn constants_have_the_length_of_the_batch() {
    let batch = batch();
    let compiled = Compiled::new("1 + 1", &batch.schema()).unwrap();
    assert_eq!(
        compiled
            .evaluate(&batch)
            .unwrap()
            .as_primitive::<Int64Type>()
            .values(),
        &[2, 2, 2]
    );
}

#[test]
fn functions_that_are_no_function_of_the_row_are_refused() {
    for sql in [
        "now() > updated_at",
        "random() > 0.5",
        "uuid() = 'a'",
        "current_date() = '2026-01-01'",
        "version() = 'x'",
        "current_timestamp > updated_at",
        "current_time = '1'",
    ] {
        let error = error(sql);
        assert_eq!(error.code(), Code::InvalidExpression, "{sql}");
        assert!(
            error.to_string().contains("not a function of the row"),
            "{sql}: {error}"
        );
    }
}

#[test]
fn what_is_no_expression_over_one_row_is_refused() {
    for sql in [
        "(SELECT 1) = 1",
        "EXISTS (SELECT 1)",
        "id IN (SELECT 1)",
        "count(*) > 1",
        "sum(id) > 1",
        "row_number() OVER () = 1",
        "id = $1",
        "@@x = 1",
        "x -> x",
        "array_any_match([1], x -> x > 0)",
    ] {
        let code = error(sql).code();
        assert!(
            matches!(code, Code::InvalidExpression | Code::UnknownColumn),
            "{sql}: {code}"
        );
    }
}

#[test]
fn errors_name_the_place_and_a_way_out() {
    let unknown = error("_cdc_operaton = 'D'");
    assert_eq!(unknown.code(), Code::UnknownColumn);
    assert!(
        unknown.to_string().contains("line 1, column 1"),
        "{unknown}"
    );
    assert_eq!(unknown.hint(), Some("did you mean \"_cdc_operation\"?"));
    let text = error("_cdc_operation = \"DDDDDDDD\"");
    assert_eq!(
        text.hint(),
        Some("text is written in single quotes: 'DDDDDDDD'")
    );
    for sql in [
        "id =",
        "",
        "id = 1 id",
        "id = 1; DROP TABLE t",
        "uper('a')",
        "id = 'x' AND 5",
    ] {
        let error = error(sql);
        assert_eq!(error.code(), Code::InvalidExpression, "{sql}");
    }
    assert_eq!(
        error("uper('a') = 'A'").hint(),
        Some("did you mean \"upper\"?")
    );
    assert_eq!(
        Compiled::condition("id + 1", &batch().schema())
            .unwrap_err()
            .code(),
        Code::InvalidExpression
    );
}

#[test]
fn a_row_without_result_is_an_error_that_quotes_no_value() {
    let batch = batch();
    let schema = batch.schema();
    for sql in ["CAST(\"two words\" AS bigint) = 1", "id / (id - id) = 1"] {
        let error = Compiled::new(sql, &schema)
            .unwrap()
            .predicate(&batch)
            .unwrap_err();
        assert_eq!(error.code(), Code::InvalidExpression);
        assert!(std::error::Error::source(&error).is_none());
        assert!(!error.to_string().contains("'a'"), "{error}");
    }
}

#[test]
fn deep_and_long_expressions_are_bounded() {
    let schema = batch().schema();
    let deep = format!("{}id{} = 1", "(".repeat(5000), ")".repeat(5000));
    assert_eq!(error(&deep).code(), Code::InvalidExpression);
    assert_eq!(error(&"NOT ".repeat(5000)).code(), Code::InvalidExpression);
    let chain = vec!["id = 1"; 200].join(" OR ");
    assert!(Compiled::new(&chain, &schema).is_ok());
    let listed = (0..5000)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let compiled = Compiled::new(&format!("id IN ({listed})"), &schema).unwrap();
    assert_eq!(compiled.predicate(&batch()).unwrap().true_count(), 3);
    assert_eq!(error(&"a".repeat(70_000)).code(), Code::InvalidExpression);
}

#[test]
fn integers_never_wrap() {
    let batch = batch();
    let least = "id - 9223372036854775807 - 3";
    for sql in [
        "id + 9223372036854775806 > 0",
        "id * 9223372036854775807 > 0",
        "id - 9223372036854775807 - 10 < 0",
        &format!("-({least}) > 0"),
    ] {
        let compiled = Compiled::condition(sql, &batch.schema()).unwrap();
        let error = compiled.predicate(&batch).unwrap_err();
        assert_eq!(error.code(), Code::InvalidExpression, "{sql}");
        assert!(error.to_string().contains("a row overflows"), "{error}");
    }
    assert_eq!(holds("-id < -1"), [false, true, true]);
    assert_eq!(holds("id > -9223372036854775808"), [true; 3]);
    let constant = error("id > 9223372036854775807 + 1");
    assert!(
        constant.to_string().contains("a constant overflows"),
        "{constant}"
    );
}

#[test]
fn a_row_without_a_result_is_set_apart_from_the_others() {
    let batch = batch();
    let verdicts = |sql: &str| {
        let compiled = Compiled::condition(sql, &batch.schema()).unwrap();
        let verdicts = compiled.verdicts(&batch).unwrap();
        let holds: Vec<bool> = verdicts.holds.values().iter().collect();
        let failed: Vec<usize> = verdicts.failed.iter().map(|f| f.row).collect();
        (holds, failed)
    };
    assert_eq!(
        verdicts("10 / (id - 2) > 0"),
        (vec![false, false, true], vec![1])
    );
    assert_eq!(
        verdicts("10 / (id - id) > 0"),
        (vec![false; 3], vec![0, 1, 2])
    );
    assert_eq!(verdicts("id = 2"), (vec![false, true, false], vec![]));
    // A guard guards its row, whatever stands beside it.
    assert_eq!(
        verdicts("id <> 2 AND 10 / (id - 2) > 0"),
        (vec![false, false, true], vec![])
    );
    let empty = Compiled::condition("id = 2", &batch.schema()).unwrap();
    assert!(empty.verdicts(&batch.slice(0, 0)).unwrap().holds.is_empty());
}

#[test]
fn functions_that_make_more_than_they_are_given_need_a_small_number() {
    assert_eq!(
        holds("lpad(`two words`, 3, '0') = '00a'"),
        [true, false, false]
    );
    for sql in [
        "repeat(`two words`, 1000000000) = 'a'",
        "repeat(`two words`, id) = 'a'",
        "rpad(`two words`, 5000, 'x') = 'a'",
        "cardinality(range(id)) = 1",
    ] {
        assert_eq!(error(sql).code(), Code::InvalidExpression, "{sql}");
    }
}

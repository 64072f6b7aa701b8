//! Small pools of values, so that keys, sequences and payloads meet often; with the values at which
//! implementations go wrong.

use serde_json::{Value as Json, json};

use crate::dice::Dice;

/// Types that a payload column may have.
pub(super) const PAYLOAD_TYPES: [&str; 12] = [
    "string",
    "long",
    "string",
    "long",
    "double",
    "boolean",
    "struct<a:string,b:long>",
    "struct<a:string,in:struct<x:long,y:string>>",
    "array<string>",
    "decimal(12,2)",
    "date",
    "timestamp",
];

/// Types that a key column may have.
pub(super) const KEY_TYPES: [&str; 9] = [
    "long",
    "string",
    "long",
    "string",
    "integer",
    "double",
    "date",
    "decimal(20,2)",
    "boolean",
];

/// Types that a sequence column may have.
pub(super) const SEQUENCE_TYPES: [&str; 8] = [
    "long",
    "long",
    "string",
    "timestamp",
    "double",
    "integer",
    "date",
    "decimal(20,0)",
];

/// Values for keys, NULL-free and pairwise different.
pub(super) fn key_values(type_name: &str) -> Vec<Json> {
    match type_name {
        "long" => vec![
            json!(1),
            json!(2),
            json!(-1),
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992_i64),
            json!(i64::MAX),
            json!(i64::MIN),
        ],
        "integer" => vec![json!(0), json!(7), json!(i32::MIN), json!(i32::MAX)],
        "string" => [
            "a",
            "A",
            "a ",
            "e\u{301}",
            "\u{e9}",
            "\u{65e5}\u{672c}",
            "k/=%1",
        ]
        .map(|text| json!(text))
        .to_vec(),
        "double" => vec![
            json!(0.0),
            json!("NaN"),
            json!(1.5),
            json!("-Infinity"),
            json!(-1.5),
        ],
        "boolean" => vec![json!(false), json!(true)],
        other => payload_values(other),
    }
}

/// Values for sequences in ascending order.
pub(super) fn sequence_values(type_name: &str) -> Vec<Json> {
    match type_name {
        "long" => (1..=30).map(|n| json!(n * 5 - 20)).collect(),
        "integer" => (1..=30).map(|n| json!(n - 3)).collect(),
        "string" => (0..30)
            .map(|n| json!(format!("{}", 100 - n)))
            .rev()
            .collect(),
        "timestamp" => (0..30)
            .map(|n| json!(format!("2026-05-01T10:00:{n:02}.00000{}Z", n % 10)))
            .collect(),
        "date" => (1..=28).map(|n| json!(format!("2026-02-{n:02}"))).collect(),
        "double" => {
            let mut values = vec![json!("-Infinity"), json!(-0.5), json!(0.0)];
            values.extend((1..26).map(|n| json!(f64::from(n) * 0.25)));
            values.push(json!("NaN"));
            values
        }
        _ => (1..=30)
            .map(|n| json!(format!("{}", n * 1_000_000_000_000_i64 - 5)))
            .collect(),
    }
}

/// Values for payloads, without NULL.
pub(super) fn payload_values(type_name: &str) -> Vec<Json> {
    match type_name {
        "long" => vec![json!(1), json!(2), json!(10), json!(-3)],
        "double" => vec![json!(1.5), json!("NaN"), json!(-2.25), json!(10.0)],
        "boolean" => vec![json!(true), json!(false)],
        "array<string>" => {
            vec![
                json!([]),
                json!(["a"]),
                json!(["a", "b"]),
                json!(["a", null]),
                json!(["b"]),
            ]
        }
        "struct<a:string,b:long>" => vec![
            json!({"a": "x", "b": 1}),
            json!({"a": "x", "b": null}),
            json!({"a": null, "b": 2}),
            json!({"a": "w", "b": 10}),
            json!({"a": null, "b": null}),
        ],
        "struct<a:string,in:struct<x:long,y:string>>" => vec![
            json!({"a": "x", "in": {"x": 1, "y": "p"}}),
            json!({"a": null, "in": {"x": 1, "y": null}}),
            json!({"a": "z", "in": {"x": null, "y": "q"}}),
            json!({"a": "y", "in": null}),
            json!({"a": null, "in": {"x": null, "y": null}}),
        ],
        "decimal(12,2)" | "decimal(20,2)" => ["1.00", "1.10", "-0.01", "9.99", "10.00"]
            .map(|text| json!(text))
            .to_vec(),
        "date" => ["2026-05-01", "1969-12-31", "0001-01-01"]
            .map(|text| json!(text))
            .to_vec(),
        "timestamp" => ["2026-05-01T10:00:00.000000Z", "1969-12-31T23:59:59.999999Z"]
            .map(|text| json!(text))
            .to_vec(),
        _ => ["a", "b", "B", "zz", " "].map(|text| json!(text)).to_vec(),
    }
}

/// The same value in another spelling, where there is one (R-K4: one zero).
pub(super) fn respell(dice: &Dice, value: &Json) -> Json {
    if *value == json!(0.0) && dice.percent(50) {
        json!(-0.0)
    } else {
        value.clone()
    }
}

/// Some of the values, at least one, in order.
pub(super) fn choose(dice: &Dice, mut values: Vec<Json>, count: usize) -> Vec<Json> {
    while values.len() > count.max(1) {
        values.remove(dice.below(values.len()));
    }
    values
}

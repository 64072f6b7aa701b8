//! Rows of the table.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Distance of the keys of neighbouring rows.
pub(crate) const KEY_STEP: i64 = 4;
const PRECISION: u8 = 15;
const SCALE: i8 = 2;
const MICROS_A_DAY: i64 = 86_400_000_000;

const STATUSES: [&str; 4] = ["O", "F", "P", "X"];
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const REGIONS: [&str; 7] = [
    "AFRICA",
    "AMERICA",
    "ASIA",
    "EUROPE",
    "MIDDLE EAST",
    "OCEANIA",
    "ANTARCTICA",
];
const WORDS: [&str; 24] = [
    "amber", "barge", "canal", "delta", "ebb", "flood", "gate", "harbour", "inlet", "jetty",
    "keel", "lock", "mooring", "neap", "oar", "pier", "quay", "reef", "sluice", "tide", "upstream",
    "vessel", "wharf", "yaw",
];

/// The columns after the key, one vector each; `None` in all of them is a row of NULLs.
#[derive(Default)]
pub(crate) struct Payload {
    custkey: Vec<Option<i64>>,
    status: Vec<Option<&'static str>>,
    totalprice: Vec<Option<i128>>,
    orderdate: Vec<Option<i32>>,
    updated_at: Vec<Option<i64>>,
    priority: Vec<Option<&'static str>>,
    clerk: Vec<Option<String>>,
    discount: Vec<Option<f64>>,
    region: Vec<Option<&'static str>>,
    comment: Vec<Option<String>>,
}

impl Payload {
    /// Adds a random row.
    pub(crate) fn push_random(&mut self, random: &mut StdRng) {
        let day = random.random_range(8_035..19_700);
        self.custkey.push(Some(random.random_range(1..15_000_000)));
        self.status.push(STATUSES.choose(random).copied());
        let cents = random.random_range(10_000..50_000_000_i64);
        self.totalprice.push(Some(i128::from(cents)));
        self.orderdate.push(Some(day));
        let micros = i64::from(day) * MICROS_A_DAY + random.random_range(0..MICROS_A_DAY);
        self.updated_at.push(Some(micros));
        self.priority.push(PRIORITIES.choose(random).copied());
        let clerk = random.random_range(0..20_000);
        self.clerk.push(Some(format!("Clerk#{clerk:09}")));
        let discount = f64::from(random.random_range(0..10_000)) / 10_000.0;
        self.discount
            .push(random.random_bool(0.8).then_some(discount));
        let region = REGIONS.choose(random).copied();
        self.region
            .push(region.filter(|_| random.random_bool(0.95)));
        self.comment.push(Some(comment(random)));
    }

    /// Adds a row of NULLs, which a delete carries.
    pub(crate) fn push_nulls(&mut self) {
        self.custkey.push(None);
        self.status.push(None);
        self.totalprice.push(None);
        self.orderdate.push(None);
        self.updated_at.push(None);
        self.priority.push(None);
        self.clerk.push(None);
        self.discount.push(None);
        self.region.push(None);
        self.comment.push(None);
    }

    /// The columns, after the key and before `_seq`.
    fn into_columns(self) -> Result<Vec<ArrayRef>> {
        let totalprice =
            Decimal128Array::from(self.totalprice).with_precision_and_scale(PRECISION, SCALE)?;
        Ok(vec![
            Arc::new(Int64Array::from(self.custkey)),
            Arc::new(StringArray::from(self.status)),
            Arc::new(totalprice),
            Arc::new(Date32Array::from(self.orderdate)),
            Arc::new(TimestampMicrosecondArray::from(self.updated_at).with_timezone("UTC")),
            Arc::new(StringArray::from(self.priority)),
            Arc::new(StringArray::from(self.clerk)),
            Arc::new(Float64Array::from(self.discount)),
            Arc::new(StringArray::from(self.region)),
            Arc::new(StringArray::from(self.comment)),
        ])
    }
}

/// 10 to 60 characters of words.
fn comment(random: &mut StdRng) -> String {
    let length = random.random_range(10..=60);
    let mut text = String::with_capacity(length + 10);
    while text.len() < length {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(WORDS.choose(random).copied().unwrap_or_default());
    }
    text.truncate(length);
    text
}

/// The rows `from..end` of a table of `rows` rows, in order of their keys.
pub(crate) fn base(from: u64, end: u64, rows: u64) -> Result<RecordBatch> {
    let mut random = StdRng::seed_from_u64(from);
    let mut payload = Payload::default();
    let mut keys = Vec::new();
    let mut sequences = Vec::new();
    for row in from..end {
        let row = i64::try_from(row)?;
        keys.push(row * KEY_STEP);
        sequences.push(1 + row.wrapping_mul(7_919) % i64::try_from(rows)?);
        payload.push_random(&mut random);
    }
    table(keys, payload, sequences, None)
}

/// A table of keys, payload, sequences and, for changes, operations.
pub(crate) fn table(
    keys: Vec<i64>,
    payload: Payload,
    sequences: Vec<i64>,
    operations: Option<Vec<&'static str>>,
) -> Result<RecordBatch> {
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let mut fields = vec![
        Field::new("order_id", DataType::Int64, true),
        Field::new("custkey", DataType::Int64, true),
        Field::new("status", DataType::Utf8, true),
        Field::new("totalprice", DataType::Decimal128(PRECISION, SCALE), true),
        Field::new("orderdate", DataType::Date32, true),
        Field::new("updated_at", instant, true),
        Field::new("priority", DataType::Utf8, true),
        Field::new("clerk", DataType::Utf8, true),
        Field::new("discount", DataType::Float64, true),
        Field::new("region", DataType::Utf8, true),
        Field::new("comment", DataType::Utf8, true),
        Field::new("_seq", DataType::Int64, true),
    ];
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(keys))];
    columns.extend(payload.into_columns()?);
    columns.push(Arc::new(Int64Array::from(sequences)));
    if let Some(operations) = operations {
        fields.push(Field::new("op", DataType::Utf8, true));
        columns.push(Arc::new(StringArray::from(operations)));
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

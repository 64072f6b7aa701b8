//! Statistics of a data file, as its `add` action carries them.
//!
//! Bounds only of key columns: they are what files are sorted by, and what a commit must carry for each
//! file that it touches. Source: Delta protocol, "Per-file Statistics".

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, StringArray,
};
use arrow::compute::kernels::aggregate::{max, max_string, min, min_string};
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, TimeUnit, TimestampMicrosecondType};
use arrow::downcast_primitive_array;
use chrono::DateTime;
use serde_json::{Map, Number, Value};
use tidegate_change::sequence::SequenceEncoder;
use tidegate_change::{Error, Result};

use crate::definition::has_bounds;

/// Characters of the longest string bound: a longer least value is cut, a longer greatest one left out.
const BOUND_CHARS_MAX: usize = 64;

/// Collects the statistics of a file, batch by batch.
#[derive(Debug)]
pub(super) struct StatsCollector {
    columns: Vec<ColumnStats>,
    rows: u64,
}

#[derive(Debug)]
struct ColumnStats {
    physical_name: String,
    nulls: u64,
    bounds: Vec<(ArrayRef, ArrayRef)>,
}

impl StatsCollector {
    /// A collector for columns by physical name.
    pub(super) fn new(columns: impl IntoIterator<Item = String>) -> Self {
        let column = |physical_name| ColumnStats {
            physical_name,
            nulls: 0,
            bounds: Vec::new(),
        };
        Self {
            columns: columns.into_iter().map(column).collect(),
            rows: 0,
        }
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn add(&mut self, physical: &RecordBatch) {
        self.rows += u64::try_from(physical.num_rows()).unwrap_or_default();
        for stats in &mut self.columns {
            let Some(column) = physical.column_by_name(&stats.physical_name) else {
                continue;
            };
            stats.nulls += u64::try_from(column.null_count()).unwrap_or_default();
            if has_bounds(column.data_type()) {
                stats.bounds.extend(bounds(column));
            }
        }
    }

    /// The JSON of the statistics.
    pub(super) fn finish(self) -> Result<String> {
        let (mut least, mut greatest, mut nulls) = (Map::new(), Map::new(), Map::new());
        for stats in self.columns {
            nulls.insert(stats.physical_name.clone(), stats.nulls.into());
            if let Some((low, high)) = fold(&stats.bounds)? {
                if let Some(value) = bound_json(&low, false) {
                    least.insert(stats.physical_name.clone(), value);
                }
                if let Some(value) = bound_json(&high, true) {
                    greatest.insert(stats.physical_name, value);
                }
            }
        }
        let mut stats = Map::new();
        stats.insert("numRecords".into(), self.rows.into());
        stats.insert("minValues".into(), Value::Object(least));
        stats.insert("maxValues".into(), Value::Object(greatest));
        stats.insert("nullCount".into(), Value::Object(nulls));
        stats.insert("tightBounds".into(), true.into());
        Ok(Value::Object(stats).to_string())
    }
}

fn fold(parts: &[(ArrayRef, ArrayRef)]) -> Result<Option<(ArrayRef, ArrayRef)>> {
    let join = |arrays: Vec<&dyn Array>| {
        arrow::compute::concat(&arrays)
            .map_err(|e| Error::internal("bounds of unlike types").with_source(e))
    };
    if parts.len() < 2 {
        return Ok(parts.first().cloned());
    }
    let low = join(parts.iter().map(|(low, _)| low.as_ref()).collect())?;
    let high = join(parts.iter().map(|(_, high)| high.as_ref()).collect())?;
    let low = bounds(&low).map(|(low, _)| low);
    let high = bounds(&high).map(|(_, high)| high);
    Ok(low.zip(high))
}

/// Least and greatest value as arrays of one element; None without values or for a type without bounds.
fn bounds(array: &ArrayRef) -> Option<(ArrayRef, ArrayRef)> {
    fn one<T: ArrowPrimitiveType>(value: T::Native, data_type: &DataType) -> ArrayRef {
        let array = PrimitiveArray::<T>::new(vec![value].into(), None);
        Arc::new(array.with_data_type(data_type.clone()))
    }
    fn primitive<T>(array: &PrimitiveArray<T>) -> Option<(ArrayRef, ArrayRef)>
    where
        T: arrow::datatypes::ArrowNumericType,
    {
        let low = one::<T>(min(array)?, array.data_type());
        let high = one::<T>(max(array)?, array.data_type());
        Some((low, high))
    }
    let array = array.as_ref();
    downcast_primitive_array!(
        array => primitive(array),
        DataType::Utf8 => {
            let strings = array.as_string::<i32>();
            let low: ArrayRef = Arc::new(StringArray::from(vec![min_string(strings)?]));
            let high: ArrayRef = Arc::new(StringArray::from(vec![max_string(strings)?]));
            Some((low, high))
        }
        _ => None,
    )
}

/// A bound as JSON; None where JSON or the type has no exact form that bounds all values.
fn bound_json(array: &ArrayRef, is_upper: bool) -> Option<Value> {
    match array.data_type() {
        DataType::Utf8 => string_bound(array.as_string::<i32>().value(0), is_upper),
        DataType::Date32 => {
            let date = array.as_primitive::<Date32Type>().value_as_date(0)?;
            Some(date.format("%Y-%m-%d").to_string().into())
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(0);
            // Readers expect milliseconds: round outwards.
            let millis =
                micros.div_euclid(1000) + i64::from(is_upper && micros.rem_euclid(1000) > 0);
            let time = DateTime::from_timestamp_millis(millis)?;
            let form = if zone.is_some() {
                "%Y-%m-%dT%H:%M:%S%.3fZ"
            } else {
                "%Y-%m-%dT%H:%M:%S%.3f"
            };
            Some(time.format(form).to_string().into())
        }
        DataType::Decimal128(..) => {
            let text = array.as_primitive::<Decimal128Type>().value_as_string(0);
            text.parse::<Number>().ok().map(Value::Number)
        }
        DataType::Float32 | DataType::Float64 => {
            let wide = arrow::compute::cast(array, &DataType::Float64).ok()?;
            let value = wide
                .as_primitive::<arrow::datatypes::Float64Type>()
                .value(0);
            Number::from_f64(value).map(Value::Number)
        }
        data_type if data_type.is_integer() => {
            let wide = arrow::compute::cast(array, &DataType::Int64).ok()?;
            Some(
                wide.as_primitive::<arrow::datatypes::Int64Type>()
                    .value(0)
                    .into(),
            )
        }
        _ => None,
    }
}

fn string_bound(text: &str, is_upper: bool) -> Option<Value> {
    match text.char_indices().nth(BOUND_CHARS_MAX) {
        None => Some(text.into()),
        Some(_) if is_upper => None,
        Some((end, _)) => text.get(..end).map(Value::from),
    }
}

/// Collects the greatest sequence of a file.
#[derive(Debug, Default)]
pub(super) struct GreatestSequence {
    of_batches: Vec<ArrayRef>,
}

impl GreatestSequence {
    pub(super) fn add(&mut self, sequences: &ArrayRef) -> Result<()> {
        self.of_batches.extend(greatest(sequences)?);
        Ok(())
    }

    /// The greatest as JSON text; None for a file without sequences.
    pub(super) fn finish(self) -> Result<Option<String>> {
        let parts: Vec<&dyn Array> = self.of_batches.iter().map(AsRef::as_ref).collect();
        if parts.is_empty() {
            return Ok(None);
        }
        let all = arrow::compute::concat(&parts)
            .map_err(|e| Error::internal("sequences of unlike types").with_source(e))?;
        let Some(greatest) = greatest(&all)? else {
            return Ok(None);
        };
        // A file without the tag is read where its rows' sequences matter.
        Ok(tidegate_change::json::value_at(&greatest, 0)
            .ok()
            .map(|value| value.to_string()))
    }
}

fn greatest(sequences: &ArrayRef) -> Result<Option<ArrayRef>> {
    let is_plain = sequences.data_type().is_primitive() && !sequences.data_type().is_floating();
    if is_plain || *sequences.data_type() == DataType::Utf8 {
        return Ok(bounds(sequences).map(|(_, high)| high));
    }
    let rows = SequenceEncoder::new(sequences.data_type())?.encode(sequences)?;
    let best = rows.iter().enumerate().max_by(|(_, a), (_, b)| a.cmp(b));
    Ok(best.map(|(position, _)| sequences.slice(position, 1)))
}

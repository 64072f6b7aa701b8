//! Dropping the events at fault from a finished batch.

use arrow::array::{Array, BooleanArray, StructArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter, filter_record_batch};
use tidegate_change::source::Origin;
use tidegate_change::{Error, Result, SourceBatch};

/// The values, or nothing where no event has one.
pub(super) fn where_known<T>(values: Vec<Option<T>>) -> Option<Vec<Option<T>>> {
    values.iter().any(Option::is_some).then_some(values)
}

/// Drops the events at fault.
pub(super) fn keep(batch: SourceBatch, kept: BooleanBuffer) -> Result<SourceBatch> {
    let failed = |e| Error::internal("events at fault cannot be dropped").with_source(e);
    let mask = BooleanArray::new(kept, None);
    let filter_bits = |bits: BooleanBuffer| -> Result<BooleanBuffer> {
        let filtered = filter(&BooleanArray::new(bits, None), &mask).map_err(failed)?;
        let filtered = filtered.as_any().downcast_ref::<BooleanArray>();
        filtered
            .map(|bits| bits.values().clone())
            .ok_or_else(|| Error::internal("bits are no booleans"))
    };
    let old_keys = match batch.old_keys {
        None => None,
        Some(keys) => {
            let filtered = filter(&keys, &mask).map_err(failed)?;
            filtered.as_any().downcast_ref::<StructArray>().cloned()
        }
    };
    let position = batch
        .position
        .map(|p| filter(&p, &mask).map_err(failed))
        .transpose()?;
    let authored = batch
        .authored
        .into_iter()
        .map(|bits| bits.map(filter_bits).transpose())
        .collect::<Result<_>>()?;
    Ok(SourceBatch {
        columns: filter_record_batch(&batch.columns, &mask).map_err(failed)?,
        authored,
        operations: keep_marked(batch.operations, &mask),
        position,
        old_keys,
        origin: Origin {
            file: batch.origin.file,
            rows: keep_marked(batch.origin.rows, &mask),
            topics: batch.origin.topics.map(|values| keep_marked(values, &mask)),
            partitions: batch
                .origin
                .partitions
                .map(|values| keep_marked(values, &mask)),
            offsets: batch
                .origin
                .offsets
                .map(|values| keep_marked(values, &mask)),
            records: batch.origin.records,
        },
        invalid: batch.invalid,
        other: batch.other,
        absent: batch.absent,
        unrepresentable: batch.unrepresentable,
        offsets: batch.offsets,
    })
}

fn keep_marked<T>(values: Vec<T>, mask: &BooleanArray) -> Vec<T> {
    let marks = mask.values().iter();
    values
        .into_iter()
        .zip(marks)
        .filter_map(|(value, kept)| kept.then_some(value))
        .collect()
}

//! What a message claims and what its rows come to, before either costs memory or time.
//!
//! A few bytes can claim much: a compressed buffer says how large it becomes, a batch how many rows it has,
//! and dictionaries and views show one value many times.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::{DataType, Int64Type};
use arrow::ipc::{self, root_as_message};
use arrow_flight::FlightData;
use tidegate_change::{Code, Error, Result};

/// Rows of one message at most.
const ROWS_MAX: i64 = 16 << 20;
/// Length that a compressed buffer gives for one that is not compressed after all.
const NOT_COMPRESSED: i64 = -1;

/// Checks the sizes that a message claims.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`, or `INVALID_ARGUMENT` for what is no message.
pub(super) fn check_message(message: &FlightData, bytes_max: u64) -> Result<()> {
    let header = root_as_message(&message.data_header).map_err(|e| {
        let text = "the put's Arrow data cannot be read";
        Error::new(Code::InvalidArgument, text).with_source(e.to_string())
    })?;
    let dictionary = header.header_as_dictionary_batch();
    let batch = header
        .header_as_record_batch()
        .or_else(|| dictionary.and_then(|dictionary| dictionary.data()));
    let Some(batch) = batch else { return Ok(()) };
    if !(0..=ROWS_MAX).contains(&batch.length()) {
        return Err(too_large("rows in a message"));
    }
    if batch.compression().is_some() && claimed_bytes(batch, &message.data_body) > bytes_max {
        return Err(too_large("bytes in a message, decompressed"));
    }
    Ok(())
}

/// What the buffers of a compressed batch say that they become.
fn claimed_bytes(batch: ipc::RecordBatch<'_>, body: &[u8]) -> u64 {
    let mut claimed = 0_u64;
    let buffers = batch.buffers().into_iter().flatten();
    for buffer in buffers.filter(|buffer| buffer.length() > 0) {
        let start = usize::try_from(buffer.offset()).unwrap_or(usize::MAX);
        let head = start
            .checked_add(size_of::<i64>())
            .and_then(|end| body.get(start..end))
            .and_then(|head| head.try_into().ok())
            .map(i64::from_le_bytes);
        // One beyond the body is refused when it is read.
        let Some(bytes) = head.filter(|bytes| *bytes != NOT_COMPRESSED) else {
            continue;
        };
        claimed = claimed.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
    claimed
}

/// Checks what the rows of a batch come to when every value stands for itself.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`, or `UNSUPPORTED` for types that no source has.
pub(super) fn check_batch(batch: &RecordBatch, bytes_max: u64) -> Result<()> {
    let mut bytes = 0_u64;
    for column in batch.columns() {
        bytes = bytes.saturating_add(bytes_of(column)?);
    }
    match bytes > bytes_max {
        true => Err(too_large("bytes in the rows of a message")),
        false => Ok(()),
    }
}

/// Bytes of the values that share what they show; what has its own bytes is bounded by the message.
fn bytes_of(column: &ArrayRef) -> Result<u64> {
    match column.data_type() {
        DataType::Dictionary(_, values) => dictionary_bytes(column, values),
        DataType::Utf8View => Ok(view_bytes(column.as_string_view().views())),
        DataType::BinaryView => Ok(view_bytes(column.as_binary_view().views())),
        DataType::List(_) => bytes_of(column.as_list::<i32>().values()),
        DataType::LargeList(_) => bytes_of(column.as_list::<i64>().values()),
        DataType::FixedSizeList(field, _) if field.data_type().is_null() => {
            Err(unsupported(column))
        }
        DataType::FixedSizeList(_, _) => bytes_of(column.as_fixed_size_list().values()),
        DataType::Struct(_) => column.as_struct().columns().iter().try_fold(0, add),
        DataType::Map(_, _) => column.as_map().entries().columns().iter().try_fold(0, add),
        DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::RunEndEncoded(_, _)
        | DataType::Union(_, _) => Err(unsupported(column)),
        _ => Ok(0),
    }
}

fn add(sum: u64, column: &ArrayRef) -> Result<u64> {
    Ok(sum.saturating_add(bytes_of(column)?))
}

fn dictionary_bytes(column: &ArrayRef, values: &DataType) -> Result<u64> {
    if values.is_primitive() || values.is_null() || *values == DataType::Boolean {
        return Ok(0);
    }
    if !values.is_string() && !values.is_binary() {
        return Err(unsupported(column));
    }
    let dictionary = column.as_any_dictionary();
    let failed = |e| Error::internal("the lengths of values").with_source(e);
    let lengths = length(dictionary.values()).and_then(|lengths| cast(&lengths, &DataType::Int64));
    let lengths = lengths.map_err(failed)?;
    let lengths = lengths.as_primitive::<Int64Type>().values();
    let shown = dictionary.normalized_keys().into_iter().map(|key| {
        let bytes = lengths.get(key).copied().unwrap_or_default();
        u64::try_from(bytes).unwrap_or_default()
    });
    Ok(shown.fold(0, u64::saturating_add))
}

/// The low half of a view is the length of its value.
fn view_bytes(views: &[u128]) -> u64 {
    let lengths = views.iter().map(|view| view & u128::from(u32::MAX));
    let sum = lengths.fold(0_u128, u128::saturating_add);
    u64::try_from(sum).unwrap_or(u64::MAX)
}

fn too_large(what: &str) -> Error {
    Error::new(
        Code::ResourceExhausted,
        format!("the put has too many {what}"),
    )
    .with_hint("send smaller batches")
}

fn unsupported(column: &ArrayRef) -> Error {
    let message = format!(
        "the put has a column of type {}, which no source has",
        column.data_type()
    );
    Error::new(Code::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{DictionaryArray, Int32Array, Int64Array, StringArray, StringViewArray};
    use arrow::datatypes::Int32Type;
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::IpcWriteOptions;
    use arrow_flight::encode::FlightDataEncoderBuilder;
    use futures::TryStreamExt;

    use super::*;

    async fn messages(column: ArrayRef, compressed: bool) -> Vec<FlightData> {
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let compression = compressed.then_some(CompressionType::ZSTD);
        let options = IpcWriteOptions::default().try_with_compression(compression);
        let encoder = FlightDataEncoderBuilder::new().with_options(options.unwrap());
        let stream = encoder.build(futures::stream::iter([Ok(batch)]));
        stream.try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn a_message_that_claims_to_become_too_large_is_refused_unread() {
        let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 100_000]));
        for message in messages(Arc::clone(&zeros), true).await {
            assert!(message.data_body.len() < 10_000, "it is small on the wire");
            check_message(&message, 1 << 20).unwrap();
        }
        let all = messages(zeros, true).await;
        let code = check_message(all.last().unwrap(), 1 << 10)
            .unwrap_err()
            .code();
        assert_eq!(code, Code::ResourceExhausted);
        // A length of an own choice.
        let mut bomb = all.last().unwrap().clone();
        let head = i64::MAX.to_le_bytes();
        let header = root_as_message(&bomb.data_header).unwrap();
        let buffers = header.header_as_record_batch().unwrap().buffers().unwrap();
        let start = usize::try_from(buffers.get(1).offset()).unwrap();
        let mut body = bomb.data_body.to_vec();
        body[start..start + 8].copy_from_slice(&head);
        bomb.data_body = body.into();
        assert!(check_message(&bomb, 1 << 20).is_err());
    }

    #[test]
    fn values_that_are_shown_many_times_count_each_time() {
        let large = "x".repeat(1_000);
        let keys = Int32Array::from(vec![0; 500]);
        let values = Arc::new(StringArray::from(vec![large.as_str()]));
        let shared = DictionaryArray::<Int32Type>::try_new(keys, values).unwrap();
        assert_eq!(bytes_of(&(Arc::new(shared) as ArrayRef)).unwrap(), 500_000);
        let views = StringViewArray::from(vec![large.as_str(), "ab"]);
        assert_eq!(bytes_of(&(Arc::new(views) as ArrayRef)).unwrap(), 1_002);
        let plain = StringArray::from(vec![large.as_str()]);
        assert_eq!(bytes_of(&(Arc::new(plain) as ArrayRef)).unwrap(), 0);
    }
}

//! Types that values would have needed.

use arrow::datatypes::DataType;
use tidegate_change::types;

/// The type that a number would have needed, where the column's type could be widened to it (R-E2).
pub(super) fn needed_type(declared: &DataType, text: &str) -> Option<DataType> {
    match declared {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => {
            text.parse::<i64>().ok().map(|_| DataType::Int64)
        }
        DataType::Decimal128(..) => decimal_type(text),
        _ => None,
    }
}

fn decimal_type(text: &str) -> Option<DataType> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !whole
        .bytes()
        .chain(fraction.bytes())
        .all(|b| b.is_ascii_digit())
        || whole.is_empty()
    {
        return None;
    }
    let whole = whole.trim_start_matches('0').len();
    let fraction = fraction.trim_end_matches('0').len();
    let precision = u8::try_from(whole + fraction).ok()?.max(1);
    let scale = i8::try_from(fraction).ok()?;
    (precision <= types::DECIMAL_DIGITS_MAX).then_some(DataType::Decimal128(precision, scale))
}

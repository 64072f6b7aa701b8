//! Numbers as text. Decimals keep every digit; nothing here goes through a double but doubles.

use std::io::Write as _;

use super::{Failure, Parsed};

/// Parses a whole number: digits with an optional sign.
///
/// # Errors
/// [`Failure::Invalid`] for any other text, or a number beyond 64 bits.
pub fn parse_integer(text: &str) -> Parsed<i64> {
    text.parse().map_err(|_| Failure::Invalid)
}

/// Parses a double; `NaN`, `Infinity` and `-Infinity` are values, a finite text beyond the range is none.
///
/// # Errors
/// [`Failure::Invalid`] for any other text.
pub fn parse_double(text: &str) -> Parsed<f64> {
    let value: f64 = text.parse().map_err(|_| Failure::Invalid)?;
    if value.is_finite() || !text.contains(|c: char| c.is_ascii_digit()) {
        Ok(value)
    } else {
        Err(Failure::Invalid)
    }
}

/// Parses a float, like [`parse_double`].
///
/// # Errors
/// [`Failure::Invalid`] for any other text.
pub fn parse_float(text: &str) -> Parsed<f32> {
    let value: f32 = text.parse().map_err(|_| Failure::Invalid)?;
    if value.is_finite() || !text.contains(|c: char| c.is_ascii_digit()) {
        Ok(value)
    } else {
        Err(Failure::Invalid)
    }
}

/// The double of that value, if there is one that holds it exactly.
#[must_use]
pub fn long_as_double(value: i64) -> Option<f64> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::as_conversions,
        reason = "checked by the way back"
    )]
    let double = value as f64;
    // 2^63 itself would saturate on the way back and look exact.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::as_conversions,
        reason = "this is the check"
    )]
    let back = double as i64;
    (back == value && double < 9_223_372_036_854_775_808.0).then_some(double)
}

/// Parses a decimal into its unscaled integer at a scale; an exponent is allowed, digits beyond the
/// scale only if they are zeros.
///
/// # Errors
/// [`Failure::Invalid`] when digits would be lost, [`Failure::Unrepresentable`] for NaN and infinities.
pub fn parse_decimal(text: &str, precision: u8, scale: i8) -> Parsed<i128> {
    let (mantissa, exponent) = split_exponent(text)?;
    let (negative, digits) = match mantissa.as_bytes().split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, mantissa.as_bytes()),
    };
    let mut unscaled: i128 = 0;
    let mut fraction_digits: Option<i32> = None;
    // Zeros at the end are counted, not multiplied in, so that 1.000…0 of any length is read.
    let mut zeros: i32 = 0;
    let mut any = false;
    for byte in digits {
        match byte {
            b'.' if fraction_digits.is_none() => fraction_digits = Some(0),
            b'0'..=b'9' => {
                any = true;
                if let Some(count) = &mut fraction_digits {
                    *count = count.saturating_add(1);
                }
                if *byte == b'0' {
                    zeros = zeros.saturating_add(1);
                } else {
                    unscaled = shift(unscaled, zeros.saturating_add(1))?;
                    unscaled = unscaled
                        .checked_add(i128::from(byte - b'0'))
                        .ok_or(Failure::Invalid)?;
                    zeros = 0;
                }
            }
            _ => return Err(not_a_number(text)),
        }
    }
    if !any {
        return Err(not_a_number(text));
    }
    let value_scale = fraction_digits
        .unwrap_or(0)
        .saturating_sub(exponent)
        .saturating_sub(zeros);
    let magnitude = shift(unscaled, i32::from(scale).saturating_sub(value_scale))?;
    let value = if negative { -magnitude } else { magnitude };
    fits(value, precision)
}

/// The unscaled integer at another scale, if no digit is lost and the precision suffices.
///
/// # Errors
/// [`Failure::Invalid`] when a digit would be lost.
pub fn rescale_decimal(unscaled: i128, from_scale: i32, precision: u8, scale: i8) -> Parsed<i128> {
    fits(
        shift(unscaled, i32::from(scale).saturating_sub(from_scale))?,
        precision,
    )
}

/// Reads a big-endian two's-complement integer, as Connect decimals store it.
///
/// # Errors
/// [`Failure::Invalid`] beyond 128 bits.
pub fn parse_unscaled(bytes: &[u8]) -> Parsed<i128> {
    let Some(first) = bytes.first() else {
        return Ok(0);
    };
    let sign: u8 = if first & 0x80 == 0 { 0 } else { 0xff };
    let excess = bytes.len().saturating_sub(16);
    let (head, tail) = bytes.split_at(excess);
    let mut wide = [sign; 16];
    let start = 16 - tail.len();
    if let Some(place) = wide.get_mut(start..) {
        place.copy_from_slice(tail);
    }
    let value = i128::from_be_bytes(wide);
    // Leading bytes may only repeat the sign, and the sign must survive without them.
    if head.iter().all(|byte| *byte == sign) && (value < 0) == (sign != 0) {
        Ok(value)
    } else {
        Err(Failure::Invalid)
    }
}

/// Appends a decimal with exactly `scale` digits behind the point.
pub fn write_decimal(unscaled: i128, scale: i8, out: &mut Vec<u8>) {
    if unscaled < 0 {
        out.push(b'-');
    }
    let magnitude = unscaled.unsigned_abs();
    match u32::try_from(scale) {
        Ok(0) => write_fmt(out, format_args!("{magnitude}")),
        Ok(scale) => {
            let unit = 10u128.checked_pow(scale).unwrap_or(u128::MAX);
            let (whole, fraction) = (magnitude / unit, magnitude % unit);
            let width = usize::try_from(scale).unwrap_or_default();
            write_fmt(out, format_args!("{whole}.{fraction:0width$}"));
        }
        Err(_) => {
            write_fmt(out, format_args!("{magnitude}"));
            if magnitude != 0 {
                out.resize(out.len() + usize::from(scale.unsigned_abs()), b'0');
            }
        }
    }
}

fn write_fmt(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    // Writing to a Vec never fails.
    let _ = out.write_fmt(arguments);
}

fn split_exponent(text: &str) -> Parsed<(&str, i32)> {
    match text.split_once(['e', 'E']) {
        None => Ok((text, 0)),
        Some((mantissa, exponent)) => {
            let exponent: i32 = exponent.parse().map_err(|_| Failure::Invalid)?;
            Ok((mantissa, exponent))
        }
    }
}

fn not_a_number(text: &str) -> Failure {
    let text = text.trim_start_matches(['-', '+']);
    let known = [
        "nan",
        "infinity",
        "inf",
        "positive_infinity",
        "negative_infinity",
    ];
    if known.iter().any(|name| text.eq_ignore_ascii_case(name)) {
        Failure::Unrepresentable
    } else {
        Failure::Invalid
    }
}

/// Multiplies by a power of ten, or divides when nothing is left over.
fn shift(value: i128, digits: i32) -> Parsed<i128> {
    if value == 0 || digits == 0 {
        return Ok(value);
    }
    let power = 10i128
        .checked_pow(digits.unsigned_abs())
        .ok_or(Failure::Invalid)?;
    if digits > 0 {
        value.checked_mul(power).ok_or(Failure::Invalid)
    } else if value % power == 0 {
        Ok(value / power)
    } else {
        Err(Failure::Invalid)
    }
}

fn fits(value: i128, precision: u8) -> Parsed<i128> {
    let limit = 10u128
        .checked_pow(u32::from(precision))
        .unwrap_or(u128::MAX);
    if value.unsigned_abs() < limit {
        Ok(value)
    } else {
        Err(Failure::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_or_refused() {
        assert_eq!(parse_decimal("100.50", 10, 2), Ok(10050));
        assert_eq!(parse_decimal("-1.5e3", 10, 2), Ok(-150_000));
        assert_eq!(parse_decimal("1.500", 3, 1), Ok(15));
        assert_eq!(parse_decimal("1.55", 3, 1), Err(Failure::Invalid));
        assert_eq!(parse_decimal("100", 4, 2), Err(Failure::Invalid));
        assert_eq!(parse_decimal("0e99999", 4, 2), Ok(0));
        assert_eq!(parse_decimal("1e-400", 38, 2), Err(Failure::Invalid));
        assert_eq!(parse_decimal(".", 4, 2), Err(Failure::Invalid));
        assert_eq!(parse_decimal("NaN", 4, 2), Err(Failure::Unrepresentable));
        assert_eq!(
            parse_decimal("-Infinity", 4, 2),
            Err(Failure::Unrepresentable)
        );
        let text = "12345678901234567890123456789012345678";
        assert_eq!(
            parse_decimal(text, 38, 0),
            text.parse().map_err(|_| Failure::Invalid)
        );
    }

    #[test]
    fn decimals_print_all_digits_of_their_scale() {
        let print = |value, scale| {
            let mut out = Vec::new();
            write_decimal(value, scale, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(print(-5, 2), "-0.05");
        assert_eq!(print(12345, 2), "123.45");
        assert_eq!(print(7, 0), "7");
        assert_eq!(print(7, -2), "700");
    }

    #[test]
    fn unscaled_integers_keep_their_sign() {
        assert_eq!(parse_unscaled(&[]), Ok(0));
        assert_eq!(parse_unscaled(&[0xff]), Ok(-1));
        assert_eq!(parse_unscaled(&[0x00, 0xff]), Ok(255));
        assert_eq!(parse_unscaled(&[0; 20]), Ok(0));
        let mut wide = [0; 17];
        wide[1] = 0x80;
        assert_eq!(parse_unscaled(&wide), Err(Failure::Invalid));
    }

    #[test]
    fn floats_have_names_for_what_is_no_number() {
        assert!(parse_double("NaN").unwrap().is_nan());
        assert_eq!(parse_double("-Infinity"), Ok(f64::NEG_INFINITY));
        assert_eq!(parse_double("1e400"), Err(Failure::Invalid));
    }
}

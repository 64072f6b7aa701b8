//! Dates, timestamps and times of day as text, in the proleptic Gregorian calendar.
//!
//! Accepted: `YYYY-MM-DD`, then `T` or a space, then `HH:MM[:SS[.ffffff]]`, then an optional offset.

use super::{Failure, Parsed};

/// Microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;
/// First day that Delta holds: 0001-01-01.
pub const DATE_MIN: i32 = -719_162;
/// Last day that Delta holds: 9999-12-31.
pub const DATE_MAX: i32 = 2_932_896;

/// A timestamp with what its text says of its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedText {
    /// Microseconds since the epoch, in UTC when there is an offset.
    pub micros: i64,
    /// The offset from UTC in seconds, if the text has one.
    pub offset_s: Option<i32>,
}

/// Parses a date.
///
/// # Errors
/// [`Failure::Unrepresentable`] beyond the years 1 to 9999, [`Failure::Invalid`] for no date.
pub fn parse_date(text: &str) -> Parsed<i32> {
    match read_date(text.as_bytes()) {
        Some((days, [])) => date_in_range(days),
        _ => Err(beyond_calendar(text)),
    }
}

/// Parses a timestamp; a date alone is its midnight.
///
/// # Errors
/// [`Failure::Unrepresentable`] beyond the years 1 to 9999, [`Failure::Invalid`] for no timestamp or
/// for digits below a microsecond.
pub fn parse_timestamp(text: &str) -> Parsed<ZonedText> {
    let Some((days, rest)) = read_date(text.as_bytes()) else {
        return Err(beyond_calendar(text));
    };
    let (time, rest) = match rest {
        [] => (0, rest),
        [b'T' | b't' | b' ', rest @ ..] => read_time(rest).ok_or(Failure::Invalid)?,
        _ => return Err(beyond_calendar(text)),
    };
    if time >= DAY_US {
        return Err(Failure::Invalid);
    }
    let (offset_s, rest) = read_offset(rest).ok_or(Failure::Invalid)?;
    if !rest.is_empty() {
        return Err(if rest == b" BC" {
            Failure::Unrepresentable
        } else {
            Failure::Invalid
        });
    }
    let local = i64::from(days).saturating_mul(DAY_US).saturating_add(time);
    let micros = local.saturating_sub(i64::from(offset_s.unwrap_or(0)) * 1_000_000);
    Ok(ZonedText {
        micros: timestamp_in_range(micros)?,
        offset_s,
    })
}

/// Parses a time of day, `24:00:00` included, into microseconds; a `Z` or offset is not taken.
///
/// # Errors
/// [`Failure::Invalid`] for any other text.
pub fn parse_time(text: &str) -> Parsed<i64> {
    match read_time(text.as_bytes()) {
        Some((micros, [])) if micros <= DAY_US => Ok(micros),
        _ => Err(Failure::Invalid),
    }
}

/// The day, if Delta holds it.
///
/// # Errors
/// [`Failure::Unrepresentable`] beyond the years 1 to 9999 (R-K9).
pub fn date_in_range(days: i32) -> Parsed<i32> {
    if (DATE_MIN..=DATE_MAX).contains(&days) {
        Ok(days)
    } else {
        Err(Failure::Unrepresentable)
    }
}

/// The timestamp, if Delta holds it.
///
/// # Errors
/// [`Failure::Unrepresentable`] beyond the years 1 to 9999 (R-K9).
pub fn timestamp_in_range(micros: i64) -> Parsed<i64> {
    let days = micros.div_euclid(DAY_US);
    if (i64::from(DATE_MIN)..=i64::from(DATE_MAX)).contains(&days) {
        Ok(micros)
    } else {
        Err(Failure::Unrepresentable)
    }
}

/// Appends `YYYY-MM-DD`.
pub fn write_date(days: i32, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(i64::from(days));
    match u32::try_from(year) {
        Ok(year) if year <= 9999 => push_digits::<4>(year, out),
        _ => out.extend_from_slice(format!("{year:+06}").as_bytes()),
    }
    out.push(b'-');
    push_digits::<2>(month, out);
    out.push(b'-');
    push_digits::<2>(day, out);
}

/// Appends `YYYY-MM-DDTHH:MM:SS.ffffff`, with a `Z` where the type has a zone.
pub fn write_timestamp(micros: i64, zoned: bool, out: &mut Vec<u8>) {
    let days = i32::try_from(micros.div_euclid(DAY_US)).unwrap_or_default();
    let time = micros.rem_euclid(DAY_US);
    write_date(days, out);
    out.push(b'T');
    write_clock(time, out);
    out.push(b'.');
    push_digits::<6>(u32::try_from(time % 1_000_000).unwrap_or_default(), out);
    if zoned {
        out.push(b'Z');
    }
}

/// Appends a time of day or a duration: `[-]HH:MM:SS`, with `.ffffff` where there is a fraction.
pub fn write_time(micros: i64, out: &mut Vec<u8>) {
    if micros < 0 {
        out.push(b'-');
    }
    let magnitude = i64::try_from(micros.unsigned_abs()).unwrap_or(i64::MAX);
    write_clock(magnitude, out);
    let fraction = magnitude % 1_000_000;
    if fraction != 0 {
        out.push(b'.');
        push_digits::<6>(u32::try_from(fraction).unwrap_or_default(), out);
    }
}

fn write_clock(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros / 1_000_000;
    let two = |n: i64| u32::try_from(n).unwrap_or_default();
    match u32::try_from(seconds / 3600) {
        Ok(hours) if hours < 100 => push_digits::<2>(hours, out),
        _ => out.extend_from_slice((seconds / 3600).to_string().as_bytes()),
    }
    out.push(b':');
    push_digits::<2>(two(seconds / 60 % 60), out);
    out.push(b':');
    push_digits::<2>(two(seconds % 60), out);
}

fn push_digits<const N: usize>(mut value: u32, out: &mut Vec<u8>) {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or_default();
        value /= 10;
    }
    out.extend_from_slice(&digits);
}

fn read_digits<const N: usize>(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_at_checked(N)?;
    let mut value = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u32::from(digit - b'0');
    }
    Some((value, rest))
}

fn read_date(text: &[u8]) -> Option<(i32, &[u8])> {
    let (year, rest) = read_digits::<4>(text)?;
    let (month, rest) = read_digits::<2>(rest.strip_prefix(b"-")?)?;
    let (day, rest) = read_digits::<2>(rest.strip_prefix(b"-")?)?;
    if day == 0 || day > days_in_month(year, month)? {
        return None;
    }
    Some((
        i32::try_from(days_from_civil(i64::from(year), month, day)).ok()?,
        rest,
    ))
}

fn read_time(text: &[u8]) -> Option<(i64, &[u8])> {
    let (hours, rest) = read_digits::<2>(text)?;
    let (minutes, rest) = read_digits::<2>(rest.strip_prefix(b":")?)?;
    let (seconds, mut rest) = match rest {
        [b':', rest @ ..] => read_digits::<2>(rest)?,
        _ => (0, rest),
    };
    if hours > 24 || minutes > 59 || seconds > 59 {
        return None;
    }
    let mut micros = i64::from(hours * 3600 + minutes * 60 + seconds) * 1_000_000;
    if let [b'.' | b',', fraction @ ..] = rest {
        let mut unit = 100_000;
        let mut any = false;
        rest = fraction;
        while let [digit @ b'0'..=b'9', more @ ..] = rest {
            if unit == 0 && *digit != b'0' {
                return None;
            }
            micros += i64::from(digit - b'0') * unit;
            unit /= 10;
            any = true;
            rest = more;
        }
        if !any {
            return None;
        }
    }
    Some((micros, rest))
}

fn read_offset(text: &[u8]) -> Option<(Option<i32>, &[u8])> {
    let (sign, rest) = match text {
        [b'Z' | b'z', rest @ ..] => return Some((Some(0), rest)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Some((None, text)),
    };
    let (hours, mut rest) = read_digits::<2>(rest)?;
    let mut seconds = hours * 3600;
    for unit in [60, 1] {
        let part = rest.strip_prefix(b":").unwrap_or(rest);
        match read_digits::<2>(part) {
            Some((value, more)) if value < 60 => {
                seconds += value * unit;
                rest = more;
            }
            _ => break,
        }
    }
    let seconds = i32::try_from(seconds).ok()?;
    (hours <= 18).then_some((Some(sign * seconds), rest))
}

/// A date that is one, but none that Delta holds, or no date at all.
fn beyond_calendar(text: &str) -> Failure {
    let infinite = text.strip_prefix(['-', '+']).unwrap_or(text);
    if infinite.eq_ignore_ascii_case("infinity") {
        return Failure::Unrepresentable;
    }
    let year_end = infinite.find('-').unwrap_or(0);
    let (year, rest) = infinite.split_at(year_end);
    let long_year = year.len() > 4 && year.len() <= 9 && year.bytes().all(|b| b.is_ascii_digit());
    let signed = infinite.len() < text.len() && year.len() >= 4;
    let shape = rest.get(1..).is_some_and(|rest| {
        rest.len() >= 5 && rest.bytes().next().is_some_and(|b| b.is_ascii_digit())
    });
    if shape && (long_year || signed) || text.ends_with(" BC") {
        Failure::Unrepresentable
    } else {
        Failure::Invalid
    }
}

fn days_in_month(year: u32, month: u32) -> Option<u32> {
    Some(match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        _ => return None,
    })
}

/// Days since 1970-01-01; the year begins in March, so that the leap day is its last.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (
        year,
        u32::try_from(month).unwrap_or(1),
        u32::try_from(day).unwrap_or(1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(micros: i64) -> String {
        let mut out = Vec::new();
        write_timestamp(micros, true, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_day_survives_a_round_trip() {
        for days in (DATE_MIN..=DATE_MAX)
            .step_by(97)
            .chain([DATE_MIN, -1, 0, 11_016, DATE_MAX])
        {
            let mut out = Vec::new();
            write_date(days, &mut out);
            assert_eq!(parse_date(std::str::from_utf8(&out).unwrap()), Ok(days));
        }
    }

    #[test]
    fn timestamps_take_spaces_fractions_and_offsets() {
        let base = parse_timestamp("2026-02-28T12:00:00Z").unwrap().micros;
        for text in [
            "2026-02-28 12:00:00+00",
            "2026-02-28 14:00+02:00",
            "2026-02-28T06:30:00-0530",
        ] {
            assert_eq!(parse_timestamp(text).unwrap().micros, base, "{text}");
        }
        assert_eq!(parse_timestamp("2026-02-28").unwrap().offset_s, None);
        assert_eq!(
            parse_timestamp("2026-02-28T12:00:00.1234560")
                .unwrap()
                .micros,
            base + 123_456
        );
        assert_eq!(
            parse_timestamp("2026-02-28T12:00:00.1234567"),
            Err(Failure::Invalid)
        );
        assert_eq!(
            parse_timestamp("2026-02-28T24:00:00"),
            Err(Failure::Invalid)
        );
        assert_eq!(printed(base + 5), "2026-02-28T12:00:00.000005Z");
    }

    #[test]
    fn dates_beyond_the_calendar_are_told_from_nonsense() {
        for text in [
            "infinity",
            "-infinity",
            "10000-01-01",
            "-5877611-06-21Z",
            "0044-03-15 BC",
            "+292277-01-01T00:00:00Z",
            "-0044-03-15",
        ] {
            assert_eq!(parse_date(text), Err(Failure::Unrepresentable), "{text}");
            assert!(parse_timestamp(text).is_err(), "{text}");
        }
        for text in [
            "",
            "x",
            "2026-13-01",
            "2026-02-29",
            "20260101",
            "2026-01-01x",
            "1-1",
        ] {
            assert_eq!(parse_date(text), Err(Failure::Invalid), "{text}");
        }
        assert_eq!(parse_date("0000-12-31"), Err(Failure::Unrepresentable));
    }

    #[test]
    fn times_of_day_print_a_fraction_only_where_there_is_one() {
        let print = |micros| {
            let mut out = Vec::new();
            write_time(micros, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(print(45_296_000_000), "12:34:56");
        assert_eq!(print(-3_020_399_000_000), "-838:59:59");
        assert_eq!(parse_time("12:34:56.5"), Ok(45_296_500_000));
        assert_eq!(print(45_296_500_000), "12:34:56.500000");
    }
}

//! Times and durations as messages.

use prost_types::{Duration, Timestamp};

const MS_PER_SECOND: i64 = 1_000;
const NS_PER_MS: i64 = 1_000_000;
const NS_PER_SECOND: f64 = 1e9;

/// The message of a time in milliseconds since the epoch.
#[must_use]
pub fn timestamp(ms: i64) -> Timestamp {
    let nanos = ms.rem_euclid(MS_PER_SECOND) * NS_PER_MS;
    Timestamp {
        seconds: ms.div_euclid(MS_PER_SECOND),
        nanos: i32::try_from(nanos).unwrap_or_default(),
    }
}

/// Milliseconds since the epoch, rounded down.
#[must_use]
pub fn timestamp_ms(message: &Timestamp) -> i64 {
    let nanos = i64::from(message.nanos);
    message
        .seconds
        .saturating_mul(MS_PER_SECOND)
        .saturating_add(nanos.div_euclid(NS_PER_MS))
}

/// The message of a duration in seconds; what is below zero or no number is zero.
#[must_use]
pub fn duration(seconds: f64) -> Duration {
    let duration = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or_default(),
    }
}

/// Seconds of a duration.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "a duration that is shown; a hundred million years are exact to the second"
)]
pub fn seconds(message: &Duration) -> f64 {
    message.seconds as f64 + f64::from(message.nanos) / NS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_come_back_as_they_were() {
        for ms in [0, 1, -1, -1_001, 1_777_629_600_123, i64::from(i32::MIN)] {
            assert_eq!(timestamp_ms(&timestamp(ms)), ms);
        }
        assert!(timestamp(-1).nanos >= 0, "as the message demands");
    }

    #[test]
    fn durations_come_back_to_the_nanosecond() {
        assert_eq!(seconds(&duration(1.25)), 1.25);
        assert_eq!(seconds(&duration(-1.0)), 0.0);
        assert_eq!(seconds(&duration(f64::NAN)), 0.0);
    }
}

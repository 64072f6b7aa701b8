//! How long a caller still waits.

use std::time::Duration;

use tidegate_change::{Code, Error, Result};
use tonic::metadata::MetadataMap;

/// Header of the time that a caller waits: digits and a unit.
const HEADER: &str = "grpc-timeout";
/// Kept of that time for the answer's way back.
const MARGIN: Duration = Duration::from_millis(150);

/// How long an answer may take to reach the caller in time; None where the caller waits for ever.
pub(crate) fn remaining(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get(HEADER)?.to_str().ok()?;
    let whole = parse(text)?;
    // A short wait keeps half of itself.
    Some(whole.saturating_sub(MARGIN).max(whole / 2))
}

/// Waits for something, but no longer than the caller does; None when the time is over.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller's deadline; no decision about data depends on it"
)]
pub(crate) async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// Waits until a time is over; for ever where there is none.
pub(crate) async fn elapsed(limit: Option<Duration>) {
    within(limit, std::future::pending::<()>()).await;
}

/// Does something that has no use for the caller after the deadline.
///
/// # Errors
/// `TIMED_OUT`, or what the work says.
pub(crate) async fn bounded<T>(
    metadata: &MetadataMap,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match within(remaining(metadata), work).await {
        Some(done) => done,
        None => Err(Error::new(Code::TimedOut, "the call's deadline is over")
            .with_hint("what it asked for may still be done; ask for the state")),
    }
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // The protocol allows eight digits.
    let number = digits.parse::<u64>().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remaining_of(text: &str) -> Option<Duration> {
        let mut metadata = MetadataMap::new();
        metadata.insert(HEADER, text.parse().unwrap());
        remaining(&metadata)
    }

    #[test]
    fn the_answer_is_on_its_way_before_the_deadline() {
        assert_eq!(remaining_of("2S"), Some(Duration::from_millis(1_850)));
        assert_eq!(remaining_of("100m"), Some(Duration::from_millis(50)));
        assert_eq!(remaining_of("1H"), Some(Duration::from_millis(3_599_850)));
        for text in ["", "S", "1x", "123456789S", "-1S"] {
            assert_eq!(remaining_of(text), None, "{text}");
        }
        assert_eq!(remaining(&MetadataMap::new()), None);
    }

    #[tokio::test]
    async fn a_call_that_takes_too_long_says_so() {
        let mut metadata = MetadataMap::new();
        metadata.insert(HEADER, "1m".parse().unwrap());
        let error = bounded::<()>(&metadata, std::future::pending())
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::TimedOut);
    }
}

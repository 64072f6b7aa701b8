//! The only place where a client waits for time.

use std::time::Duration;

/// Waits.
#[expect(
    clippy::disallowed_methods,
    reason = "between two tries of a call; no decision about data depends on it"
)]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Waits for something, but not longer than that; None when the time is over.
#[expect(
    clippy::disallowed_methods,
    reason = "the user's patience; no decision about data depends on it"
)]
pub(crate) async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

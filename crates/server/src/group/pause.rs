//! Pauses and limits between nodes: they decide when something is tried again, never what is decided.

use std::time::Duration;

/// Waits.
#[expect(
    clippy::disallowed_methods,
    reason = "the pace of a loop; no decision about data depends on it"
)]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Waits for something, no longer than a limit.
#[expect(
    clippy::disallowed_methods,
    reason = "another node may never answer; no decision about data depends on it"
)]
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

//! Quarantined events.

use tidegate_change::Result;
use tidegate_delta::DeltaLog;

use crate::Rows;

/// The quarantined events.
///
/// # Errors
/// What reading says.
pub async fn rejects(log: &DeltaLog) -> Result<Rows> {
    let _ = log.latest_version().await?;
    Ok(Rows::empty(std::sync::Arc::new(arrow::datatypes::Schema::empty())))
}

//! When the log is checkpointed: by bytes of log, or at the latest by commits.

use futures::TryStreamExt;
use object_store::ObjectStore;
use serde::Deserialize;
use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_delta::{DeltaLog, TableSnapshot, names};

use crate::description::resolved_spec;

/// Where the newest checkpoint's version stands.
const HINT: &str = "_delta_log/_last_checkpoint";

#[derive(Deserialize)]
struct Hint {
    version: u64,
}

/// Writes a checkpoint of the snapshot if enough was committed since the last one.
pub(crate) async fn write_if_due(
    table: &str,
    log: &DeltaLog,
    snapshot: &TableSnapshot,
    now_ms: i64,
) -> Result<()> {
    let spec = resolved_spec(table, snapshot)?.spec.checkpoint;
    let last = last_checkpoint(log).await?;
    let commits = snapshot.version.0.saturating_sub(last.unwrap_or_default());
    if commits == 0 {
        return Ok(());
    }
    if commits >= spec.commits.max(1) || log_bytes(log, last).await? >= spec.log_bytes {
        log.write_checkpoint(snapshot, now_ms).await?;
    }
    Ok(())
}

async fn last_checkpoint(log: &DeltaLog) -> Result<Option<u64>> {
    let bytes = log.root().read_if_there(HINT).await?;
    let hint: Option<Hint> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    Ok(hint.map(|hint| hint.version))
}

/// Bytes of the commits behind a checkpoint.
async fn log_bytes(log: &DeltaLog, checkpoint: Option<u64>) -> Result<u64> {
    let root = log.root();
    let directory = root.location(names::LOG_DIRECTORY)?;
    let listed = match checkpoint {
        None => root.store().list(Some(&directory)),
        Some(version) => {
            let behind = root.location(&names::commit(TableVersion(version)))?;
            root.store().list_with_offset(Some(&directory), &behind)
        }
    };
    listed
        .try_fold(0, |sum, object| {
            let counts = object.location.as_ref().ends_with(".json");
            std::future::ready(Ok(if counts { sum + object.size } else { sum }))
        })
        .await
        .map_err(|e| Error::new(Code::Io, format!("{directory}: cannot be listed")).with_source(e))
}

//! The state of a table from its log alone (the disaster rule).

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_change::{Code, Digest, Error, Result};
use tidegate_delta::actions::SPEC_DOMAIN;
use tidegate_delta::{DeltaLog, TableSnapshot};

use super::marks::{read_marks, read_producers};
use super::submit::resolved_spec;
use super::{Coordinator, foreign};
use crate::metadata::{Adopt, Entry, TableId, Watermark};

/// Domain whose field `watermark` holds the table's.
const PROGRESS_DOMAIN: &str = "tidegate.progress";

impl Coordinator {
    /// Takes a Tidegate table that this directory does not know, with its progress; returns its name.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND` where there is no table, `INVALID_ARGUMENT` where it is not one of Tidegate's,
    /// `FOREIGN_REWRITE` where another engine changed it and the log no longer tells how, `TABLE_EXISTS` when name or id are taken.
    pub async fn adopt(&self, location: &str, name: Option<&str>) -> Result<String> {
        let log = DeltaLog::new(self.parts.stores.open(location)?);
        if log.latest_version().await?.is_none() {
            let message = format!("location {location}: holds no table");
            return Err(Error::new(Code::TableNotFound, message));
        }
        let snapshot = log.snapshot(None).await?;
        if !snapshot.domains.contains_key(SPEC_DOMAIN) {
            let message = format!("location {location}: holds a table that Tidegate did not write");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        // What others committed last is taken in with the next batch; here it must only be possible to tell.
        foreign::tail(&log, snapshot.version)
            .await
            .map_err(|e| e.context(format!("location {location}")))?;
        let stored = resolved_spec(location, &snapshot)?;
        let name = name.unwrap_or(&stored.spec.name).to_owned();
        let mut entry = progress_of(&snapshot, &name, location)?;
        let slot = log.read_slot(snapshot.version).await?;
        entry.head_digest = slot.map(|slot| Digest::of(&slot));
        self.require(&name, Entry::Adopt(Box::new(entry))).await?;
        Ok(name)
    }
}

fn progress_of(snapshot: &TableSnapshot, name: &str, location: &str) -> Result<Adopt> {
    let id = TableId(snapshot.metadata.id.clone());
    let (batches_count, marks) = read_marks(snapshot)?;
    let prefix = format!("{id}/");
    let offsets: BTreeMap<_, _> = snapshot
        .transactions
        .iter()
        .filter_map(|(app, txn)| Some((app.strip_prefix(&prefix)?.to_owned(), txn.version)))
        .collect();
    let head_time_ms = snapshot.in_commit_timestamp_ms.ok_or_else(|| {
        Error::corrupt(format!(
            "location {location}: version {} has no time",
            snapshot.version
        ))
    })?;
    Ok(Adopt {
        table: id,
        name: name.to_owned(),
        location: location.to_owned(),
        head: snapshot.version,
        head_time_ms,
        head_digest: None,
        batches_count,
        marks,
        producers: read_producers(snapshot)?,
        offsets,
        watermark: watermark_of(snapshot)?,
    })
}

fn watermark_of(snapshot: &TableSnapshot) -> Result<Watermark> {
    let Some(text) = snapshot.domains.get(PROGRESS_DOMAIN) else {
        return Ok(Watermark::default());
    };
    let progress: Value = serde_json::from_str(text).map_err(|e| {
        Error::corrupt(format!("domain {PROGRESS_DOMAIN} cannot be read")).with_source(e)
    })?;
    Ok(match progress.get("watermark") {
        None | Some(Value::Null) => Watermark::default(),
        Some(value) => Watermark {
            json: value.to_string(),
            order: Vec::new(),
        },
    })
}

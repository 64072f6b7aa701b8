//! delta_kernel as an independent reader: rows of a version and changes of a range, as Tidegate prints them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use delta_kernel::Snapshot;
use delta_kernel::engine::arrow_data::EngineDataArrowExt;
use delta_kernel::table_changes::TableChanges;
use delta_kernel_default_engine::DefaultEngineBuilder;
use object_store::local::LocalFileSystem;
use serde_json::Value;
use tidegate_change::json;
use url::Url;

fn location(table: &Path) -> Result<Url> {
    Url::from_directory_path(table)
        .ok()
        .with_context(|| format!("no path: {}", table.display()))
}

fn lines(text: &[u8]) -> Result<Vec<Value>> {
    let text = std::str::from_utf8(text)?;
    Ok(text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

/// The rows of a version.
///
/// # Errors
/// When delta_kernel cannot read it.
pub fn rows(table: &Path, version: u64) -> Result<Vec<Value>> {
    let engine = Arc::new(DefaultEngineBuilder::new(Arc::new(LocalFileSystem::new())).build());
    let snapshot = Snapshot::builder_for(location(table)?)
        .at_version(version)
        .build(engine.as_ref())?;
    let mut text = Vec::new();
    for data in snapshot.scan_builder().build()?.execute(engine)? {
        json::write_rows(&data?.try_into_record_batch()?, &mut text)?;
    }
    lines(&text)
}

/// The changes of versions `0..=last`, without their times.
///
/// # Errors
/// When delta_kernel cannot read them.
pub fn changes(table: &Path, last: u64) -> Result<Vec<Value>> {
    let engine = Arc::new(DefaultEngineBuilder::new(Arc::new(LocalFileSystem::new())).build());
    let feed = TableChanges::try_new(location(table)?, engine.as_ref(), 0, Some(last))?;
    let mut text = Vec::new();
    for data in feed.into_scan_builder().build()?.execute(engine)? {
        json::write_rows(&data?.try_into_record_batch()?, &mut text)?;
    }
    let mut rows = lines(&text)?;
    for row in &mut rows {
        row.as_object_mut()
            .context("a change is no object")?
            .remove("_commit_timestamp");
    }
    Ok(rows)
}

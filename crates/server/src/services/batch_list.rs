//! Lists of batches: those that are in no table, then those that are, newest first.

use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tidegate_change::{BatchId, BatchResult, Result, TableVersion};
use tidegate_cluster::metadata::{BatchMark, State, TableId};
use tidegate_rpc::batch::result_message;
use tidegate_rpc::time::timestamp;
use tidegate_rpc::v1;

use super::batch::batch_message;
use super::page;
use crate::batches::BatchStatus;
use crate::node::Serving;
use crate::reader::Reader;

/// Commits that are read at one time.
const READS: usize = 8;

/// Where the next page begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Place {
    /// Below this version of the table.
    Below(u64),
    /// Behind this batch of all tables, by time, table and version.
    Behind(i64, String, u64),
}

/// A page of batches.
pub(super) async fn list_batches(
    serving: &Serving,
    asked: &v1::ListBatchesRequest,
) -> Result<v1::ListBatchesResponse> {
    let place: Option<Place> = page::place(&asked.page_token)?;
    let size = page::size(asked.page_size);
    let coordinator = &serving.embedded.coordinator;
    let only = match asked.table.as_str() {
        "" => None,
        table => Some(coordinator.table_named(table).await?.0),
    };
    // What has no version stands before all that has one: on the first page, whole.
    let mut batches = match place {
        None => without_version(serving, only.as_ref()),
        Some(_) => Vec::new(),
    };
    let room = size.saturating_sub(batches.len()).max(1);
    let (with_version, next) = match &only {
        Some(_) => of_table(serving, &asked.table, place, room).await?,
        None => of_all(serving, &*coordinator.state().await?, place, room).await?,
    };
    batches.extend(with_version);
    let next_page_token = next.map_or_else(|| Ok(String::new()), |place| page::token(&place))?;
    Ok(v1::ListBatchesResponse {
        batches,
        next_page_token,
    })
}

/// Batches that run, failed or were cancelled here; those that run first.
fn without_version(serving: &Serving, only: Option<&TableId>) -> Vec<v1::BatchSummary> {
    let mut found: Vec<(Option<i64>, v1::BatchSummary)> = Vec::new();
    for record in serving.batches.all() {
        let status = record.status();
        let ended_ms = match &status {
            BatchStatus::Queued | BatchStatus::Running(_) => None,
            BatchStatus::Failed(_, ms) | BatchStatus::Cancelled(ms) => Some(*ms),
            BatchStatus::Succeeded(_) => continue,
        };
        if only.is_none_or(|only| *only == record.table_id) {
            let batch = batch_message(&record, &status);
            let summary = v1::BatchSummary {
                table: batch.table,
                batch_id: batch.batch_id,
                state: batch.state,
                result: None,
                finished_at: ended_ms.map(timestamp),
            };
            found.push((ended_ms, summary));
        }
    }
    found.sort_by_key(|(ended_ms, _)| std::cmp::Reverse(ended_ms.unwrap_or(i64::MAX)));
    found.into_iter().map(|(_, summary)| summary).collect()
}

/// Batches of one table by its log, which goes back further than what the state remembers.
async fn of_table(
    serving: &Serving,
    table: &str,
    place: Option<Place>,
    room: usize,
) -> Result<(Vec<v1::BatchSummary>, Option<Place>)> {
    let log = serving.embedded.current_reader().await?.log(table)?;
    let mut below = match place {
        Some(Place::Below(version)) => Some(TableVersion(version)),
        _ => None,
    };
    let mut found = Vec::new();
    loop {
        let entries = log.history_below(below, Some(room)).await?;
        for entry in entries.iter() {
            let result = entry.info.batch_result();
            let result = result.map_err(|e| e.context(format!("version {}", entry.version)))?;
            if let Some(result) = result {
                // The commit's place in the log is what counts, wherever its attempt meant it to go.
                let result = BatchResult {
                    version: entry.version,
                    ..result
                };
                found.push(succeeded(
                    table,
                    &result.batch_id,
                    Some(&result),
                    entry.timestamp_ms,
                ));
            }
            below = Some(entry.version);
            if found.len() == room {
                return Ok((found, below.map(|version| Place::Below(version.0))));
            }
        }
        if entries.len() < room {
            return Ok((found, None));
        }
    }
}

/// The batches that the state remembers of all tables.
async fn of_all(
    serving: &Serving,
    state: &State,
    place: Option<Place>,
    room: usize,
) -> Result<(Vec<v1::BatchSummary>, Option<Place>)> {
    let mut marks: Vec<_> = state
        .tables
        .values()
        .flat_map(|table| table.marks.iter().map(|mark| (table.name.as_str(), mark)))
        .map(|(table, mark)| ((mark.time_ms, table, mark.version.0), mark))
        .collect();
    marks.sort_by(|a, b| b.0.cmp(&a.0));
    if let Some(Place::Behind(time_ms, table, version)) = &place {
        let place = (*time_ms, table.as_str(), *version);
        marks.retain(|(at, _)| *at < place);
    }
    let has_more = marks.len() > room;
    marks.truncate(room);
    let next = marks
        .last()
        .filter(|_| has_more)
        .map(|((time_ms, table, version), _)| {
            Place::Behind(*time_ms, (*table).to_owned(), *version)
        });
    let reader = serving.embedded.current_reader().await?;
    let mut reads = Vec::with_capacity(marks.len());
    for ((time_ms, table, _), mark) in marks {
        reads.push(read_batch(
            reader.clone(),
            table.to_owned(),
            mark.clone(),
            time_ms,
        ));
    }
    let found = futures::stream::iter(reads)
        .buffered(READS)
        .try_collect()
        .await?;
    Ok((found, next))
}

async fn read_batch(
    reader: Reader,
    table: String,
    mark: BatchMark,
    time_ms: i64,
) -> Result<v1::BatchSummary> {
    let log = reader.log(&table)?;
    let commit = log.read_commit_if_there(mark.version).await?;
    let info = commit.as_ref().and_then(|commit| commit.info());
    let result = match info {
        Some(info) => info.batch_result()?,
        None => None,
    };
    // A commit of several batches holds the result of none of them alone.
    let result = result.filter(|result| result.batch_id == mark.id);
    Ok(succeeded(&table, &mark.id, result.as_ref(), time_ms))
}

fn succeeded(
    table: &str,
    batch_id: &BatchId,
    result: Option<&BatchResult>,
    time_ms: i64,
) -> v1::BatchSummary {
    v1::BatchSummary {
        table: table.to_owned(),
        batch_id: batch_id.0.clone(),
        state: v1::BatchState::Succeeded.into(),
        result: result.map(result_message),
        finished_at: Some(timestamp(time_ms)),
    }
}

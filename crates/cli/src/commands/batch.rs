//! `tidegate batch …`

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;
use tidegate_change::{BatchResult, Code, Error, Result, TableVersion};
use tidegate_client::v1::{BatchProgress, BatchState, BatchSummary};
use tidegate_client::{Client, result_from, v1};

use super::apply::span;
use crate::context::Context;
use crate::progress::BatchBars;
use crate::render;

/// Batches that are asked for at one time.
const PAGE_SIZE: u32 = 500;

/// What can be asked about batches.
#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// List the batches of a table, the newest first.
    List(ListArguments),
    /// Show the result of a batch, or how it stands.
    Show(ShowArguments),
    /// Wait for a batch of a cluster and show its result.
    Wait(WaitArguments),
    /// Stop a batch of a cluster, unless it is being published.
    Cancel(ShowArguments),
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// The table.
    table: String,
    /// Batches at most.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Arguments of `show` and `cancel`.
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The table.
    table: String,
    /// The batch.
    batch_id: String,
}

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// The table.
    table: String,
    /// The batch.
    batch_id: String,
    /// Wait that long at most, 30s or 5m.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    timeout: Option<Duration>,
}

/// A batch in a list.
#[derive(Debug, Serialize)]
struct Line {
    batch_id: String,
    state: &'static str,
    version: Option<TableVersion>,
    events: Option<u64>,
    inserted: Option<u64>,
    updated: Option<u64>,
    deleted: Option<u64>,
    quarantined: Option<u64>,
    watermark: Value,
    seconds: Option<f64>,
}

/// Columns of `list`, also of an empty one.
const LIST_COLUMNS: [&str; 10] = [
    "batch_id",
    "state",
    "version",
    "events",
    "inserted",
    "updated",
    "deleted",
    "quarantined",
    "watermark",
    "seconds",
];

/// How a batch stands that has no result.
#[derive(Debug, Serialize)]
pub(crate) struct Standing {
    table: String,
    batch_id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events_read: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Standing {
    /// A batch that was taken.
    pub(crate) fn running(table: &str, batch_id: &str) -> Self {
        Self {
            table: table.to_owned(),
            batch_id: batch_id.to_owned(),
            state: word(BatchState::Running),
            phase: None,
            events_read: None,
            code: None,
            message: None,
        }
    }

    fn of(batch: &v1::Batch) -> Self {
        let (progress, error) = (batch.progress.as_ref(), batch.error.as_ref());
        Self {
            state: word(batch.state()),
            phase: progress.map(|progress| progress.phase.clone()),
            events_read: progress.map(|progress| progress.events_read_count),
            code: error.map(|error| error.code.clone()),
            message: error.map(|error| error.message.clone()),
            ..Self::running(&batch.table, &batch.batch_id)
        }
    }
}

pub(crate) async fn run(context: &Context, noun: Noun) -> Result<()> {
    match (noun, context.cluster()) {
        (Noun::List(arguments), Some(client)) => list_of(context, client, &arguments).await,
        (Noun::List(arguments), None) => list(context, &arguments).await,
        (Noun::Show(arguments), Some(client)) => {
            let batch = client.batch(&arguments.table, &arguments.batch_id).await?;
            show_batch(context, batch)
        }
        (Noun::Show(arguments), None) => show(context, &arguments).await,
        (Noun::Wait(arguments), _) => {
            let client = context.require_cluster("batch wait")?;
            wait(context, client, &arguments).await
        }
        (Noun::Cancel(arguments), _) => {
            let client = context.require_cluster("batch cancel")?;
            let (table, batch_id) = (&arguments.table, &arguments.batch_id);
            show_batch(context, client.cancel_batch(table, batch_id).await?)
        }
    }
}

async fn list(context: &Context, arguments: &ListArguments) -> Result<()> {
    let reader = context.reader()?;
    reader.check(&arguments.table).await?;
    let log = reader.log(&arguments.table)?;
    let mut results = tidegate_query::batches(&log).await?;
    results.truncate(arguments.limit.unwrap_or(usize::MAX));
    let lines: Vec<Line> = results
        .iter()
        .map(|result| line(&result.batch_id.0, BatchState::Succeeded, Some(result)))
        .collect();
    render::objects(context, &lines, &LIST_COLUMNS)
}

async fn list_of(context: &Context, client: &Client, arguments: &ListArguments) -> Result<()> {
    let limit = arguments.limit.unwrap_or(usize::MAX);
    let table = &arguments.table;
    let (mut lines, mut token) = (Vec::new(), String::new());
    while lines.len() < limit {
        let page = client.list_batches(Some(table), PAGE_SIZE, &token).await?;
        for batch in page.batches {
            lines.push(summary_line(table, batch)?);
        }
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    lines.truncate(limit);
    render::objects(context, &lines, &LIST_COLUMNS)
}

fn summary_line(table: &str, batch: BatchSummary) -> Result<Line> {
    let state = batch.state();
    let result = batch
        .result
        .map(|result| result_from(table, &batch.batch_id, result))
        .transpose()?;
    Ok(line(&batch.batch_id, state, result.as_ref()))
}

async fn show(context: &Context, arguments: &ShowArguments) -> Result<()> {
    let reader = context.reader()?;
    reader.check(&arguments.table).await?;
    let log = reader.log(&arguments.table)?;
    let results = tidegate_query::batches(&log).await?;
    let wanted = |result: &&BatchResult| result.batch_id.0 == arguments.batch_id;
    match results.iter().find(wanted) {
        Some(result) => render::object(context, result),
        None => {
            let message = format!(
                "table {}: batch {} is not known",
                arguments.table, arguments.batch_id
            );
            Err(Error::new(Code::NotFound, message))
        }
    }
}

fn show_batch(context: &Context, mut batch: v1::Batch) -> Result<()> {
    match batch.result.take() {
        Some(result) => {
            let result = result_from(&batch.table, &batch.batch_id, result)?;
            render::object(context, &result)
        }
        None => render::object(context, &Standing::of(&batch)),
    }
}

async fn wait(context: &Context, client: &Client, arguments: &WaitArguments) -> Result<()> {
    let (table, batch_id) = (&arguments.table, &arguments.batch_id);
    let bars = BatchBars::start(context, table);
    let told = |progress: &BatchProgress| bars.show(progress);
    let outcome = client
        .wait_for_batch(table, batch_id, arguments.timeout, told)
        .await;
    bars.finish();
    render::object(context, &outcome?)
}

fn line(batch_id: &str, state: BatchState, result: Option<&BatchResult>) -> Line {
    let counters = result.map(|result| &result.counters);
    Line {
        batch_id: batch_id.to_owned(),
        state: word(state),
        version: result.map(|result| result.version),
        events: counters.map(|counters| counters.events),
        inserted: counters.map(|counters| counters.inserted),
        updated: counters.map(|counters| counters.updated),
        deleted: counters.map(|counters| counters.deleted),
        quarantined: counters.map(|counters| counters.quarantined),
        watermark: result.map_or(Value::Null, |result| result.watermark.clone()),
        seconds: result.map(|result| result.seconds),
    }
}

fn word(state: BatchState) -> &'static str {
    match state {
        BatchState::Unspecified => "unknown",
        BatchState::Running => "running",
        BatchState::Succeeded => "succeeded",
        BatchState::Failed => "failed",
        BatchState::Cancelled => "cancelled",
    }
}

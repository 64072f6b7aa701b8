//! `tidegate batch …`

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;
use tidegate_change::{BatchResult, Code, Error, Result, TableVersion};

use crate::context::Context;
use crate::render;

/// What can be asked about batches.
#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// List the batches of a table, the newest first.
    List(ListArguments),
    /// Show the result of a batch.
    Show(ShowArguments),
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

/// Arguments of `show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The table.
    table: String,
    /// The batch.
    batch_id: String,
}

/// A batch in a list.
#[derive(Debug, Serialize)]
struct Line {
    batch_id: String,
    version: TableVersion,
    events: u64,
    inserted: u64,
    updated: u64,
    deleted: u64,
    quarantined: u64,
    watermark: Value,
    seconds: f64,
}

/// Columns of `list`, also of an empty one.
const LIST_COLUMNS: [&str; 9] = [
    "batch_id",
    "version",
    "events",
    "inserted",
    "updated",
    "deleted",
    "quarantined",
    "watermark",
    "seconds",
];

pub(crate) async fn run(context: &Context, noun: Noun) -> Result<()> {
    let reader = context.reader()?;
    match noun {
        Noun::List(arguments) => {
            reader.check(&arguments.table).await?;
            let mut results = tidegate_query::batches(&reader.log(&arguments.table)?).await?;
            results.truncate(arguments.limit.unwrap_or(usize::MAX));
            let lines = results.iter().map(line).collect::<Vec<_>>();
            render::objects(context, &lines, &LIST_COLUMNS)
        }
        Noun::Show(arguments) => {
            reader.check(&arguments.table).await?;
            let results = tidegate_query::batches(&reader.log(&arguments.table)?).await?;
            match results
                .iter()
                .find(|result| result.batch_id.0 == arguments.batch_id)
            {
                Some(result) => render::object(context, result),
                None => {
                    let message = format!(
                        "table {}: batch {} is not in its history",
                        arguments.table, arguments.batch_id
                    );
                    Err(Error::new(Code::NotFound, message))
                }
            }
        }
    }
}

fn line(result: &BatchResult) -> Line {
    let counters = &result.counters;
    Line {
        batch_id: result.batch_id.0.clone(),
        version: result.version,
        events: counters.events,
        inserted: counters.inserted,
        updated: counters.updated,
        deleted: counters.deleted,
        quarantined: counters.quarantined,
        watermark: result.watermark.clone(),
        seconds: result.seconds,
    }
}

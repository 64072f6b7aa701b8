//! One file a noun: its arguments and what it does with them.

pub(crate) mod apply;
pub(crate) mod batch;
pub(crate) mod changes;
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod read;
pub(crate) mod rejects;
pub(crate) mod serve;
pub(crate) mod table;

use std::ffi::OsString;

use clap::CommandFactory;
use tidegate_change::{Code, Error, Result};
use tidegate_client::flight::Ticket;
use tidegate_client::{Client, RowStream};
use tidegate_query::Rows;
use tidegate_query::output::row_writer;

use crate::arguments::Cli;
use crate::context::Context;

/// Commands of the interface that this build does not have.
const LATER: [&str; 8] = [
    "pipeline", "optimize", "vacuum", "verify", "explain", "erase", "restore", "query",
];

/// Refuses a command that this build does not have.
pub(crate) fn later(words: &[OsString]) -> Result<()> {
    let word = words
        .first()
        .map(|word| word.to_string_lossy().into_owned())
        .unwrap_or_default();
    if LATER.contains(&word.as_str()) {
        let message = format!("command {word}: this build does not have it");
        return Err(Error::new(Code::Unsupported, message)
            .with_hint("`tidegate --help` lists the commands that it has"));
    }
    let error = Error::new(
        Code::InvalidArgument,
        format!("command {word:?}: there is none"),
    );
    let command = Cli::command();
    let nearest = command
        .get_subcommands()
        .map(|known| {
            (
                strsim::damerau_levenshtein(known.get_name(), &word),
                known.get_name(),
            )
        })
        .min();
    Err(match nearest {
        Some((distance, known)) if distance <= known.len().div_ceil(3) => {
            error.with_hint(format!("did you mean `{known}`?"))
        }
        _ => error.with_hint("`tidegate --help` lists the commands"),
    })
}

/// Prints rows in the form of `--output`.
pub(crate) async fn print(context: &Context, mut rows: Rows) -> Result<()> {
    let mut writer = row_writer(context.format, rows.schema(), context.output())?;
    while let Some(batch) = rows.next_batch().await? {
        writer.write(&batch)?;
    }
    writer.finish()
}

/// Prints the rows of a ticket.
pub(crate) async fn print_from(context: &Context, client: &Client, ticket: &Ticket) -> Result<()> {
    print(context, rows_of(client.rows(ticket).await?)).await
}

/// Rows that another process reads.
pub(crate) fn rows_of(stream: RowStream) -> Rows {
    Rows::new(stream.schema, stream.batches)
}

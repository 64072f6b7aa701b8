//! `tidegate rejects`

use clap::Args;
use tidegate_change::Result;
use tidegate_client::flight::{RejectsTicket, Ticket};

use crate::commands;
use crate::context::Context;

/// Arguments of `rejects`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The table.
    pub(crate) table: String,
    /// Rows at most.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

pub(crate) async fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if let Some(client) = context.cluster() {
        let ticket = RejectsTicket {
            table: arguments.table.clone(),
            limit: arguments.limit,
        };
        return commands::print_from(context, client, &Ticket::Rejects(ticket)).await;
    }
    let reader = context.reader()?;
    let table = &arguments.table;
    reader.check(table).await?;
    let log = reader.log(table)?;
    let rows = tidegate_query::rejects(&log)
        .await
        .map_err(|error| error.context(format!("table {table}")))?;
    commands::print(context, rows.limited(arguments.limit)).await
}

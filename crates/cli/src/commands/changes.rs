//! `tidegate changes`

use std::time::Duration;

use clap::Args;
use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_client::Client;
use tidegate_client::flight::{ChangesTicket, StreamTicket, Ticket};
use tidegate_query::output::{RowWriter, row_writer};
use tidegate_query::{ChangesStart, FeedBounds, StreamedChanges};
use tidegate_server::Reader;

use super::read::{parse_time_ms, parse_version, signed_version};
use crate::commands;
use crate::context::Context;
use crate::position::Position;

/// How often `--follow` looks for a new version.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// Arguments of `changes`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The table.
    pub(crate) table: String,
    /// First version whose changes are printed.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,
    /// Last version whose changes are printed; by default the newest.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
    /// Print changes of versions that were committed at that time or later.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub(crate) from_timestamp: Option<String>,
    /// Print changes of versions that were committed until that time.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub(crate) to_timestamp: Option<String>,
    /// Take a range beyond the newest version as far as it goes, instead of failing.
    #[arg(long)]
    pub(crate) allow_out_of_range: bool,
    /// Print what a stream reader sees: without --from the table as inserts, then its changes.
    #[arg(long)]
    pub(crate) stream: bool,
    /// The last version that the stream reader has seen; wins over --from.
    #[arg(
        long,
        value_name = "N",
        requires = "stream",
        allow_hyphen_values = true
    )]
    pub(crate) after: Option<String>,
    /// Go on after what was printed under this name, and remember how far that is; wins over --from.
    #[arg(
        long,
        value_name = "NAME",
        requires = "stream",
        conflicts_with = "after"
    )]
    pub(crate) position: Option<String>,
    /// Wait for further versions, until interrupted.
    #[arg(long, requires = "stream")]
    pub(crate) follow: bool,
}

pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<()> {
    let bounds = bounds(&arguments)?;
    let table = &arguments.table;
    if arguments.stream {
        return stream(context, &arguments, bounds).await;
    }
    if let Some(client) = context.cluster() {
        let ticket = ChangesTicket {
            table: table.clone(),
            from_version: bounds.start_version,
            from_timestamp_ms: bounds.start_timestamp_ms,
            to_version: bounds.end_version,
            to_timestamp_ms: bounds.end_timestamp_ms,
            allow_out_of_range: bounds.allow_out_of_range,
        };
        return commands::print_from(context, client, &Ticket::Changes(ticket)).await;
    }
    let reader = context.reader()?;
    reader.check(table).await?;
    let log = reader.log(table)?;
    let rows = tidegate_query::changes(&log, &bounds)
        .await
        .map_err(|e| named(table, e))?;
    commands::print(context, rows).await
}

async fn stream(context: &Context, arguments: &Arguments, bounds: FeedBounds) -> Result<()> {
    let table = &arguments.table;
    if arguments.to.is_some() || arguments.to_timestamp.is_some() {
        return Err(Error::new(Code::InvalidRange, "--to: a stream has no end"));
    }
    let feed = Feed::open(context, table)?;
    let position = match &arguments.position {
        Some(name) => {
            let id = feed.table_id(table).await?;
            Some(Position::named(&context.local, table, &id, name)?)
        }
        None => None,
    };
    let after = match (&position, &arguments.after) {
        (Some(position), _) => position.load()?,
        (None, Some(text)) => Some(parse_version("--after", text)?),
        (None, None) => None,
    };
    let mut delivery = Delivery {
        writer: None,
        position,
        after,
    };
    loop {
        let start = match delivery.after {
            Some(after) => ChangesStart::After(after),
            None if arguments.from.is_some() || arguments.from_timestamp.is_some() => {
                ChangesStart::From(bounds)
            }
            None => ChangesStart::Table,
        };
        let waits = arguments.follow || arguments.allow_out_of_range;
        let changes = feed.next(table, start, waits).await?;
        delivery.take(context, changes).await?;
        if !arguments.follow {
            return delivery.finish();
        }
        delivery.flush()?;
        wait().await;
    }
}

/// Where a stream reader gets its changes.
enum Feed {
    /// From the directory.
    Local(Reader),
    /// From a node.
    Remote(Client),
}

impl Feed {
    fn open(context: &Context, table: &str) -> Result<Self> {
        if let Some(client) = context.cluster() {
            return Ok(Self::Remote(client.clone()));
        }
        let reader = context.reader()?;
        reader.log(table)?;
        Ok(Self::Local(reader))
    }

    async fn table_id(&self, table: &str) -> Result<String> {
        match self {
            Self::Local(reader) => Ok(reader.snapshot(table, None).await?.metadata.id.clone()),
            Self::Remote(client) => Ok(client.describe_table(table).await?.id),
        }
    }

    async fn next(&self, table: &str, start: ChangesStart, waits: bool) -> Result<StreamedChanges> {
        let client = match self {
            Self::Local(reader) => {
                let log = reader.log(table)?;
                let changes = tidegate_query::stream_changes(&log, start, waits).await;
                return changes.map_err(|error| named(table, error));
            }
            Self::Remote(client) => client,
        };
        let mut ticket = StreamTicket {
            table: table.to_owned(),
            waits,
            ..StreamTicket::default()
        };
        match start {
            ChangesStart::Table => {}
            ChangesStart::From(bounds) => {
                ticket.from_version = bounds.start_version;
                ticket.from_timestamp_ms = bounds.start_timestamp_ms;
            }
            ChangesStart::After(seen) => {
                ticket.after = Some(signed_version("--after", &seen.to_string())?);
            }
        }
        let stream = client.rows(&Ticket::Stream(ticket)).await?;
        let until = stream.until;
        Ok(StreamedChanges {
            rows: commands::rows_of(stream),
            until,
        })
    }
}

/// Changes on their way out, and how far they got.
struct Delivery {
    writer: Option<Box<dyn RowWriter>>,
    position: Option<Position>,
    after: Option<TableVersion>,
}

impl Delivery {
    async fn take(&mut self, context: &Context, changes: StreamedChanges) -> Result<()> {
        let StreamedChanges { mut rows, until } = changes;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            empty => empty.insert(row_writer(context.format, rows.schema(), context.output())?),
        };
        while let Some(batch) = rows.next_batch().await? {
            writer.write(&batch)?;
        }
        self.after = until.or(self.after);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if let Some(writer) = &mut self.writer {
            writer.flush()?;
        }
        self.remember()
    }

    fn finish(mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        self.remember()
    }

    // ORDER: the output is flushed before, so that a crash repeats changes and never skips them.
    fn remember(&self) -> Result<()> {
        match (&self.position, self.after) {
            (Some(position), Some(version)) => position.save(version),
            _ => Ok(()),
        }
    }
}

/// The bounds as given; the rules about them are the feed's (R-F1 to R-F7).
fn bounds(arguments: &Arguments) -> Result<FeedBounds> {
    let version = |option: &str, text: &Option<String>| -> Result<Option<i64>> {
        text.as_ref()
            .map(|text| signed_version(option, text))
            .transpose()
    };
    let time = |option: &str, text: &Option<String>| {
        text.as_ref()
            .map(|text| parse_time_ms(option, text))
            .transpose()
    };
    Ok(FeedBounds {
        start_version: version("--from", &arguments.from)?,
        start_timestamp_ms: time("--from-timestamp", &arguments.from_timestamp)?,
        end_version: version("--to", &arguments.to)?,
        end_timestamp_ms: time("--to-timestamp", &arguments.to_timestamp)?,
        allow_out_of_range: arguments.allow_out_of_range,
    })
}

fn named(table: &str, error: Error) -> Error {
    error.context(format!("table {table}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person watches; no decision depends on the time"
)]
async fn wait() {
    tokio::time::sleep(FOLLOW_INTERVAL).await;
}

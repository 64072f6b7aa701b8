//! `tidegate changes`

use std::time::Duration;

use clap::Args;
use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_query::output::{RowWriter, row_writer};
use tidegate_query::{ChangesStart, FeedBounds, StreamedChanges};

use super::read::{invalid_version, parse_time_ms, parse_version};
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
    let reader = context.reader()?;
    reader.check(table).await?;
    let log = reader.log(table)?;
    let position = match &arguments.position {
        Some(name) => {
            let id = reader.snapshot(table, None).await?.metadata.id.clone();
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
        let changes = tidegate_query::stream_changes(&log, start, waits).await;
        delivery
            .take(context, changes.map_err(|error| named(table, error))?)
            .await?;
        if !arguments.follow {
            return delivery.finish();
        }
        delivery.flush()?;
        wait().await;
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
        let Some(text) = text else { return Ok(None) };
        let version = parse_version(option, text)?;
        i64::try_from(version.0)
            .map(Some)
            .map_err(|_| invalid_version(option, text))
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

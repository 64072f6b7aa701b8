//! What tickets ask for, as rows: the one way of all services to read.

use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_query::{ChangesStart, FeedBounds, ReadOptions, Rows};
use tidegate_rpc::flight::{ChangesTicket, ReadTicket, RejectsTicket, StreamTicket, Ticket};

use crate::reader::Reader;

/// Rows, and the version that they reach where a stream reader asked.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) rows: Rows,
    /// For a stream: where it ends, if there was anything to read.
    pub(crate) until: Option<Option<TableVersion>>,
}

/// Opens what a ticket asks for.
///
/// # Errors
/// What refuses the request; failures of reading come with the rows.
pub(crate) async fn open(reader: &Reader, ticket: Ticket) -> Result<Opened> {
    let rows = match ticket {
        Ticket::Read(ticket) => read(reader, ticket).await?,
        Ticket::Changes(ticket) => changes(reader, &ticket).await?,
        Ticket::Rejects(ticket) => rejects(reader, &ticket).await?,
        Ticket::Stream(ticket) => return stream(reader, &ticket).await,
    };
    Ok(Opened { rows, until: None })
}

/// The ticket with the version that it asks for now, so that later reads of it give the same rows.
///
/// # Errors
/// What refuses the request.
pub(crate) async fn pinned(reader: &Reader, ticket: ReadTicket) -> Result<ReadTicket> {
    let version = version_of(reader, &ticket).await?;
    let version = match version {
        Some(version) => version,
        None => reader.snapshot(&ticket.table, None).await?.version,
    };
    Ok(ReadTicket {
        version: Some(tidegate_rpc::batch::version_message(version)),
        timestamp_ms: None,
        ..ticket
    })
}

async fn read(reader: &Reader, ticket: ReadTicket) -> Result<Rows> {
    let table = ticket.table.clone();
    check_min_version(reader, &ticket).await?;
    let version = version_of(reader, &ticket).await?;
    let snapshot = reader.snapshot(&table, version).await?;
    let order_by = match ticket.order {
        true => Some(reader.resolved(&table).await?.spec.order_columns()),
        false => None,
    };
    let options = ReadOptions {
        columns: ticket.columns,
        filter: ticket.filter,
        order_by,
        limit: ticket.limit,
    };
    tidegate_query::read(&reader.root(&table)?, &snapshot, &options).map_err(|e| named(&table, e))
}

/// A reader that has seen a version is not shown an older one.
async fn check_min_version(reader: &Reader, ticket: &ReadTicket) -> Result<()> {
    let Some(least) = ticket.min_version.filter(|least| *least > 0) else {
        return Ok(());
    };
    let newest = reader.snapshot(&ticket.table, None).await?.version;
    if i128::from(newest.0) < i128::from(least) {
        let message = format!(
            "table {}: version {least} is not here yet, the newest is {newest}",
            ticket.table
        );
        return Err(Error::new(Code::Unavailable, message));
    }
    Ok(())
}

async fn version_of(reader: &Reader, ticket: &ReadTicket) -> Result<Option<TableVersion>> {
    match (ticket.version, ticket.timestamp_ms) {
        (Some(_), Some(_)) => {
            let message = "a version and a time are given together";
            Err(Error::new(Code::InvalidVersion, message))
        }
        (Some(version), None) => Ok(Some(version_from("version", version)?)),
        (None, Some(time)) => {
            let version = reader.log(&ticket.table)?.version_at(time).await;
            Ok(Some(version.map_err(|e| named(&ticket.table, e))?))
        }
        (None, None) => Ok(None),
    }
}

async fn changes(reader: &Reader, ticket: &ChangesTicket) -> Result<Rows> {
    let bounds = FeedBounds {
        start_version: ticket.from_version,
        start_timestamp_ms: ticket.from_timestamp_ms,
        end_version: ticket.to_version,
        end_timestamp_ms: ticket.to_timestamp_ms,
        allow_out_of_range: ticket.allow_out_of_range,
    };
    let rows = tidegate_query::changes(&reader.log(&ticket.table)?, &bounds).await;
    rows.map_err(|e| named(&ticket.table, e))
}

async fn stream(reader: &Reader, ticket: &StreamTicket) -> Result<Opened> {
    let has_start = ticket.from_version.is_some() || ticket.from_timestamp_ms.is_some();
    let start = match ticket.after {
        Some(after) => ChangesStart::After(version_from("after", after)?),
        None if has_start => ChangesStart::From(FeedBounds {
            start_version: ticket.from_version,
            start_timestamp_ms: ticket.from_timestamp_ms,
            ..FeedBounds::default()
        }),
        None => ChangesStart::Table,
    };
    let log = reader.log(&ticket.table)?;
    let changes = tidegate_query::stream_changes(&log, start, ticket.waits).await;
    let changes = changes.map_err(|e| named(&ticket.table, e))?;
    Ok(Opened {
        rows: changes.rows,
        until: Some(changes.until),
    })
}

async fn rejects(reader: &Reader, ticket: &RejectsTicket) -> Result<Rows> {
    let rows = tidegate_query::rejects(&reader.log(&ticket.table)?).await;
    let rows = rows.map_err(|e| named(&ticket.table, e))?;
    Ok(rows.limited(ticket.limit))
}

fn version_from(what: &str, version: i64) -> Result<TableVersion> {
    u64::try_from(version).map(TableVersion).map_err(|_| {
        let message = format!("{what} {version} is no version, a number from 0");
        Error::new(Code::InvalidVersion, message)
    })
}

fn named(table: &str, error: Error) -> Error {
    error.context(format!("table {table}"))
}

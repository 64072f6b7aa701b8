//! `tidegate read`

use clap::Args;
use tidegate_change::{Code, Error, Result, TableVersion, text};
use tidegate_client::flight::{ReadTicket, Ticket};
use tidegate_query::ReadOptions;

use crate::commands;
use crate::context::Context;

/// Arguments of `read`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The table.
    pub(crate) table: String,
    /// The version to read; by default the newest.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) version: Option<String>,
    /// Read what was the newest version at that time.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub(crate) timestamp: Option<String>,
    /// Columns, in that order.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) columns: Option<Vec<String>>,
    /// A condition over the table's columns.
    #[arg(long = "where", value_name = "SQL")]
    pub(crate) filter: Option<String>,
    /// Print rows in primary key order; of an append table in the order of the source.
    #[arg(long)]
    pub(crate) order: bool,
    /// Rows at most.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// SCD 2: the versions valid at that sequence value (not in this build).
    #[arg(long, value_name = "VALUE")]
    pub(crate) as_of: Option<String>,
}

pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<()> {
    if arguments.as_of.is_some() {
        return Err(Error::new(
            Code::Unsupported,
            "--as-of: this build does not have it",
        ));
    }
    if let Some(client) = context.cluster() {
        let ticket = Ticket::Read(ticket_of(&arguments)?);
        return commands::print_from(context, client, &ticket).await;
    }
    let reader = context.reader()?;
    let table = &arguments.table;
    let version = match (&arguments.version, &arguments.timestamp) {
        (Some(_), Some(_)) => return Err(given_together()),
        (Some(version), None) => Some(parse_version("--version", version)?),
        (None, Some(time)) => {
            let time = parse_time_ms("--timestamp", time)?;
            let version = reader.log(table)?.version_at(time).await;
            Some(version.map_err(|error| error.context(format!("table {table}")))?)
        }
        (None, None) => None,
    };
    let snapshot = reader.snapshot(table, version).await?;
    let order_by = if arguments.order {
        Some(reader.resolved(table).await?.spec.order_columns())
    } else {
        None
    };
    let options = ReadOptions {
        columns: arguments.columns,
        filter: arguments.filter,
        order_by,
        limit: arguments.limit,
    };
    let rows = tidegate_query::read(&reader.root(table)?, &snapshot, &options)
        .map_err(|error| error.context(format!("table {table}")))?;
    commands::print(context, rows).await
}

fn ticket_of(arguments: &Arguments) -> Result<ReadTicket> {
    if arguments.version.is_some() && arguments.timestamp.is_some() {
        return Err(given_together());
    }
    let version = arguments.version.as_deref();
    let time = arguments.timestamp.as_deref();
    Ok(ReadTicket {
        table: arguments.table.clone(),
        version: version
            .map(|text| signed_version("--version", text))
            .transpose()?,
        timestamp_ms: time
            .map(|text| parse_time_ms("--timestamp", text))
            .transpose()?,
        columns: arguments.columns.clone(),
        filter: arguments.filter.clone(),
        order: arguments.order,
        limit: arguments.limit,
        min_version: None,
    })
}

fn given_together() -> Error {
    let message = "--version and --timestamp are given together";
    Error::new(Code::InvalidVersion, message)
}

/// A version in the form in which it is sent.
pub(crate) fn signed_version(option: &str, text: &str) -> Result<i64> {
    let version = parse_version(option, text)?;
    i64::try_from(version.0).map_err(|_| invalid_version(option, text))
}

/// A version as the command line writes it (R-F7).
pub(crate) fn parse_version(option: &str, text: &str) -> Result<TableVersion> {
    text.parse()
        .map(TableVersion)
        .map_err(|_| invalid_version(option, text))
}

/// The refusal of what is no version.
fn invalid_version(option: &str, text: &str) -> Error {
    Error::new(
        Code::InvalidVersion,
        format!("{option} {text:?} is no version, a number from 0"),
    )
}

/// A time as the command line writes it, as milliseconds since the epoch; UTC where it names no offset.
pub(crate) fn parse_time_ms(option: &str, text: &str) -> Result<i64> {
    match text::time::parse_timestamp(text) {
        Ok(time) => Ok(time.micros.div_euclid(1000)),
        Err(_) => {
            let message = format!("{option} {text:?} is no time");
            Err(Error::new(Code::InvalidVersion, message)
                .with_hint("write it as 2026-05-01T10:00:00Z; without offset it is UTC"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_from_zero() {
        assert_eq!(parse_version("--from", "3").unwrap(), TableVersion(3));
        for text in ["-1", "NULL", "", "1.5", "99999999999999999999"] {
            assert_eq!(
                parse_version("--from", text).unwrap_err().code(),
                Code::InvalidVersion
            );
        }
    }

    #[test]
    fn times_are_utc_where_they_name_no_offset() {
        let expected = 1_777_629_600_000;
        for text in [
            "2026-05-01 10:00:00",
            "2026-05-01T10:00:00Z",
            "2026-05-01T12:00:00+02:00",
        ] {
            assert_eq!(
                parse_time_ms("--timestamp", text).unwrap(),
                expected,
                "{text}"
            );
        }
        assert!(parse_time_ms("--timestamp", "yesterday").is_err());
    }
}

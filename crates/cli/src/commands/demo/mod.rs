//! `tidegate demo`: the guide's customers example, day 1 and day 2, end to end.
//!
//! It runs what a user would run: a spec, two files of events, reads. Run again it applies the same
//! batches, which changes nothing, and shows the same.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use tidegate_change::{BatchResult, Code, Error, Result, TableSpec};
use tidegate_query::output::{OutputFormat, row_writer};
use tidegate_query::{FeedBounds, ReadOptions, Rows};
use tidegate_server::{ApplyOptions, Embedded, Reader, SourceArgument};

use crate::context::Context;
use crate::render;

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

const TABLE: &str = "customers";
const SPEC: &str = include_str!("customers.yaml");
const DAYS: [(&str, &str); 2] = [
    ("day-1.jsonl", include_str!("day-1.jsonl")),
    ("day-2.jsonl", include_str!("day-2.jsonl")),
];

/// The tour as one object, for `--output json`.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    table: &'a str,
    location: String,
    days: &'a [BatchResult],
    watermark: &'a Value,
}

pub(crate) async fn run(context: &Context, _arguments: &Arguments) -> Result<()> {
    context.require_local("demo")?;
    let directory = context.local.join("demo");
    let files = write_files(&directory)?;
    let embedded = context.writer().await?;
    let is_new = create(&embedded).await?;
    let mut days = Vec::with_capacity(files.len());
    for file in &files {
        let source = SourceArgument::Path(file.display().to_string());
        days.push(
            embedded
                .apply(TABLE, &[source], &ApplyOptions::default())
                .await?,
        );
    }
    let reader = embedded.reader();
    let watermark = days.last().map_or(&Value::Null, |day| &day.watermark);
    if matches!(context.format, OutputFormat::Json | OutputFormat::JsonLines) {
        let location = reader.describe(TABLE).await?.location;
        let summary = Summary {
            table: TABLE,
            location,
            days: &days,
            watermark,
        };
        return render::object(context, &summary);
    }
    let tour = Tour {
        context,
        reader: &reader,
    };
    tour.introduce(&directory, is_new)?;
    for (number, (day, file)) in days.iter().zip(&files).enumerate() {
        tour.day(number + 1, day, file).await?;
    }
    tour.feed(&days).await?;
    tour.end(&directory, watermark)
}

/// Writes the example's files, for the user to look at and to change.
fn write_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|e| Error::io(path.display(), e))?;
        Ok(path)
    };
    std::fs::create_dir_all(directory).map_err(|e| Error::io(directory.display(), e))?;
    write("customers.yaml", SPEC)?;
    DAYS.iter().map(|(name, text)| write(name, text)).collect()
}

/// Creates the table, or makes sure that the one that is there is the example's.
async fn create(embedded: &Embedded) -> Result<bool> {
    let spec = TableSpec::from_yaml(SPEC)?;
    match embedded.create_table(spec.clone()).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Code::TableExists => {
            if embedded.reader().resolved(TABLE).await?.spec == spec {
                return Ok(false);
            }
            Err(error
                .with_hint("it is not the demo's; run the demo with --local and another directory"))
        }
        Err(error) => Err(error),
    }
}

struct Tour<'a> {
    context: &'a Context,
    reader: &'a Reader,
}

impl Tour<'_> {
    fn introduce(&self, directory: &Path, is_new: bool) -> Result<()> {
        let spec = directory.join("customers.yaml");
        let step = if is_new { "Created" } else { "Found" };
        self.print(&format!(
            "{step} table {TABLE}, one row a customer.\n\
             Its spec, {}, says: keys [customer_id], sequence_by updated_at,\n\
             and an event with _cdc_operation = 'D' is a delete.\n\n",
            spec.display()
        ))
    }

    async fn day(&self, number: usize, day: &BatchResult, file: &Path) -> Result<()> {
        let counters = &day.counters;
        self.print(&format!(
            "Day {number}: applied {} as one batch, version {}.\n\
             {} events: {} inserted, {} updated, {} deleted, {} unchanged.\n\n",
            file.display(),
            day.version,
            counters.events,
            counters.inserted,
            counters.updated,
            counters.deleted,
            counters.unchanged
        ))?;
        let snapshot = self.reader.snapshot(TABLE, Some(day.version)).await?;
        let keys = vec!["customer_id".to_owned()];
        let options = ReadOptions {
            order_by: Some(keys),
            ..ReadOptions::default()
        };
        let rows = tidegate_query::read(&self.reader.root(TABLE)?, &snapshot, &options)?;
        self.table(rows).await
    }

    async fn feed(&self, days: &[BatchResult]) -> Result<()> {
        let version =
            |day: Option<&BatchResult>| day.and_then(|day| i64::try_from(day.version.0).ok());
        let bounds = FeedBounds {
            start_version: version(days.first()),
            end_version: version(days.last()),
            ..FeedBounds::default()
        };
        self.print("What downstream reads, the changes of both days:\n\n")?;
        let rows = tidegate_query::changes(&self.reader.log(TABLE)?, &bounds).await?;
        let columns = [
            "_commit_version",
            "_change_type",
            "customer_id",
            "name",
            "city",
            "tier",
            "updated_at",
        ];
        self.table(rows.select(&columns.map(str::to_owned))?).await
    }

    fn end(&self, directory: &Path, watermark: &Value) -> Result<()> {
        let watermark = watermark
            .as_str()
            .unwrap_or_default()
            .replace(".000000", "");
        let local =
            match self.context.local_is_named && std::env::var_os("TIDEGATE_LOCAL").is_none() {
                true => format!(" --local {}", self.context.local.display()),
                false => String::new(),
            };
        let again = directory.join("day-2.jsonl");
        self.print(&format!(
            "Watermark: {watermark}, the greatest updated_at; an extraction goes on from there.\n\n\
             The table is a plain Delta table in {}. Try next:\n\
             \x20 tidegate read {TABLE} --order --where \"tier = 'Gold'\"{local}\n\
             \x20 tidegate read {TABLE} --version 1 --order{local}\n\
             \x20 tidegate changes {TABLE} --from 2{local}\n\
             \x20 tidegate apply {TABLE} {} --force{local}    # again: nothing changes\n\
             \x20 tidegate table describe {TABLE}{local}\n",
            self.context.local.join("lake").join(TABLE).display(),
            again.display()
        ))
    }

    async fn table(&self, mut rows: Rows) -> Result<()> {
        let output = self.context.output();
        let mut writer = row_writer(OutputFormat::Table, rows.schema(), output)?;
        while let Some(batch) = rows.next_batch().await? {
            writer.write(&batch)?;
        }
        writer.finish()?;
        self.print("\n")
    }

    fn print(&self, text: &str) -> Result<()> {
        let mut output = self.context.output();
        output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush())
            .map_err(|e| Error::io("output", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spec_is_a_spec_and_every_event_is_a_customer() {
        let spec = TableSpec::from_yaml(SPEC).unwrap();
        assert_eq!(spec.name, TABLE);
        let columns = spec.schema.unwrap();
        for line in DAYS.iter().flat_map(|(_, text)| text.lines()) {
            let event: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
            assert!(
                columns
                    .iter()
                    .all(|column| event.contains_key(&column.name))
            );
        }
    }
}

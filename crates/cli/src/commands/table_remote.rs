//! `tidegate table …` against a cluster: the same answers, from its nodes.

use tidegate_change::spec::ResolvedSpec;
use tidegate_change::{BatchId, Error, Result};
use tidegate_client::{Client, json_from, timestamp_ms, v1, version_from};
use tidegate_server::{TableDescription, TableListing};

use super::{
    HISTORY_COLUMNS, Noun, Standing, VersionLine, confirm_drop, read_spec_text, timestamp,
};
use crate::context::Context;
use crate::render;

/// Entries that are asked for at one time.
const PAGE_SIZE: u32 = 500;

pub(super) async fn run(context: &Context, client: &Client, noun: Noun) -> Result<()> {
    let standing = match noun {
        Noun::Create(arguments) => {
            let (_, text) = read_spec_text(&arguments.file)?;
            let (table, version) = client.create_table(&text).await?;
            Standing { table, version }
        }
        Noun::Alter(arguments) => {
            let (_, text) = read_spec_text(&arguments.file)?;
            let version = client.alter_table(&arguments.table, &text).await?;
            let table = arguments.table;
            Standing { table, version }
        }
        Noun::Adopt(arguments) => {
            let name = arguments.name.as_deref();
            let (table, version) = client.adopt_table(&arguments.location, name).await?;
            Standing { table, version }
        }
        Noun::Drop(arguments) => {
            confirm_drop(&arguments)?;
            client
                .drop_table(&arguments.table, arguments.keep_files)
                .await?;
            context.say(&format!("dropped {}", arguments.table));
            return Ok(());
        }
        Noun::List => {
            let tables = list(client).await?;
            return render::objects(context, &tables, &["name", "location", "version"]);
        }
        Noun::Describe(arguments) => {
            let table = client.describe_table(&arguments.table).await?;
            return render::object(context, &description(table)?);
        }
        Noun::History(arguments) => {
            let limit = arguments.limit.unwrap_or(usize::MAX);
            let lines = history(client, &arguments.table, limit).await?;
            return render::objects(context, &lines, &HISTORY_COLUMNS);
        }
    };
    render::object(context, &standing)
}

async fn list(client: &Client) -> Result<Vec<TableListing>> {
    let (mut tables, mut token) = (Vec::new(), String::new());
    loop {
        let page = client.list_tables(PAGE_SIZE, &token).await?;
        for table in page.tables {
            tables.push(TableListing {
                name: table.name,
                location: table.location,
                version: version_from(table.version)?,
            });
        }
        token = page.next_page_token;
        if token.is_empty() {
            return Ok(tables);
        }
    }
}

async fn history(client: &Client, table: &str, limit: usize) -> Result<Vec<VersionLine>> {
    let (mut lines, mut token) = (Vec::new(), String::new());
    while lines.len() < limit {
        let rest = u32::try_from(limit - lines.len()).unwrap_or(PAGE_SIZE);
        let size = rest.min(PAGE_SIZE);
        let page = client.list_table_history(table, size, &token).await?;
        for version in page.versions {
            lines.push(version_line(version)?);
        }
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    Ok(lines)
}

fn version_line(version: v1::TableVersion) -> Result<VersionLine> {
    let committed_ms = version.committed_at.as_ref().map_or(0, timestamp_ms);
    Ok(VersionLine {
        version: version_from(version.version)?,
        timestamp: timestamp(committed_ms),
        operation: version.operation,
        batch_id: version.batch_id.map(BatchId),
        watermark: json_from("watermark", &version.watermark)?,
        inserted: version.inserted,
        updated: version.updated,
        deleted: version.deleted,
        files_added: version.files_added,
        files_removed: version.files_removed,
        bytes_written: version.bytes_written,
    })
}

fn description(table: v1::Table) -> Result<TableDescription> {
    let spec: ResolvedSpec = serde_json::from_str(&table.spec)
        .map_err(|e| Error::internal("a spec cannot be read").with_source(e))?;
    Ok(TableDescription {
        name: table.name,
        id: table.id,
        location: table.location,
        version: version_from(table.version)?,
        watermark: json_from("watermark", &table.watermark)?,
        rows: table.rows_count,
        files: table.files_count,
        bytes: table.bytes,
        spec,
    })
}

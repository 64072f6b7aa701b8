//! `tidegate table …`

use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;
use tidegate_change::text::time::write_timestamp;
use tidegate_change::{BatchId, Code, Error, Result, TableSpec, TableVersion};
use tidegate_server::HistoryLine;

use crate::context::Context;
use crate::render;

#[path = "table_remote.rs"]
mod remote;

/// What can be done with tables.
#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// Create a table from a spec.
    Create(CreateArguments),
    /// List the tables.
    List,
    /// Show what a table is: version, watermark, size, spec.
    Describe(NameArguments),
    /// Give a table a whole new spec.
    Alter(AlterArguments),
    /// Drop a table and its files.
    Drop(DropArguments),
    /// Show the versions of a table, the newest first.
    History(HistoryArguments),
    /// Go on with a table that lies in the lake and is not known, by what the table itself holds.
    Adopt(AdoptArguments),
}

/// Arguments of `create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// The spec, YAML or JSON; - is standard input.
    #[arg(short, long, value_name = "SPEC")]
    file: PathBuf,
}

/// Arguments of commands that take a table.
#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// The table.
    table: String,
}

/// Arguments of `alter`.
#[derive(Debug, Args)]
pub(crate) struct AlterArguments {
    /// The table.
    table: String,
    /// The new spec, YAML or JSON; - is standard input.
    #[arg(short, long, value_name = "SPEC")]
    file: PathBuf,
}

/// Arguments of `drop`.
#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    /// The table.
    table: String,
    /// Leave the files where they are, so that the table can be adopted again.
    #[arg(long)]
    keep_files: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// The table.
    table: String,
    /// Versions at most.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Arguments of `adopt`.
#[derive(Debug, Args)]
pub(crate) struct AdoptArguments {
    /// Where the table lies: its directory, or its place in the lake.
    location: String,
    /// Another name for it than its spec says.
    #[arg(long)]
    name: Option<String>,
}

/// What a change of a table answers.
#[derive(Debug, Serialize)]
struct Standing {
    table: String,
    version: TableVersion,
}

/// A version in a history.
#[derive(Debug, Serialize)]
struct VersionLine {
    version: TableVersion,
    timestamp: String,
    operation: String,
    batch_id: Option<BatchId>,
    watermark: Value,
    inserted: Option<u64>,
    updated: Option<u64>,
    deleted: Option<u64>,
    files_added: Option<u64>,
    files_removed: Option<u64>,
    bytes_written: Option<u64>,
}

impl VersionLine {
    fn of(line: HistoryLine) -> Self {
        Self {
            version: line.version,
            timestamp: timestamp(line.timestamp_ms),
            operation: line.operation,
            batch_id: line.batch_id,
            watermark: line.watermark,
            inserted: line.inserted,
            updated: line.updated,
            deleted: line.deleted,
            files_added: line.files_added,
            files_removed: line.files_removed,
            bytes_written: line.bytes_written,
        }
    }
}

fn timestamp(ms: i64) -> String {
    let mut text = Vec::new();
    write_timestamp(ms.saturating_mul(1000), true, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Columns of `history`, also of an empty one.
const HISTORY_COLUMNS: [&str; 11] = [
    "version",
    "timestamp",
    "operation",
    "batch_id",
    "watermark",
    "inserted",
    "updated",
    "deleted",
    "files_added",
    "files_removed",
    "bytes_written",
];

pub(crate) async fn run(context: &Context, noun: Noun) -> Result<()> {
    if let Some(client) = context.cluster() {
        return remote::run(context, client, noun).await;
    }
    match noun {
        Noun::Create(arguments) => create(context, &arguments).await,
        Noun::List => {
            let tables = context.reader()?.list().await?;
            render::objects(context, &tables, &["name", "location", "version"])
        }
        Noun::Describe(arguments) => {
            let description = context.reader()?.describe(&arguments.table).await?;
            render::object(context, &description)
        }
        Noun::Alter(arguments) => alter(context, arguments).await,
        Noun::Drop(arguments) => drop_table(context, &arguments).await,
        Noun::History(arguments) => {
            let reader = context.reader()?;
            let lines = reader.history(&arguments.table, arguments.limit).await?;
            let lines: Vec<VersionLine> = lines.into_iter().map(VersionLine::of).collect();
            render::objects(context, &lines, &HISTORY_COLUMNS)
        }
        Noun::Adopt(arguments) => {
            let embedded = context.writer().await?;
            let table = embedded
                .adopt(
                    &seen_from_here(&arguments.location)?,
                    arguments.name.as_deref(),
                )
                .await?;
            let version = embedded.reader().snapshot(&table, None).await?.version;
            render::object(context, &Standing { table, version })
        }
    }
}

async fn create(context: &Context, arguments: &CreateArguments) -> Result<()> {
    let spec = read_spec(&arguments.file)?;
    let table = spec.name.clone();
    let version = context.writer().await?.create_table(spec).await?;
    render::object(context, &Standing { table, version })
}

async fn alter(context: &Context, arguments: AlterArguments) -> Result<()> {
    let spec = read_spec(&arguments.file)?;
    let version = context
        .writer()
        .await?
        .alter_table(&arguments.table, spec)
        .await?;
    render::object(
        context,
        &Standing {
            table: arguments.table,
            version,
        },
    )
}

/// A location as the lake takes it: a directory that is there, seen from here, by its whole path.
fn seen_from_here(location: &str) -> Result<String> {
    if !Path::new(location).is_dir() {
        return Ok(location.to_owned());
    }
    let whole = std::path::absolute(location).map_err(|e| Error::io(location, e))?;
    Ok(whole.display().to_string())
}

async fn drop_table(context: &Context, arguments: &DropArguments) -> Result<()> {
    confirm_drop(arguments)?;
    let embedded = context.writer().await?;
    embedded
        .drop_table(&arguments.table, arguments.keep_files)
        .await?;
    context.say(&format!("dropped {}", arguments.table));
    Ok(())
}

/// Asks before files are lost; where nobody can be asked, `--yes` must say it.
fn confirm_drop(arguments: &DropArguments) -> Result<()> {
    if arguments.yes || arguments.keep_files {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let message = format!(
            "table {}: a drop deletes its files, and nobody can be asked",
            arguments.table
        );
        return Err(Error::new(Code::InvalidArgument, message).with_hint("say --yes"));
    }
    let question = format!(
        "Drop table {} and delete its files? [y/N] ",
        arguments.table
    );
    match confirmed(&question)? {
        true => Ok(()),
        false => Err(Error::new(Code::InvalidArgument, "drop was not confirmed")),
    }
}

fn confirmed(question: &str) -> Result<bool> {
    let failed = |e| Error::io("terminal", e);
    let mut stderr = std::io::stderr().lock();
    stderr
        .write_all(question.as_bytes())
        .and_then(|()| stderr.flush())
        .map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(failed)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

/// Reads a spec; errors name the file.
fn read_spec(file: &Path) -> Result<TableSpec> {
    read_spec_text(file).map(|(spec, _)| spec)
}

/// Reads a spec and gives back its text too.
fn read_spec_text(file: &Path) -> Result<(TableSpec, String)> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => Error::new(
            Code::InvalidSpec,
            format!("spec {}: no UTF-8 text", file.display()),
        ),
        _ => Error::new(
            Code::InvalidArgument,
            format!("spec {}: cannot be read", file.display()),
        )
        .with_source(error),
    })?;
    let spec = TableSpec::from_yaml(&text)
        .map_err(|error| error.context(format!("spec {}", file.display())))?;
    Ok((spec, text))
}

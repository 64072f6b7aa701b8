//! `tidegate apply`

use clap::Args;
use tidegate_change::{Code, Error, Result};
use tidegate_server::{ApplyOptions, FileFormat, SourceArgument};

use crate::context::Context;
use crate::progress::BatchBars;
use crate::render;

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The table.
    pub(crate) table: String,
    /// Files or directories with events; - is standard input. All of one call are one batch.
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<String>,
    /// Id of the batch; by default it is derived from the content, so that the same events apply once.
    #[arg(long, value_name = "ID")]
    pub(crate) batch_id: Option<String>,
    /// Kind of the files; by default it is told by content and name.
    #[arg(long, value_name = "FORMAT", value_parser = ["jsonl", "csv", "parquet", "avro"])]
    pub(crate) format: Option<String>,
    /// Apply again what was applied already.
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what would happen, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The sources are a whole snapshot of the table (not in this build).
    #[arg(long)]
    pub(crate) snapshot: bool,
    /// Version of the snapshot (not in this build).
    #[arg(long, value_name = "V", requires = "snapshot")]
    pub(crate) snapshot_version: Option<String>,
    /// Position of the snapshot in the stream (not in this build).
    #[arg(
        long,
        value_name = "P",
        requires = "snapshot",
        conflicts_with = "snapshot_version"
    )]
    pub(crate) snapshot_position: Option<String>,
}

pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<()> {
    if arguments.snapshot {
        return Err(Error::new(
            Code::Unsupported,
            "--snapshot: this build does not have it",
        ));
    }
    let sources: Vec<SourceArgument> = arguments
        .sources
        .iter()
        .map(|text| SourceArgument::parse(text))
        .collect();
    let options = ApplyOptions {
        batch_id: arguments.batch_id,
        format: arguments
            .format
            .as_deref()
            .map(FileFormat::from_word)
            .transpose()?,
        force: arguments.force,
        dry_run: arguments.dry_run,
        observer: None,
    };
    let embedded = context.writer().await?;
    let bars = BatchBars::start(context, &arguments.table);
    let options = ApplyOptions {
        observer: bars.observer(),
        ..options
    };
    let applied = embedded.apply(&arguments.table, &sources, &options).await;
    bars.finish();
    let result = applied?;
    render::object(context, &result)
}

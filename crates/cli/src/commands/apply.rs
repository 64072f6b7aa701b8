//! `tidegate apply`

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use tidegate_change::{BatchResult, Code, Error, Result};
use tidegate_client::{Client, SentFile, SentInput, SubmitOptions, result_from, v1};
use tidegate_server::config::Span;
use tidegate_server::{ApplyOptions, FileFormat, SourceArgument, local_files};

use super::batch;
use crate::context::Context;
use crate::progress::BatchBars;
use crate::render;

/// Times that a batch is submitted again because the node that ran it is gone.
const RESUBMISSIONS_MAX: u32 = 5;

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
    /// Answer as soon as the cluster has taken the batch.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) no_wait: bool,
    /// Wait that long for the cluster at most, 30s or 5m; the batch goes on.
    #[arg(long, value_name = "SPAN", conflicts_with = "no_wait", value_parser = span)]
    pub(crate) timeout: Option<Duration>,
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
    if let Some(client) = context.cluster() {
        return remote(context, client, arguments).await;
    }
    if arguments.no_wait || arguments.timeout.is_some() {
        context.require_cluster("--no-wait and --timeout")?;
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
    let before = embedded.newest_version(&arguments.table).await?;
    let bars = BatchBars::start(context, &arguments.table);
    let options = ApplyOptions {
        observer: bars.observer(),
        ..options
    };
    let applied = embedded.apply(&arguments.table, &sources, &options).await;
    bars.finish();
    let result = applied?;
    if options.dry_run {
        context.say("dry run: nothing is applied");
    } else if Some(result.version) <= before {
        context.say(&format!("already applied, as version {}", result.version));
    }
    render::object(context, &result)
}

/// A span of time as the command line writes it.
pub(crate) fn span(text: &str) -> std::result::Result<Duration, String> {
    match Span::parse(text) {
        Some(span) => Ok(span.duration()),
        None => Err("a span is a number with ms, s, m, h, d or w".to_owned()),
    }
}

async fn remote(context: &Context, client: &Client, arguments: Arguments) -> Result<()> {
    let table = &arguments.table;
    if let Some(word) = &arguments.format {
        FileFormat::from_word(word)?;
    }
    let options = SubmitOptions {
        batch_id: arguments.batch_id.clone(),
        format: arguments.format.clone(),
        offsets: BTreeMap::new(),
        force: arguments.force,
        dry_run: arguments.dry_run,
    };
    let bars = BatchBars::start(context, table);
    let mut tries = Resubmission::of(&arguments, options);
    let outcome = loop {
        let error = match one_try(client, &arguments, &mut tries, &bars).await {
            Ok(ended) => break Ok(ended),
            Err(error) => error,
        };
        if !tries.may_go_on(&error) {
            break Err(error);
        }
        context.say(&format!("batch is submitted again: {error}"));
    };
    bars.finish();
    match outcome? {
        Ended::Runs(batch_id) => {
            render::object(context, &batch::Standing::running(table, &batch_id))
        }
        Ended::Done(result) => render::object(context, &*result),
    }
}

/// What the command has to tell in the end.
enum Ended {
    /// The batch runs under this id, and nobody waits for it.
    Runs(String),
    /// The batch, or its dry run, is done.
    Done(Box<BatchResult>),
}

/// A batch that is submitted again under its id when the node that ran it is gone.
struct Resubmission {
    options: SubmitOptions,
    tries_left: u32,
    is_taken: bool,
}

impl Resubmission {
    fn of(arguments: &Arguments, options: SubmitOptions) -> Self {
        // What came by standard input is gone.
        let is_stream = arguments.sources.iter().any(|source| source == "-");
        Self {
            options,
            tries_left: if is_stream { 0 } else { RESUBMISSIONS_MAX },
            is_taken: false,
        }
    }

    /// From now on the batch has this id, so that submitting it again is the same batch.
    fn take(&mut self, batch_id: &str) {
        self.is_taken = true;
        self.options.batch_id = Some(batch_id.to_owned());
        self.options.force = false;
    }

    /// Whether the failure only says that whoever ran the batch is gone.
    fn may_go_on(&mut self, error: &Error) -> bool {
        let is_lost = matches!(
            error.code(),
            Code::NotFound
                | Code::Unavailable
                | Code::OutcomeUnknown
                | Code::NotLeader
                | Code::Fenced
        );
        if !is_lost || !self.is_taken || self.tries_left == 0 {
            return false;
        }
        self.tries_left -= 1;
        true
    }
}

async fn one_try(
    client: &Client,
    arguments: &Arguments,
    tries: &mut Resubmission,
    bars: &BatchBars,
) -> Result<Ended> {
    let batch_id = match take(client, arguments, &tries.options).await? {
        Taken::Counted(result) => return Ok(Ended::Done(result)),
        Taken::Runs(batch_id) => batch_id,
    };
    if arguments.no_wait {
        return Ok(Ended::Runs(batch_id));
    }
    tries.take(&batch_id);
    let told = |progress: &v1::BatchProgress| bars.show(progress);
    let (table, limit) = (&arguments.table, arguments.timeout);
    let result = match tries.tries_left {
        0 => client.wait_for_batch(table, &batch_id, limit, told).await,
        _ => client.follow_batch(table, &batch_id, limit, told).await,
    };
    Ok(Ended::Done(Box::new(result?)))
}

/// What the cluster made of a batch.
enum Taken {
    /// It runs under this id.
    Runs(String),
    /// It was a dry run.
    Counted(Box<BatchResult>),
}

/// Sends local files up; addresses are opened by the nodes.
async fn take(client: &Client, arguments: &Arguments, options: &SubmitOptions) -> Result<Taken> {
    let table = &arguments.table;
    let is_address = |source: &String| source.contains("://");
    if arguments.sources.iter().all(is_address) {
        let batch = client.submit(table, &arguments.sources, options).await?;
        if !options.dry_run {
            return Ok(Taken::Runs(batch.batch_id));
        }
        let result = batch
            .result
            .ok_or_else(|| Error::internal("a dry run without a result"))?;
        let result = result_from(table, &batch.batch_id, result)?;
        return Ok(Taken::Counted(Box::new(result)));
    }
    if arguments.sources.iter().any(is_address) {
        let message = "local paths and addresses cannot be one batch";
        return Err(Error::new(Code::InvalidArgument, message));
    }
    let sources: Vec<SourceArgument> = arguments
        .sources
        .iter()
        .map(|text| SourceArgument::parse(text))
        .collect();
    let files = local_files(&sources)?.into_iter().map(|file| SentFile {
        name: file.name,
        input: match file.path {
            Some(path) => SentInput::Path(path),
            None => SentInput::Stream(Box::new(std::io::stdin())),
        },
    });
    let files: Vec<SentFile> = files.collect();
    if options.dry_run {
        let result = client.send_dry_run(table, files, options).await?;
        return Ok(Taken::Counted(Box::new(result)));
    }
    Ok(Taken::Runs(client.send(table, files, options).await?))
}

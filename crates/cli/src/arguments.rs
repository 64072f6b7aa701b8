//! What the command line takes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate_query::output::OutputFormat;
use tidegate_server::config::Bytes;

use crate::commands::{
    apply, batch, changes, cluster, completions, config, demo, read, rejects, serve, table,
};

/// Keeps lakehouse tables equal to their sources by applying change events.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Start with `tidegate demo`."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct GlobalOptions {
    /// Directory of the local lake; its tables lie below DIR/lake.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "TIDEGATE_LOCAL",
        help_heading = "Global options"
    )]
    pub(crate) local: Option<PathBuf>,
    /// Root of the tables where they do not lie below DIR/lake: an address, s3://BUCKET/PREFIX, gs:// or az://,
    /// which the directory remembers, or another directory; all nodes of a cluster share it.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TIDEGATE_LAKE",
        help_heading = "Global options"
    )]
    pub(crate) lake: Option<String>,
    /// Any node of a cluster to talk to, http://HOST:PORT, instead of a local directory.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TIDEGATE_ENDPOINT",
        help_heading = "Global options"
    )]
    pub(crate) endpoint: Option<String>,
    /// Authority that the certificates of https nodes come from, a PEM file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TIDEGATE_AUTHORITY",
        hide_short_help = true,
        help_heading = "Global options"
    )]
    pub(crate) authority: Option<PathBuf>,
    /// Certificate to show to https nodes, a PEM file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TIDEGATE_CLIENT_CERTIFICATE",
        hide_short_help = true,
        help_heading = "Global options"
    )]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Key of that certificate, a PEM file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TIDEGATE_CLIENT_KEY",
        hide_short_help = true,
        help_heading = "Global options"
    )]
    pub(crate) client_key: Option<PathBuf>,
    /// Form of the output.
    #[arg(short, long, global = true, value_enum, default_value_t = Form::Table, help_heading = "Global options")]
    pub(crate) output: Form,
    /// Print nothing but data and errors.
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Memory of a batch, as in 512MiB; what exceeds it goes to temporary files. By default a quarter of
    /// the machine's, at most 1GiB.
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        env = "TIDEGATE_MEMORY",
        value_parser = bytes,
        help_heading = "Global options"
    )]
    pub(crate) memory: Option<Bytes>,
    /// Wait while another process holds the directory, instead of failing.
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) wait_lock: bool,
}

fn bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).ok_or_else(|| "is no size such as 512MiB".to_owned())
}

/// Forms of output, as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Aligned columns, for people.
    Table,
    /// One JSON array or object.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// RFC 4180 with a header.
    Csv,
    /// A Parquet file.
    Parquet,
}

impl From<Form> for OutputFormat {
    fn from(form: Form) -> Self {
        match form {
            Form::Table => Self::Table,
            Form::Json => Self::Json,
            Form::Jsonl => Self::JsonLines,
            Form::Csv => Self::Csv,
            Form::Parquet => Self::Parquet,
        }
    }
}

/// The nouns and the short verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show how it works: two days of a customers table, end to end.
    Demo(demo::Arguments),
    /// Create, list, describe, alter and drop tables.
    #[command(subcommand)]
    Table(table::Noun),
    /// Apply change events to a table, as one batch.
    Apply(apply::Arguments),
    /// Print the rows of a table.
    Read(read::Arguments),
    /// Print the changes of a table.
    Changes(changes::Arguments),
    /// Print quarantined events with reason and position.
    Rejects(rejects::Arguments),
    /// Look at batches, wait for them, cancel them.
    #[command(subcommand)]
    Batch(batch::Noun),
    /// Run a node that serves its tables to others.
    Serve(serve::Arguments),
    /// Look at the nodes of a cluster and change them.
    #[command(subcommand)]
    Cluster(cluster::Noun),
    /// Show the configuration in effect.
    #[command(subcommand)]
    Config(config::Noun),
    /// Print completions for a shell.
    Completions(completions::Arguments),
    /// Commands that this build does not have.
    #[command(external_subcommand)]
    Later(Vec<OsString>),
}

/// What the user's input is, for the exit code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The input is configuration: a spec. A refusal is a usage error.
    Definition,
    /// The input is data, or a request about data.
    Data,
}

impl Command {
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::Table(table::Noun::Create(_) | table::Noun::Alter(_))
            | Self::Config(_)
            | Self::Serve(_)
            | Self::Later(_) => Role::Definition,
            _ => Role::Data,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parsed(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("tidegate").chain(words.iter().copied()))
    }

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for words in [
            ["--local", "d", "read", "t", "-o", "csv"],
            ["read", "t", "--output", "csv", "--local", "d"],
        ] {
            let cli = parsed(&words).unwrap();
            assert_eq!(cli.global.local, Some(PathBuf::from("d")));
            assert_eq!(cli.global.output, Form::Csv);
        }
    }

    #[test]
    fn versions_may_be_negative_so_that_the_refusal_names_the_rule() {
        let cli = parsed(&["changes", "t", "--from", "-1"]).unwrap();
        let Command::Changes(arguments) = cli.command else {
            panic!("not changes")
        };
        assert_eq!(arguments.from.as_deref(), Some("-1"));
    }

    #[test]
    fn a_batch_has_sources_and_its_columns_are_a_list() {
        assert!(parsed(&["apply", "t"]).is_err());
        let cli = parsed(&["apply", "t", "a.jsonl", "b", "--batch-id", "x", "--dry-run"]).unwrap();
        let Command::Apply(arguments) = cli.command else {
            panic!("not apply")
        };
        assert_eq!(arguments.sources, ["a.jsonl", "b"]);
        let cli = parsed(&["read", "t", "--columns", "a,b", "--columns", "c d"]).unwrap();
        let Command::Read(arguments) = cli.command else {
            panic!("not read")
        };
        assert_eq!(arguments.columns.unwrap(), ["a", "b", "c d"]);
    }

    #[test]
    fn a_refused_spec_is_a_usage_error_and_a_refused_batch_is_not() {
        let role = |words: &[&str]| parsed(words).unwrap().command.role();
        assert_eq!(role(&["table", "create", "-f", "s.yaml"]), Role::Definition);
        assert_eq!(
            role(&["table", "alter", "t", "-f", "s.yaml"]),
            Role::Definition
        );
        assert_eq!(role(&["apply", "t", "a"]), Role::Data);
        assert_eq!(role(&["cluster", "status"]), Role::Data);
        assert_eq!(role(&["serve", "--config", "x"]), Role::Definition);
    }
}

//! The command line of Tidegate: arguments, one file a noun in `commands`, and rendering.
//!
//! Data goes to standard output in the form of `--output`, talk to standard error. A failure prints
//! `error[CODE]: sentence`, one hint and the causes; `failure` holds the exit codes. Commands decide
//! nothing about tables: they read arguments, call `tidegate_server` or `tidegate_query` and print.

mod arguments;
mod commands;
mod context;
mod failure;
mod position;
mod progress;
mod render;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use tidegate_change::{Error, Result};

use crate::arguments::{Cli, Command, Role};
use crate::commands::serve::Served;
use crate::context::Context;

/// Runs one command and returns its exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    failure::tame_panics();
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    let context = match Context::new(&cli.global) {
        Ok(context) => context,
        Err(error) => return failure::report(&error, Role::Definition),
    };
    let role = cli.command.role();
    match dispatch(&context, cli.command) {
        Ok(Served::Stopped) => ExitCode::SUCCESS,
        Ok(Served::Failed(error)) => failure::report_failed_node(&error),
        Err(error) => failure::report(&error, role),
    }
}

fn dispatch(context: &Context, command: Command) -> Result<Served> {
    log_to_stderr(matches!(command, Command::Serve(_)));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("the threads of the process", e))?;
    let done = runtime.block_on(async {
        let done = match command {
            Command::Serve(arguments) => {
                return commands::serve::run(context, arguments).await;
            }
            Command::Demo(arguments) => commands::demo::run(context, &arguments).await,
            Command::Table(noun) => commands::table::run(context, noun).await,
            Command::Apply(arguments) => commands::apply::run(context, arguments).await,
            Command::Read(arguments) => commands::read::run(context, arguments).await,
            Command::Changes(arguments) => commands::changes::run(context, arguments).await,
            Command::Rejects(arguments) => commands::rejects::run(context, &arguments).await,
            Command::Batch(noun) => commands::batch::run(context, noun).await,
            Command::Cluster(noun) => commands::cluster::run(context, noun).await,
            Command::Config(noun) => commands::config::run(context, noun),
            Command::Completions(arguments) => commands::completions::run(context, &arguments),
            Command::Later(words) => commands::later(&words),
        };
        done.map(|()| Served::Stopped)
    });
    // What still runs, a batch that did not end in the drain say, ends with the process.
    runtime.shutdown_background();
    done
}

/// Logs are for the operator who asks for them: `TIDEGATE_LOG=debug`. A node tells of trouble unasked.
fn log_to_stderr(is_node: bool) {
    let filter = match std::env::var("TIDEGATE_LOG") {
        Ok(filter) => filter,
        // What openraft warns of while it elects a leader is its daily work.
        Err(_) if is_node => "warn,openraft=error".to_owned(),
        Err(_) => return,
    };
    let started = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .try_init();
    if started.is_err() {
        tracing::debug!("a log is set up already");
    }
}

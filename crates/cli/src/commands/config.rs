//! `tidegate config …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_change::{Error, Result};
use tidegate_client::Client;
use tidegate_server::{Config, OpenOptions};

use super::serve::{self, NodeOptions};
use crate::context::{CLOCK_VARIABLE, Context};
use crate::render;

/// What can be asked about the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// Show what is in effect, from file, environment, flags and defaults.
    Show(Arguments),
    /// Check a node's configuration.
    Validate(Arguments),
}

/// Arguments of both.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A node's configuration, YAML or JSON.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    node: NodeOptions,
}

/// The configuration in effect.
#[derive(Debug, Serialize)]
struct Effective {
    endpoint: Option<String>,
    local: String,
    lake: String,
    output: &'static str,
    wait_lock: bool,
    memory: u64,
    clock: Option<String>,
    node: Config,
}

pub(crate) fn run(context: &Context, noun: Noun) -> Result<()> {
    match noun {
        Noun::Show(arguments) => show(context, arguments),
        Noun::Validate(arguments) => {
            serve::load(context, arguments.config.as_ref(), arguments.node)?;
            context.say("the configuration is valid");
            Ok(())
        }
    }
}

fn show(context: &Context, arguments: Arguments) -> Result<()> {
    let local =
        std::path::absolute(&context.local).map_err(|e| Error::io(context.local.display(), e))?;
    let node = serve::load(context, arguments.config.as_ref(), arguments.node)?;
    let own = || local.join("lake").display().to_string();
    let lake = node.lake.clone().unwrap_or_else(own);
    let effective = Effective {
        endpoint: context.cluster().map(Client::address),
        local: local.display().to_string(),
        lake,
        output: context.format.word(),
        wait_lock: context.wait_lock,
        memory: context
            .memory
            .unwrap_or_else(|| OpenOptions::default().memory_bytes),
        clock: std::env::var(CLOCK_VARIABLE).ok(),
        node,
    };
    render::object(context, &effective)
}

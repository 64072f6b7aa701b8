//! `tidegate config …`

use clap::Subcommand;
use serde::Serialize;
use tidegate_change::{Error, Result};
use tidegate_server::OpenOptions;

use crate::context::{CLOCK_VARIABLE, Context};
use crate::render;

/// What can be asked about the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// Show what is in effect, from flags, environment and defaults.
    Show,
}

/// The configuration in effect.
#[derive(Debug, Serialize)]
struct Effective {
    local: String,
    lake: String,
    output: &'static str,
    wait_lock: bool,
    memory: u64,
    clock: Option<String>,
}

pub(crate) fn run(context: &Context, noun: &Noun) -> Result<()> {
    let Noun::Show = noun;
    let local =
        std::path::absolute(&context.local).map_err(|e| Error::io(context.local.display(), e))?;
    let effective = Effective {
        local: local.display().to_string(),
        lake: local.join("lake").display().to_string(),
        output: context.format.word(),
        wait_lock: context.wait_lock,
        memory: context
            .memory
            .unwrap_or_else(|| OpenOptions::default().memory_bytes),
        clock: std::env::var(CLOCK_VARIABLE).ok(),
    };
    render::object(context, &effective)
}

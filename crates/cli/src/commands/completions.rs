//! `tidegate completions`

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use tidegate_change::{Error, Result};

use crate::arguments::Cli;
use crate::context::Context;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    // The generator panics where its output fails, so it writes to memory.
    let mut script = Vec::new();
    generate(
        arguments.shell,
        &mut Cli::command(),
        "tidegate",
        &mut script,
    );
    let mut output = context.output();
    output
        .write_all(&script)
        .and_then(|()| output.flush())
        .map_err(|e| Error::io("output", e))
}

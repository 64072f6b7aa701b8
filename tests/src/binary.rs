//! Tidegate driven by its command line, as a user drives it.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Answer, EventFile, FeedRequest, Harness, Refusal};
use crate::workspace;

/// The binary on a directory that is removed with it, or against a node.
#[derive(Debug)]
pub struct Binary {
    scratch: TempDir,
    local: PathBuf,
    endpoint: Option<String>,
    /// Further variables of its environment.
    variables: Vec<(String, String)>,
    clock: Cell<Option<i64>>,
}

impl Binary {
    /// The binary on an empty directory.
    ///
    /// # Errors
    /// When the binary does not build or there is no room for the directory.
    pub fn new() -> anyhow::Result<Self> {
        workspace::binary()?;
        let scratch = tempfile::tempdir()?;
        let local = scratch.path().join("data");
        Ok(Self {
            scratch,
            local,
            endpoint: None,
            variables: Vec::new(),
            clock: Cell::new(None),
        })
    }

    /// The binary on an empty directory whose lake is in an object store.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn in_lake(address: &str, mut variables: Vec<(String, String)>) -> anyhow::Result<Self> {
        variables.push(("TIDEGATE_LAKE".to_owned(), address.to_owned()));
        Ok(Self {
            variables,
            ..Self::new()?
        })
    }

    /// The binary against a node.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn against(endpoint: &str) -> anyhow::Result<Self> {
        Ok(Self {
            endpoint: Some(endpoint.to_owned()),
            ..Self::new()?
        })
    }

    /// The binary on a directory that stays.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn at(local: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            local: local.to_owned(),
            ..Self::new()?
        })
    }

    /// The directory that `--local` names.
    #[must_use]
    pub fn local(&self) -> &Path {
        &self.local
    }

    /// Runs one command and returns what it prints to standard output.
    ///
    /// # Errors
    /// The refusal that it prints.
    pub fn run(&self, arguments: &[&str]) -> Answer<Vec<u8>> {
        let output = self.output(arguments)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(refusal(&String::from_utf8_lossy(&output.stderr)))
    }

    /// Runs one command and returns what it prints, and its exit code.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn output(&self, arguments: &[&str]) -> Answer<Output> {
        let mut command = self.command().map_err(Refusal::outside)?;
        command.args(arguments).output().map_err(Refusal::outside)
    }

    /// The binary with its directory or node, without a command.
    ///
    /// # Errors
    /// When the binary does not build.
    pub fn command(&self) -> anyhow::Result<Command> {
        let mut command = Command::new(workspace::binary()?);
        command.arg("--local").arg(&self.local);
        match &self.endpoint {
            Some(endpoint) => command.env("TIDEGATE_ENDPOINT", endpoint),
            None => command.env_remove("TIDEGATE_ENDPOINT"),
        };
        command.env_remove("TIDEGATE_LAKE");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        match self.clock.get() {
            Some(seconds) => command.env("TIDEGATE_CLOCK", seconds.to_string()),
            None => command.env_remove("TIDEGATE_CLOCK"),
        };
        Ok(command)
    }

    fn run_lines(&self, arguments: &[&str]) -> Answer<Vec<Value>> {
        let bytes = self.run(arguments)?;
        let text = String::from_utf8(bytes).map_err(Refusal::outside)?;
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(Refusal::outside))
            .collect()
    }

    fn written(&self, name: &str, bytes: &[u8]) -> Answer<String> {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, bytes).map_err(Refusal::outside)?;
        Ok(path.to_string_lossy().into_owned())
    }
}

/// The refusal in `error[CODE]: sentence`, or the whole text under an empty code.
fn refusal(text: &str) -> Refusal {
    for line in text.lines() {
        let parts = line
            .strip_prefix("error[")
            .and_then(|rest| rest.split_once("]: "));
        if let Some((code, message)) = parts {
            return Refusal {
                code: code.to_owned(),
                message: message.to_owned(),
            };
        }
    }
    Refusal {
        code: String::new(),
        message: text.trim().to_owned(),
    }
}

impl Harness for Binary {
    fn create(&self, spec: &str) -> Answer<()> {
        let file = self.written("spec.yaml", spec.as_bytes())?;
        self.run(&["table", "create", "-f", &file]).map(drop)
    }

    fn alter(&self, table: &str, spec: &str) -> Answer<()> {
        let file = self.written("spec.yaml", spec.as_bytes())?;
        self.run(&["table", "alter", table, "-f", &file]).map(drop)
    }

    fn apply(&self, table: &str, batch_id: &str, files: &[EventFile]) -> Answer<Value> {
        let mut arguments: Vec<String> = ["--quiet", "apply", table]
            .iter()
            .map(ToString::to_string)
            .collect();
        for file in files {
            arguments.push(self.written(&file.name, &file.bytes)?);
        }
        arguments.extend(["--batch-id", batch_id, "--output", "json"].map(String::from));
        let bytes = self.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        serde_json::from_slice(&bytes).map_err(Refusal::outside)
    }

    fn read(&self, table: &str, version: Option<i64>) -> Answer<Vec<Value>> {
        match version {
            None => self.run_lines(&["read", table, "-o", "jsonl"]),
            Some(version) => self.run_lines(&[
                "read",
                table,
                "--version",
                &version.to_string(),
                "-o",
                "jsonl",
            ]),
        }
    }

    fn changes(&self, table: &str, request: FeedRequest) -> Answer<Vec<Value>> {
        let mut arguments: Vec<String> = ["changes", table, "-o", "jsonl"]
            .iter()
            .map(ToString::to_string)
            .collect();
        let mut bound = |flag: &str, value: Option<i64>| {
            arguments.extend(value.map(|value| format!("--{flag}={value}")));
        };
        match request {
            FeedRequest::Range {
                from,
                to,
                allow_out_of_range,
            } => {
                bound("from", from);
                bound("to", to);
                arguments.extend(allow_out_of_range.then(|| "--allow-out-of-range".to_owned()));
            }
            FeedRequest::Stream { from, after } => {
                bound("from", from);
                bound("after", after);
                arguments.push("--stream".to_owned());
            }
        }
        self.run_lines(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn rejects(&self, table: &str) -> Answer<Vec<Value>> {
        self.run_lines(&["rejects", table, "-o", "jsonl"])
    }

    fn set_clock(&self, seconds: Option<i64>) {
        self.clock.set(seconds);
    }
}

//! Tidegate as a cluster's users see it: a node that runs, and the command line against it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_change::clock::Clock;
use tidegate_server::{Config, Node, OpenOptions};
use tokio::runtime::{Builder, Runtime};

use crate::binary::Binary;
use crate::embedded::SetClock;
use crate::harness::{Answer, EventFile, FeedRequest, Harness};

/// A node in this process, on a directory that is removed with it.
#[derive(Debug)]
pub struct Served {
    // Dropped in this order: the directory goes last.
    node: Option<Node>,
    runtime: Runtime,
    clock: Arc<SetClock>,
    scratch: TempDir,
}

impl Served {
    /// A node on an empty directory.
    ///
    /// # Errors
    /// When there is no room for the directory, or no port.
    pub fn start() -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let clock = Arc::new(SetClock::default());
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let mut config = Config {
            listen: "127.0.0.1:0".parse()?,
            data: scratch.path().join("data"),
            ..Config::default()
        };
        config.sources.directories = vec![scratch.path().to_owned()];
        let options = OpenOptions {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..OpenOptions::default()
        };
        let node = runtime.block_on(Node::start(config, options))?;
        Ok(Self {
            node: Some(node),
            runtime,
            clock,
            scratch,
        })
    }

    /// How the node is reached.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.node.as_ref().map_or("", Node::endpoint)
    }

    /// Where the node listens, `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        self.endpoint().trim_start_matches("http://").to_owned()
    }

    /// A directory whose files batches may name.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// The command line against the node.
    ///
    /// # Errors
    /// When the binary does not build.
    pub fn client(&self) -> anyhow::Result<ServedBinary<'_>> {
        Ok(ServedBinary {
            served: self,
            binary: Binary::against(self.endpoint())?,
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The node needs its runtime to end.
        let _inside = self.runtime.enter();
        self.node.take();
    }
}

/// The command line against a node whose clock the test sets.
#[derive(Debug)]
pub struct ServedBinary<'a> {
    served: &'a Served,
    binary: Binary,
}

impl ServedBinary<'_> {
    /// The binary.
    #[must_use]
    pub fn binary(&self) -> &Binary {
        &self.binary
    }
}

impl Harness for ServedBinary<'_> {
    fn create(&self, spec: &str) -> Answer<()> {
        self.binary.create(spec)
    }

    fn alter(&self, table: &str, spec: &str) -> Answer<()> {
        self.binary.alter(table, spec)
    }

    fn apply(&self, table: &str, batch_id: &str, files: &[EventFile]) -> Answer<Value> {
        self.binary.apply(table, batch_id, files)
    }

    fn read(&self, table: &str, version: Option<i64>) -> Answer<Vec<Value>> {
        self.binary.read(table, version)
    }

    fn changes(&self, table: &str, request: FeedRequest) -> Answer<Vec<Value>> {
        self.binary.changes(table, request)
    }

    fn rejects(&self, table: &str) -> Answer<Vec<Value>> {
        self.binary.rejects(table)
    }

    fn set_clock(&self, seconds: Option<i64>) {
        self.served.clock.set(seconds);
    }
}

/// A harness that keeps what it was answered, so that two can be compared.
#[derive(Debug)]
pub struct Recorded<H> {
    harness: H,
    answers: Mutex<Vec<String>>,
}

impl<H: Harness> Recorded<H> {
    /// Keeps the answers of a harness.
    pub fn new(harness: H) -> Self {
        Self {
            harness,
            answers: Mutex::default(),
        }
    }

    /// What was answered so far.
    #[must_use]
    pub fn answers(&self) -> Vec<String> {
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn keep<T: Clone + fmt::Debug>(&self, what: &str, answer: &Answer<T>) {
        // The library does not know the file that a spec was read from.
        let shown = answer.clone().map_err(|refusal| {
            let message = refusal.message.split_once(".yaml: ");
            let message = message.map_or(refusal.message.as_str(), |(_, rest)| rest);
            format!("{}: {message}", refusal.code)
        });
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(format!("{what}: {shown:?}"));
    }

    /// Rows without what the time decides; their order says nothing.
    fn keep_rows(&self, what: &str, answer: &Answer<Vec<Value>>) {
        let shown = answer.clone().map(|mut rows| {
            for row in &mut rows {
                if let Some(members) = row.as_object_mut() {
                    members.remove("_commit_timestamp");
                }
            }
            let mut rows: Vec<String> = rows.iter().map(Value::to_string).collect();
            rows.sort();
            rows
        });
        self.keep(what, &shown);
    }
}

/// Members of a result that the machine's speed and the length of names decide.
const INCIDENTAL: [&str; 2] = ["seconds", "bytes_written"];

impl<H: Harness> Harness for Recorded<H> {
    fn create(&self, spec: &str) -> Answer<()> {
        let answer = self.harness.create(spec);
        self.keep("create", &answer);
        answer
    }

    fn alter(&self, table: &str, spec: &str) -> Answer<()> {
        let answer = self.harness.alter(table, spec);
        self.keep("alter", &answer);
        answer
    }

    fn apply(&self, table: &str, batch_id: &str, files: &[EventFile]) -> Answer<Value> {
        let answer = self.harness.apply(table, batch_id, files);
        let shown = answer.clone().map(|mut result| {
            if let Some(members) = result.as_object_mut() {
                members.retain(|name, _| !INCIDENTAL.contains(&name.as_str()));
            }
            result
        });
        self.keep("apply", &shown);
        answer
    }

    fn read(&self, table: &str, version: Option<i64>) -> Answer<Vec<Value>> {
        let answer = self.harness.read(table, version);
        self.keep_rows("read", &answer);
        answer
    }

    fn changes(&self, table: &str, request: FeedRequest) -> Answer<Vec<Value>> {
        let answer = self.harness.changes(table, request);
        self.keep_rows("changes", &answer);
        answer
    }

    fn rejects(&self, table: &str) -> Answer<Vec<Value>> {
        let answer = self.harness.rejects(table);
        self.keep_rows("rejects", &answer);
        answer
    }

    fn set_clock(&self, seconds: Option<i64>) {
        self.harness.set_clock(seconds);
    }
}

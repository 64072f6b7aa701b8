//! A cluster of real processes on this machine, whose nodes a test may kill, pause and start again.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_change::clock::{Clock, SystemClock};

use crate::binary::Binary;
use crate::workspace;

/// How long a cluster may take to come to what is asked of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Ports below those that the system gives to outgoing connections, so that a node finds its own again.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A node's process.
#[derive(Debug)]
struct Process {
    endpoint: String,
    data: PathBuf,
    /// What it does; everything where it is not said.
    roles: Option<&'static str>,
    child: Option<Child>,
    /// Whether it was sent a `-STOP`, and no `-CONT` since.
    is_paused: bool,
}

/// A cluster of metadata nodes; all of it ends with this value.
#[derive(Debug)]
pub struct Cluster {
    processes: Vec<Process>,
    peers: Vec<String>,
    scratch: Arc<TempDir>,
}

impl Cluster {
    /// Starts so many metadata nodes and waits until all of them vote.
    ///
    /// # Errors
    /// When a node does not start, or they do not find each other.
    pub fn start(nodes_count: usize) -> Result<Self> {
        Self::start_of(nodes_count, None, 0)
    }

    /// Starts metadata nodes that do not work, and workers beside them, numbered behind them.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with_workers(nodes_count: usize, workers_count: usize) -> Result<Self> {
        let cluster = Self::start_of(nodes_count, Some("meta,coordinator"), workers_count)?;
        cluster.wait_for_workers(workers_count)?;
        Ok(cluster)
    }

    fn start_of(
        nodes_count: usize,
        roles: Option<&'static str>,
        workers_count: usize,
    ) -> Result<Self> {
        workspace::binary()?;
        // Syncs cost nothing there: what is tested is not the disk.
        let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        let scratch = Arc::new(scratch);
        let mut cluster = Self {
            processes: Vec::new(),
            peers: Vec::new(),
            scratch,
        };
        for number in 0..nodes_count {
            let endpoint = format!("http://127.0.0.1:{}", free_port()?);
            cluster.peers.push(endpoint.clone());
            cluster.processes.push(Process {
                endpoint,
                data: cluster.scratch.path().join(format!("node-{number}")),
                roles,
                child: None,
                is_paused: false,
            });
        }
        for number in nodes_count..nodes_count + workers_count {
            cluster.processes.push(Process {
                endpoint: format!("http://127.0.0.1:{}", free_port()?),
                data: cluster.scratch.path().join(format!("node-{number}")),
                roles: Some("worker"),
                child: None,
                is_paused: false,
            });
        }
        for number in 0..nodes_count + workers_count {
            cluster.launch(number)?;
        }
        cluster.wait_for_voters(nodes_count)?;
        Ok(cluster)
    }

    /// A directory whose files batches may name.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// How a node is reached.
    #[must_use]
    pub fn endpoint(&self, number: usize) -> &str {
        self.processes
            .get(number)
            .map_or("", |process| process.endpoint.as_str())
    }

    /// How all nodes are reached, this one first.
    #[must_use]
    pub fn endpoints_from(&self, number: usize) -> String {
        let count = self.processes.len();
        let turned = (0..count).map(|n| self.endpoint((n + number) % count.max(1)));
        turned.collect::<Vec<_>>().join(",")
    }

    /// The command line against a node.
    ///
    /// # Errors
    /// When the binary does not build.
    pub fn client(&self, number: usize) -> Result<Binary> {
        Binary::against(self.endpoint(number))
    }

    /// Starts a node that was ended, on the data that it had.
    ///
    /// # Errors
    /// When the process does not start.
    pub fn launch(&mut self, number: usize) -> Result<()> {
        let lake = self.scratch.path().join("lake");
        let log = self.log_of(number);
        let peers = self.peers.join(",");
        let sources = self.scratch.path().to_owned();
        // Batches of tests are small; where workers are there they go to all of them.
        let has_workers = self.processes.iter().any(|own| own.roles == Some("worker"));
        let spread = has_workers.then_some(("TIDEGATE_CLUSTER_BYTES_PER_WORKER", "1KiB"));
        let process = self.process(number)?;
        let address = process.endpoint.trim_start_matches("http://").to_owned();
        let told: File = OpenOptions::new().create(true).append(true).open(&log)?;
        let mut command = Command::new(workspace::binary()?);
        command
            .arg("--local")
            .arg(&process.data)
            .args(["serve", "--listen", &address, "--peers", &peers, "--lake"])
            .arg(&lake)
            .args(process.roles.iter().flat_map(|roles| ["--roles", roles]))
            .env_remove("TIDEGATE_ENDPOINT")
            .envs(spread)
            .env("TIDEGATE_SOURCES_DIRECTORIES", &sources)
            .stdin(Stdio::null())
            .stdout(told.try_clone()?)
            .stderr(told);
        process.child = Some(command.spawn()?);
        Ok(())
    }

    /// Ends a node as a crash would.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        let mut child = self
            .process(number)?
            .child
            .take()
            .context("it does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks a node to stop and returns its exit code.
    ///
    /// # Errors
    /// When it does not run.
    pub fn terminate(&mut self, number: usize) -> Result<Option<i32>> {
        self.signal(number, "-TERM")?;
        self.wait_for_end(number)
    }

    /// Waits until a node ends and returns its exit code.
    ///
    /// # Errors
    /// When it does not run, or does not end.
    pub fn wait_for_end(&mut self, number: usize) -> Result<Option<i32>> {
        let mut child = self
            .process(number)?
            .child
            .take()
            .context("it does not run")?;
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            if let Some(status) = child.try_wait()? {
                return Ok(status.code());
            }
            std::thread::sleep(LOOK);
        }
        child.kill()?;
        child.wait()?;
        bail!("node {number} does not end")
    }

    /// Sends a signal to a node, `-STOP` or `-CONT` say.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&mut self, number: usize, signal: &str) -> Result<()> {
        let process = self.process(number)?;
        let child = process.child.as_ref().context("it does not run")?;
        process.is_paused = signal == "-STOP";
        let mut kill = Command::new("kill");
        workspace::output_of(kill.args([signal, &child.id().to_string()])).map(drop)
    }

    /// Gives a node that was ended a new, empty directory.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn forget_data(&mut self, number: usize) -> Result<()> {
        let process = self.process(number)?;
        let mut name = process.data.clone().into_os_string();
        name.push("-again");
        process.data = name.into();
        Ok(())
    }

    /// Makes the nodes of another cluster peers of these, from their next start.
    ///
    /// # Errors
    /// When there are none.
    pub fn join(&mut self, other: &Self) -> Result<()> {
        self.peers.extend(other.peers.iter().cloned());
        for number in 0..self.processes.len() {
            self.launch(number)?;
        }
        Ok(())
    }

    /// What a node says of the cluster; none while it does not answer.
    #[must_use]
    pub fn status(&self, number: usize) -> Option<Value> {
        let client = self.client(number).ok()?;
        let printed = client.run(&["cluster", "status", "-o", "json"]).ok()?;
        serde_json::from_slice(&printed).ok()
    }

    /// The number of the node that leads.
    ///
    /// # Errors
    /// When nobody does for too long.
    pub fn leader(&self) -> Result<usize> {
        self.wait_for("a leader", |status| {
            let leader = status.get("leader_node_id")?.as_u64()?;
            let nodes = status.get("nodes")?.as_array()?;
            let found = nodes
                .iter()
                .find(|node| node.get("node_id").and_then(Value::as_u64) == Some(leader))?;
            let endpoint = found.get("endpoint")?.as_str()?.to_owned();
            let mut numbers = 0..self.processes.len();
            let number = numbers.find(|number| self.endpoint(*number) == endpoint)?;
            // What is told may be old.
            self.runs(number).then_some(number)
        })
    }

    /// The id that a node says it has.
    ///
    /// # Errors
    /// When it does not answer for too long.
    pub fn node_id(&self, number: usize) -> Result<u64> {
        self.wait_for("its id", |_| {
            let status = self.status(number)?;
            status.get("node_id")?.as_u64()
        })
    }

    /// Waits until so many nodes vote and live, and one of them leads.
    ///
    /// # Errors
    /// When it does not come to that; with what the nodes said.
    pub fn wait_for_voters(&self, voters_count: usize) -> Result<()> {
        self.wait_for("all voters", |status| {
            status.get("leader_node_id")?.as_u64()?;
            let nodes = status.get("nodes")?.as_array()?;
            let votes = |node: &&Value| {
                let roles = node.get("roles").and_then(Value::as_array);
                let is_voter = roles.is_some_and(|roles| roles.iter().any(|role| role == "voter"));
                is_voter && node.get("state").and_then(Value::as_str) == Some("live")
            };
            (nodes.iter().filter(votes).count() == voters_count).then_some(())
        })
    }

    /// The endpoints and the directory of this cluster, for another thread; its processes stay here.
    #[must_use]
    pub fn same_endpoints(&self) -> Self {
        let processes = self.processes.iter().map(|process| Process {
            endpoint: process.endpoint.clone(),
            data: process.data.clone(),
            roles: process.roles,
            child: None,
            is_paused: false,
        });
        Self {
            processes: processes.collect(),
            peers: self.peers.clone(),
            scratch: Arc::clone(&self.scratch),
        }
    }

    /// The id of a worker.
    ///
    /// # Errors
    /// When it is not placed.
    pub fn worker_id(&self, number: usize) -> Result<u64> {
        let endpoint = self.endpoint(number).to_owned();
        self.wait_for("a worker", |status| {
            let mut nodes = status.get("nodes")?.as_array()?.iter();
            let is_it = |node: &&Value| {
                node.get("endpoint").and_then(Value::as_str) == Some(endpoint.as_str())
            };
            nodes.find(is_it)?.get("node_id")?.as_u64()
        })
    }

    /// Waits until so many workers take work.
    ///
    /// # Errors
    /// When it does not come to that; with what the nodes said.
    pub fn wait_for_workers(&self, workers_count: usize) -> Result<()> {
        self.wait_for("workers", |status| {
            let nodes = status.get("nodes")?.as_array()?;
            let works = |node: &&Value| {
                let roles = node.get("roles").and_then(Value::as_array);
                let is_worker =
                    roles.is_some_and(|roles| roles.iter().any(|role| role == "worker"));
                is_worker && node.get("state").and_then(Value::as_str) == Some("live")
            };
            (nodes.iter().filter(works).count() == workers_count).then_some(())
        })
    }

    /// Greatest resident memory of a node so far, bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn memory_bytes_max(&mut self, number: usize) -> Result<u64> {
        let child = self.process(number)?.child.as_ref();
        let id = child.context("it does not run")?.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak
            .context("no peak")?
            .trim()
            .trim_end_matches("kB")
            .trim();
        Ok(peak.parse::<u64>()? << 10)
    }

    /// What all nodes said.
    #[must_use]
    pub fn logs(&self) -> String {
        let logs = (0..self.processes.len()).map(|number| {
            let text = std::fs::read_to_string(self.log_of(number)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(20).collect();
            let newest: Vec<&str> = lines.into_iter().rev().collect();
            format!("-- node {number}\n{}\n", newest.join("\n"))
        });
        logs.collect()
    }

    fn wait_for<T>(&self, what: &str, look: impl Fn(&Value) -> Option<T>) -> Result<T> {
        let started_ns = SystemClock.monotonic_ns();
        for turn in 0.. {
            if Duration::from_nanos(SystemClock.monotonic_ns() - started_ns) > PATIENCE {
                break;
            }
            let number = turn % self.processes.len().max(1);
            let found = self
                .runs(number)
                .then(|| self.status(number))
                .flatten()
                .and_then(|status| look(&status));
            if let Some(found) = found {
                return Ok(found);
            }
            std::thread::sleep(LOOK);
        }
        bail!("in vain: {what}\n{}", self.logs())
    }

    fn runs(&self, number: usize) -> bool {
        let process = self.processes.get(number);
        // One that is paused takes a question and does not answer.
        process.is_some_and(|process| process.child.is_some() && !process.is_paused)
    }

    fn log_of(&self, number: usize) -> PathBuf {
        self.scratch.path().join(format!("node-{number}.log"))
    }

    fn process(&mut self, number: usize) -> Result<&mut Process> {
        self.processes.get_mut(number).context("no such node")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            if let Some(child) = &mut process.child {
                // A process that ended already cannot be killed.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// A port that nobody listens on.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    // Tests of several processes begin at different places.
    let start = u16::try_from(std::process::id() % u32::from(span))?;
    for _ in 0..span {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (start.wrapping_mul(37).wrapping_add(n)) % span;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free")
}

/// Fails unless a command of the binary prints this code.
///
/// # Errors
/// When it succeeds, or prints another code.
pub fn require_refusal(binary: &Binary, arguments: &[&str], code: &str) -> Result<()> {
    match binary.run(arguments) {
        Ok(_) => bail!("{arguments:?} is not refused"),
        Err(refusal) => {
            ensure!(refusal.code == code, "{arguments:?}: {refusal:?}");
            Ok(())
        }
    }
}

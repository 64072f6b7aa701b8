//! `load-cluster`: drives a running cluster as schedulers would, and says what it came to.
//!
//! Each client takes its tables in turn: it sends a batch of events up, waits until the batch is acknowledged,
//! and sends the next. What fails is tried again under the same id at the next endpoint. At the end every table
//! is read and its history listed: each acknowledged batch must be in exactly one version, and the rows must be
//! those of a model that the clients kept beside. The report is text on standard output, and JSON and a page
//! with plots in a directory.

mod client;
mod model;
mod page;
mod processes;
mod report;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::client::Driver;
use crate::processes::Processes;
use crate::report::Report;

/// Drives a running cluster and reports throughput, latency and errors.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Addresses of nodes, `http://host:port`; clients start at different ones and go on to the next on failure.
    #[arg(long = "endpoint", required = true)]
    pub(crate) endpoints: Vec<String>,
    /// Tables.
    #[arg(long, default_value_t = 4)]
    pub(crate) tables: usize,
    /// Clients; each has its own tables.
    #[arg(long, default_value_t = 4)]
    pub(crate) clients: usize,
    /// Events of a batch.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) events: u64,
    /// Keys of a table.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) keys: u64,
    /// Key buckets of a table; by default what the cluster chooses.
    #[arg(long)]
    pub(crate) buckets: Option<u32>,
    /// Seconds of load.
    #[arg(long, default_value_t = 30)]
    pub(crate) seconds: u64,
    /// Batches of a client at most.
    #[arg(long)]
    pub(crate) batches: Option<u64>,
    /// Seconds for which a batch is tried before its outcome counts as unknown.
    #[arg(long, default_value_t = 60)]
    pub(crate) patience: u64,
    /// First part of the tables' names; a name that no earlier run used.
    #[arg(long, default_value = "load")]
    pub(crate) prefix: String,
    /// Ids of the cluster's processes, whose CPU time and memory are reported.
    #[arg(long = "pid")]
    pub(crate) pids: Vec<u32>,
    /// Directory of `report.json` and `report.html`.
    #[arg(long, default_value = "load-report")]
    pub(crate) out: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arc::new(Arguments::parse());
    ensure!(
        arguments.tables > 0 && arguments.clients > 0 && arguments.keys > 0,
        "tables, clients and keys must be above zero"
    );
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("{}", arguments.out.display()))?;
    let drivers = Driver::prepare(&arguments).await?;
    let before = Processes::read(&arguments.pids)?;
    let clock = client::Stopwatch::start();
    let mut running = Vec::new();
    for driver in drivers {
        running.push(tokio::spawn(driver.run(clock)));
    }
    let (mut drivers, mut records) = (Vec::new(), Vec::new());
    for run in running {
        let (driver, done) = run.await.context("a client panicked")??;
        drivers.push(driver);
        records.extend(done);
    }
    let elapsed = clock.elapsed();
    let used = Processes::read(&arguments.pids)?.since(&before)?;
    let mut report = Report::new(&arguments, &records, elapsed, used);
    for driver in &drivers {
        driver.check(&mut report).await?;
    }
    print!("{report}");
    report.write(&arguments.out)?;
    ensure!(report.acknowledged > 0, "no batch was acknowledged");
    ensure!(
        report.faults.is_empty(),
        "{} faults, the first: {}",
        report.faults.len(),
        report.faults.first().map_or("", String::as_str)
    );
    Ok(())
}

/// A duration in seconds.
pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

//! A client: sends batches, waits, tries again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;
use tidegate_client::{Client, ClientOptions, SentFile, SentInput, SubmitOptions};

use crate::Arguments;
use crate::report::{Outcome, Record, Report};
use crate::table::Table;

/// Pause before a batch is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// The time since a run began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A client with its tables.
#[derive(Debug)]
pub(crate) struct Driver {
    arguments: Arc<Arguments>,
    clients: Vec<Client>,
    /// Which of the clients is asked next.
    next: usize,
    tables: Vec<Table>,
    scratch: TempDir,
}

impl Driver {
    /// The drivers of a run; their tables are there.
    pub(crate) async fn prepare(arguments: &Arc<Arguments>) -> Result<Vec<Self>> {
        let clients = arguments
            .endpoints
            .iter()
            .map(|endpoint| {
                Client::new(ClientOptions {
                    // This driver tries again by itself, so that failures are seen and counted.
                    retry_for: Duration::ZERO,
                    deadline: Some(Duration::from_secs(10)),
                    ..ClientOptions::new(endpoint)
                })
            })
            .collect::<tidegate_change::Result<Vec<_>>>()?;
        let mut drivers = Vec::new();
        for number in 0..arguments.clients {
            drivers.push(Self {
                arguments: Arc::clone(arguments),
                clients: clients.clone(),
                next: number % clients.len(),
                tables: Vec::new(),
                scratch: tempfile::tempdir().context("a directory for batches")?,
            });
        }
        for number in 0..arguments.tables {
            let table = Table::new(arguments, number);
            let client = clients.first().context("no endpoint")?;
            client
                .create_table(&table.spec(arguments.buckets))
                .await
                .with_context(|| format!("table {}", table.name))?;
            let driver = number % drivers.len();
            if let Some(driver) = drivers.get_mut(driver) {
                driver.tables.push(table);
            }
        }
        Ok(drivers)
    }

    /// Sends batches until the time is over or all are sent.
    pub(crate) async fn run(mut self, clock: Stopwatch) -> Result<(Self, Vec<Record>)> {
        let end = Duration::from_secs(self.arguments.seconds);
        let mut records = Vec::new();
        let mut sent = 0;
        while !self.tables.is_empty()
            && clock.elapsed() < end
            && self.arguments.batches.is_none_or(|most| sent < most)
        {
            let number = usize::try_from(sent)? % self.tables.len();
            records.push(self.batch(number, clock).await?);
            sent += 1;
        }
        Ok((self, records))
    }

    /// One batch of a table, tried until it is acknowledged or patience is over.
    async fn batch(&mut self, number: usize, clock: Stopwatch) -> Result<Record> {
        let table = self.tables.get_mut(number).context("a table")?;
        let path = self.scratch.path().join(format!("{}.jsonl", table.name));
        let batch = table.next_batch(self.arguments.events);
        std::fs::write(&path, &batch.lines).with_context(|| format!("{}", path.display()))?;
        let name = table.name.clone();
        let begun = clock.elapsed();
        let patience = Duration::from_secs(self.arguments.patience);
        let mut errors = BTreeMap::new();
        loop {
            let client = self.clients.get(self.next).context("a client")?.clone();
            let tried = attempt(&client, &name, &batch.id, &path).await;
            let now = clock.elapsed();
            let (outcome, is_over) = match tried {
                Ok(version) => (Outcome::Acknowledged(version), true),
                Err(error) => {
                    *errors.entry(error.code().as_str()).or_insert(0) += 1;
                    (Outcome::Unknown, now.saturating_sub(begun) > patience)
                }
            };
            if is_over {
                let table = self.tables.get_mut(number).context("a table")?;
                table.note(batch, outcome);
                return Ok(Record {
                    begun,
                    ended: now,
                    events: self.arguments.events,
                    outcome,
                    errors,
                });
            }
            self.next = (self.next + 1) % self.clients.len();
            pause(PAUSE).await;
        }
    }

    /// Compares the tables with what was acknowledged.
    pub(crate) async fn check(&self, report: &mut Report) -> Result<()> {
        let client = Client::new(ClientOptions {
            retry_for: Duration::from_secs(self.arguments.patience),
            ..ClientOptions::new(self.arguments.endpoints.first().context("no endpoint")?)
        })?;
        for table in &self.tables {
            table.check(&client, report).await?;
        }
        Ok(())
    }
}

async fn attempt(
    client: &Client,
    table: &str,
    batch_id: &str,
    path: &std::path::Path,
) -> tidegate_change::Result<i64> {
    let options = SubmitOptions {
        batch_id: Some(batch_id.to_owned()),
        ..SubmitOptions::default()
    };
    let file = SentFile {
        name: "events.jsonl".to_owned(),
        input: SentInput::Path(path.to_owned()),
    };
    client.send(table, vec![file], &options).await?;
    let limit = Some(Duration::from_secs(30));
    let result = client
        .wait_for_batch(table, batch_id, limit, |_| {})
        .await?;
    Ok(i64::try_from(result.version.0).unwrap_or(i64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "a bench waits in real time")]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

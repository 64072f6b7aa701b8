//! Takes batches and runs them in turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_apply::{BatchObserver, BatchProgress};
use tidegate_change::{BatchId, BatchResult, Code, Error, Result};
use tidegate_cluster::metadata::TableId;
use tokio::sync::Semaphore;

use super::record::{BatchRecord, BatchStatus};
use super::records::{Records, Taken};
use crate::apply::{IdentifiedBatch, Submission};
use crate::config::Limits;
use crate::embedded::Embedded;
use crate::threads::WorkThreads;

/// The batches of a node. Clones are one and the same.
#[derive(Clone, Debug)]
pub(crate) struct Batches(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    embedded: Arc<Embedded>,
    threads: Arc<WorkThreads>,
    records: Records,
    /// One batch of a table at a time, in the order in which they came.
    queues: Mutex<BTreeMap<TableId, Arc<tokio::sync::Mutex<()>>>>,
    /// Batches of all tables that are executed at one time.
    turns: Semaphore,
    queued_max: usize,
}

impl Batches {
    pub(crate) fn new(embedded: Arc<Embedded>, threads: Arc<WorkThreads>, limits: &Limits) -> Self {
        Self(Arc::new(Inner {
            embedded,
            threads,
            records: Records::default(),
            queues: Mutex::default(),
            turns: Semaphore::new(limits.batches),
            queued_max: limits.batches_queued.saturating_add(limits.batches),
        }))
    }

    /// Takes a batch: starts it, joins the same one that runs, or answers with what the table holds.
    ///
    /// # Errors
    /// `BATCH_CONTENT_MISMATCH`, `RESOURCE_EXHAUSTED` when too many wait, `UNAVAILABLE` when the node stops, or
    /// what is wrong with the batch's options.
    pub(crate) async fn submit(&self, submission: Submission) -> Result<Arc<BatchRecord>> {
        let batch = self.0.embedded.identify(submission).await?;
        let request = &batch.request;
        let record = BatchRecord::new(
            (request.table.clone(), batch.table_id.clone()),
            (request.key.id.clone(), request.key.input_digest),
            request.cancellation.clone(),
        );
        let coordinator = &self.0.embedded.coordinator;
        if let Some(answer) = coordinator.answer_to(&request.table, &request.key).await? {
            record.set(BatchStatus::Succeeded(Arc::new(answer)));
            return Ok(Arc::new(record));
        }
        if self.0.turns.is_closed() {
            return Err(stopping());
        }
        match self.0.records.take(record, self.0.queued_max)? {
            Taken::Running(record) => Ok(record),
            Taken::New(record) => {
                self.start(Arc::clone(&record), batch);
                Ok(record)
            }
        }
    }

    /// Executes and counts a batch, and commits nothing.
    ///
    /// # Errors
    /// What refuses the batch.
    pub(crate) async fn dry_run(&self, submission: Submission) -> Result<BatchResult> {
        let batch = self.0.embedded.identify(submission).await?;
        let inner = Arc::clone(&self.0);
        self.0
            .threads
            .run(async move { inner.run(&batch).await })
            .await
    }

    /// A batch that this node remembers.
    pub(crate) fn get(&self, table: &TableId, batch: &BatchId) -> Option<Arc<BatchRecord>> {
        self.0.records.get(table, batch)
    }

    /// All batches that this node remembers, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<BatchRecord>> {
        self.0.records.all()
    }

    /// Takes no more batches and starts none that wait.
    pub(crate) fn close(&self) {
        self.0.turns.close();
    }

    /// Asks all batches that run to stop before they are prepared.
    pub(crate) fn cancel_all(&self) {
        for record in self.all() {
            if !record.status().is_final() {
                record.cancellation.cancel();
            }
        }
    }

    fn start(&self, record: Arc<BatchRecord>, mut batch: IdentifiedBatch) {
        let inner = Arc::clone(&self.0);
        batch.request.observer = Some(Arc::clone(&record) as Arc<dyn BatchObserver>);
        let runs = Arc::clone(&inner);
        let running = self.0.threads.spawn(async move { runs.run(&batch).await });
        // Not counted as work of its own: it only tells what the work came to.
        drop(self.0.threads.spawn(async move {
            let outcome = running.await.unwrap_or_else(|e| {
                Err(Error::internal("the work of a batch was dropped").with_source(e))
            });
            if let Err(error) = &outcome {
                tracing::info!(
                    table = record.table,
                    batch = %record.batch_id,
                    code = %error.code(),
                    "a batch ended without a version"
                );
            }
            let now_ms = inner.embedded.options.clock.now_ms();
            record.set(BatchStatus::of(outcome, now_ms));
            inner.records.end(&record);
            Ok(())
        }));
    }
}

impl Inner {
    async fn run(&self, batch: &IdentifiedBatch) -> Result<BatchResult> {
        let queue = self.queue_of(&batch.table_id);
        let waiting = async {
            let table = queue.lock().await;
            let turn = self.turns.acquire().await.map_err(|_| stopping())?;
            Ok((table, turn))
        };
        let _turn = batch.request.cancellation.guard(waiting).await?;
        if let Some(observer) = &batch.request.observer {
            observer.observe(BatchProgress::default());
        }
        self.embedded.run(batch).await
    }

    fn queue_of(&self, table: &TableId) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(queues.entry(table.clone()).or_default())
    }
}

fn stopping() -> Error {
    Error::new(
        Code::Unavailable,
        "the node stops and takes no more batches",
    )
}

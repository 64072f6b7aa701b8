//! Batches: submitted, waited for, listed, cancelled.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_change::{BatchResult, Code, Error, Result};
use tidegate_rpc::batch::result_from;
use tidegate_rpc::status::error_from;
use tidegate_rpc::v1;
use tidegate_rpc::v1::batch_service_client::BatchServiceClient;
use tonic::Streaming;

use crate::client::Client;
use crate::pause::within;
use crate::repeat::{Repeat, is_lost};

/// Watches of one batch that may break without a message between them.
const BROKEN_WATCHES_MAX: u32 = 5;

/// How a batch is submitted.
#[derive(Clone, Debug, Default)]
pub struct SubmitOptions {
    /// Idempotency key; derived from content and table without it.
    pub batch_id: Option<String>,
    /// jsonl, csv or parquet; told from content and name without it.
    pub format: Option<String>,
    /// First and next offset by `topic/partition`; the first is not checked where it is left out.
    pub offsets: BTreeMap<String, (Option<i64>, i64)>,
    /// Apply content once more that a batch with a derived id holds already.
    pub force: bool,
    /// Execute and count, but commit nothing.
    pub dry_run: bool,
}

/// A page of batches.
#[derive(Clone, Debug, Default)]
pub struct BatchPage {
    /// The batches, newest first.
    pub batches: Vec<v1::BatchSummary>,
    /// Where the next page begins; empty on the last.
    pub next_page_token: String,
}

impl Client {
    /// Submits files that the nodes open themselves; answers as soon as the batch is taken, a dry run when it
    /// is done.
    ///
    /// # Errors
    /// `BATCH_CONTENT_MISMATCH`, or what is wrong with the sources.
    pub async fn submit(
        &self,
        table: &str,
        addresses: &[String],
        options: &SubmitOptions,
    ) -> Result<v1::Batch> {
        let format = options.format.clone().unwrap_or_default();
        let message = v1::SubmitBatchRequest {
            table: table.to_owned(),
            batch_id: options.batch_id.clone().unwrap_or_default(),
            sources: addresses
                .iter()
                .map(|url| v1::Source {
                    url: url.clone(),
                    format: format.clone(),
                })
                .collect(),
            offsets: offsets_of(options),
            wait: false,
            dry_run: options.dry_run,
            force: options.force,
        };
        // By force the same call twice is two batches.
        let repeat = match options.force {
            true => Repeat::WhenNotDone,
            false => Repeat::Always,
        };
        let answer = self
            .call(repeat, |channel| {
                let message = message.clone();
                async move {
                    let mut service = BatchServiceClient::new(channel);
                    service.submit_batch(self.request(message)).await
                }
            })
            .await?;
        batch_in(answer.into_inner().batch)
    }

    /// How a batch stands.
    ///
    /// # Errors
    /// `NOT_FOUND` for a batch that no node remembers.
    pub async fn batch(&self, table: &str, batch_id: &str) -> Result<v1::Batch> {
        let answer = self
            .call(Repeat::Always, |channel| async move {
                let message = v1::GetBatchRequest {
                    table: table.to_owned(),
                    batch_id: batch_id.to_owned(),
                };
                let mut service = BatchServiceClient::new(channel);
                service.get_batch(self.request(message)).await
            })
            .await?;
        batch_in(answer.into_inner().batch)
    }

    /// Asks a batch to stop, and says how it stands then.
    ///
    /// # Errors
    /// `NOT_FOUND` for a batch that no node remembers.
    pub async fn cancel_batch(&self, table: &str, batch_id: &str) -> Result<v1::Batch> {
        let answer = self
            .call(Repeat::Always, |channel| async move {
                let message = v1::CancelBatchRequest {
                    table: table.to_owned(),
                    batch_id: batch_id.to_owned(),
                };
                let mut service = BatchServiceClient::new(channel);
                service.cancel_batch(self.request(message)).await
            })
            .await?;
        batch_in(answer.into_inner().batch)
    }

    /// A page of the batches of a table, or of all tables.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`.
    pub async fn list_batches(
        &self,
        table: Option<&str>,
        page_size: u32,
        page_token: &str,
    ) -> Result<BatchPage> {
        let answer = self
            .call(Repeat::Always, |channel| async move {
                let message = v1::ListBatchesRequest {
                    table: table.unwrap_or_default().to_owned(),
                    page_size,
                    page_token: page_token.to_owned(),
                };
                let mut service = BatchServiceClient::new(channel);
                service.list_batches(self.request(message)).await
            })
            .await?
            .into_inner();
        Ok(BatchPage {
            batches: answer.batches,
            next_page_token: answer.next_page_token,
        })
    }

    /// Waits for a batch; a connection that breaks meanwhile is opened again.
    ///
    /// # Errors
    /// What the batch failed with, `CANCELLED`, `TIMED_OUT` when it still runs after the limit, `NOT_FOUND`
    /// for a batch that no node remembers: it may be submitted again.
    pub async fn wait_for_batch(
        &self,
        table: &str,
        batch_id: &str,
        limit: Option<Duration>,
        told: impl FnMut(&v1::BatchProgress),
    ) -> Result<BatchResult> {
        let batch = (table, batch_id);
        self.wait(batch, limit, BROKEN_WATCHES_MAX, told).await
    }

    /// The same for whoever can submit the batch again: ends with `UNAVAILABLE` as soon as the connection to
    /// the node that runs it is lost. Another node takes it up sooner than it learns that this one is gone.
    ///
    /// # Errors
    /// As [`Self::wait_for_batch`].
    pub async fn follow_batch(
        &self,
        table: &str,
        batch_id: &str,
        limit: Option<Duration>,
        told: impl FnMut(&v1::BatchProgress),
    ) -> Result<BatchResult> {
        self.wait((table, batch_id), limit, 0, told).await
    }

    async fn wait(
        &self,
        (table, batch_id): (&str, &str),
        limit: Option<Duration>,
        broken_max: u32,
        mut told: impl FnMut(&v1::BatchProgress),
    ) -> Result<BatchResult> {
        let watch = self.watch((table, batch_id), broken_max, &mut told);
        let ended = within(limit, watch).await;
        let batch = ended.unwrap_or_else(|| {
            let message = format!("table {table}: batch {batch_id} still runs");
            Err(Error::new(Code::TimedOut, message)
                .with_hint("it goes on; `tidegate batch wait` waits for it"))
        })?;
        outcome_of(batch)
    }

    async fn watch(
        &self,
        (table, batch_id): (&str, &str),
        broken_max: u32,
        told: &mut impl FnMut(&v1::BatchProgress),
    ) -> Result<v1::Batch> {
        let mut broken_count = 0;
        loop {
            let mut messages = self.open_watch(table, batch_id).await?;
            loop {
                match messages.message().await {
                    Ok(Some(message)) => {
                        broken_count = 0;
                        let batch = batch_in(message.batch)?;
                        if batch.state() != v1::BatchState::Running {
                            return Ok(batch);
                        }
                        told(&batch.progress.unwrap_or_default());
                    }
                    // A stream that ends before the batch is as good as one that breaks.
                    Ok(None) => break,
                    Err(status)
                        if status.code() == tonic::Code::Unavailable || is_lost(&status) =>
                    {
                        broken_count += 1;
                        if broken_count > broken_max {
                            return Err(self.broken(&status));
                        }
                        break;
                    }
                    Err(status) => return Err(self.broken(&status)),
                }
            }
        }
    }

    async fn open_watch(
        &self,
        table: &str,
        batch_id: &str,
    ) -> Result<Streaming<v1::WatchBatchResponse>> {
        let answer = self.call(Repeat::Always, |channel| async move {
            let message = v1::WatchBatchRequest {
                table: table.to_owned(),
                batch_id: batch_id.to_owned(),
            };
            let mut service = BatchServiceClient::new(channel);
            service.watch_batch(self.request(message)).await
        });
        Ok(answer.await?.into_inner())
    }
}

/// What a batch that ended came to.
pub(crate) fn outcome_of(batch: v1::Batch) -> Result<BatchResult> {
    match (batch.state(), batch.result, batch.error) {
        (v1::BatchState::Succeeded, Some(result), _) => {
            result_from(&batch.table, &batch.batch_id, result)
        }
        (v1::BatchState::Failed, _, Some(error)) => Err(error_from(
            &error.code,
            &error.message,
            &error.hint,
            error.causes,
        )),
        (v1::BatchState::Cancelled, _, _) => {
            let message = format!(
                "table {}: batch {} was cancelled",
                batch.table, batch.batch_id
            );
            Err(Error::new(Code::Cancelled, message))
        }
        _ => Err(Error::internal("a batch ended without an outcome")),
    }
}

fn offsets_of(options: &SubmitOptions) -> BTreeMap<String, v1::OffsetRange> {
    options
        .offsets
        .iter()
        .map(|(partition, (from, to))| {
            let range = v1::OffsetRange {
                from: *from,
                to: *to,
            };
            (partition.clone(), range)
        })
        .collect()
}

fn batch_in(batch: Option<v1::Batch>) -> Result<v1::Batch> {
    batch.ok_or_else(|| Error::internal("an answer without a batch"))
}

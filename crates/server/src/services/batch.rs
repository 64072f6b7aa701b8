//! `BatchService`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tidegate_apply::{BatchPhase, BatchProgress};
use tidegate_change::{BatchId, BatchResult, Code, Error, Result};
use tidegate_cluster::metadata::{Attempt, NodeId, OffsetRange, TableState};
use tidegate_decode::FileFormat;
use tidegate_rpc::batch::{error_message, result_message};
use tidegate_rpc::status::{status_of, status_of_field};
use tidegate_rpc::v1;
use tidegate_rpc::v1::batch_service_client::BatchServiceClient;
use tidegate_rpc::v1::batch_service_server::BatchService;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::batch_list::list_batches;
use super::{Answers, deadline};
use crate::addresses::Places;
use crate::apply::{ApplyOptions, Submission};
use crate::batches::{BatchRecord, BatchStatus};
use crate::group::{Elsewhere, is_forwarded};
use crate::node::Serving;
use crate::source::SourceSet;

/// Time between two messages of a watch, at least; the end comes at once.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two looks at a batch that another node runs.
const AFAR_INTERVAL: Duration = Duration::from_millis(300);
/// How long a cancel waits for the batch to end.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// Batches over gRPC.
#[derive(Clone, Debug)]
pub(crate) struct BatchApi {
    serving: Serving,
}

/// A batch that is known somewhere.
enum Found {
    /// This node runs it, or ran it.
    Record(Arc<BatchRecord>),
    /// Its table holds it.
    Result(Box<BatchResult>),
    /// The replicated state knows that it is under way; with the way to the node that runs it, if there is
    /// one.
    Open(OpenBatch, Option<Channel>),
}

/// A batch of which only the replicated state is known.
#[derive(Clone, Debug)]
struct OpenBatch {
    table: String,
    batch_id: String,
    is_prepared: bool,
}

impl BatchApi {
    pub(crate) fn new(serving: Serving) -> Self {
        Self { serving }
    }

    /// Reads names and content of the sources and takes the batch.
    async fn take(&self, asked: v1::SubmitBatchRequest) -> Result<Submission> {
        let serving = self.serving.clone();
        let submission = self.serving.threads.run(async move {
            let addresses = asked
                .sources
                .iter()
                .map(|source| Ok((source.url.clone(), format_of(&source.format)?)))
                .collect::<Result<Vec<_>>>()?;
            let places = Places {
                sources: &serving.config.sources,
                stores: &serving.embedded.options.stores,
                spool: &serving.spool,
            };
            let sources = SourceSet::of_addresses(&addresses, &places).await?;
            let options = ApplyOptions {
                batch_id: Some(asked.batch_id).filter(|id| !id.is_empty()),
                format: None,
                force: asked.force,
                dry_run: asked.dry_run,
                observer: None,
            };
            let submission = Submission::of_files(&asked.table, sources, options)?;
            Ok(Submission {
                offsets: ranges(&asked.offsets),
                ..submission
            })
        });
        submission.await
    }

    async fn find(&self, table: &str, batch_id: &str, metadata: &MetadataMap) -> Result<Found> {
        let embedded = &self.serving.embedded;
        let (id, state) = embedded.coordinator.table_named(table).await?;
        let batch = BatchId(batch_id.to_owned());
        let record = self.serving.batches.get(&id, &batch);
        let is_lost = |record: &Arc<BatchRecord>| {
            matches!(
                record.status(),
                BatchStatus::Failed(..) | BatchStatus::Cancelled(_)
            )
        };
        // What failed here may have been applied elsewhere.
        if let Some(record) = record.as_ref().filter(|record| !is_lost(record)) {
            return Ok(Found::Record(Arc::clone(record)));
        }
        let result = embedded.coordinator.result_of(table, &batch).await?;
        if let Some(result) = result {
            return Ok(Found::Result(Box::new(result)));
        }
        if let Some((node, is_prepared)) = runner_of(&state, &batch, embedded.member().node()) {
            let open = OpenBatch {
                table: table.to_owned(),
                batch_id: batch_id.to_owned(),
                is_prepared,
            };
            let channel = match is_forwarded(metadata) {
                true => None,
                false => self.serving.elsewhere.node(node)?,
            };
            return Ok(Found::Open(open, channel));
        }
        match record {
            Some(record) => Ok(Found::Record(record)),
            None => {
                let message = format!("table {table}: batch {batch_id} is not known");
                Err(Error::new(Code::NotFound, message))
            }
        }
    }

    async fn submit(&self, asked: v1::SubmitBatchRequest) -> Result<Found> {
        // A table that is not there is told before its sources are read.
        let coordinator = &self.serving.embedded.coordinator;
        coordinator.table_named(&asked.table).await?;
        let submission = self.take(asked).await?;
        if submission.options.dry_run {
            let result = self.serving.batches.dry_run(submission).await?;
            return Ok(Found::Result(Box::new(result)));
        }
        let record = self.serving.batches.submit(submission).await?;
        Ok(Found::Record(record))
    }

    /// A batch of a node that does not answer, by what the replicated state says of it, until it ends.
    fn watched_from_afar(self, open: OpenBatch) -> Answers<v1::WatchBatchResponse> {
        let first = Some((self, open));
        let next = |state: Option<(Self, OpenBatch)>| async move {
            let (api, open) = state?;
            let looked = api
                .find(&open.table, &open.batch_id, &MetadataMap::new())
                .await;
            let found = match looked {
                Ok(found) => found,
                Err(error) => return Some((Err(status_of(&error)), None)),
            };
            let batch = found.message();
            let goes_on = batch.state() == v1::BatchState::Running;
            if goes_on {
                tokio::select! {
                    () = deadline::elapsed(Some(AFAR_INTERVAL)) => {}
                    () = api.serving.stopped() => {
                        return Some((Err(status_of(&Serving::stopping())), None));
                    }
                }
            }
            let answer = v1::WatchBatchResponse { batch: Some(batch) };
            Some((Ok(answer), goes_on.then_some((api, open))))
        };
        futures::stream::unfold(first, next).boxed()
    }
}

impl Found {
    fn message(&self) -> v1::Batch {
        match self {
            Self::Record(record) => batch_message(record, &record.status()),
            Self::Result(result) => v1::Batch {
                table: result.table.clone(),
                batch_id: result.batch_id.0.clone(),
                state: v1::BatchState::Succeeded.into(),
                result: Some(result_message(result)),
                error: None,
                progress: None,
            },
            Self::Open(open, _) => open.message(),
        }
    }
}

impl OpenBatch {
    fn message(&self) -> v1::Batch {
        let phase = match self.is_prepared {
            true => phase_word(BatchPhase::Committing),
            false => phase_word(BatchPhase::Reading),
        };
        v1::Batch {
            table: self.table.clone(),
            batch_id: self.batch_id.clone(),
            state: v1::BatchState::Running.into(),
            progress: Some(v1::BatchProgress {
                phase: phase.to_owned(),
                ..v1::BatchProgress::default()
            }),
            ..v1::Batch::default()
        }
    }
}

/// The node that has an open or prepared attempt of a batch, and whether it is prepared. What is open here
/// without a record is left of an earlier process, and nobody runs it.
fn runner_of(table: &TableState, batch: &BatchId, own: NodeId) -> Option<(NodeId, bool)> {
    let holds = |attempt: &Attempt| attempt.batches.iter().any(|key| key.id == *batch);
    let prepared = table
        .pending
        .as_ref()
        .map(|pending| &pending.opened.attempt);
    if let Some(attempt) = prepared.filter(|attempt| holds(attempt)) {
        return Some((attempt.epoch.node, true));
    }
    let mut open = table.attempts.values();
    let attempt = open.find(|attempt| holds(attempt) && attempt.epoch.node != own)?;
    Some((attempt.epoch.node, false))
}

#[tonic::async_trait]
impl BatchService for BatchApi {
    type WatchBatchStream = Answers<v1::WatchBatchResponse>;

    async fn submit_batch(
        &self,
        request: Request<v1::SubmitBatchRequest>,
    ) -> Result<Response<v1::SubmitBatchResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        check_batch_id(&asked.batch_id)?;
        let waits = asked.wait;
        // Waiting ends before the call's own bound, so that the answer says how the batch stands.
        let limit = deadline::remaining(&metadata).map(|limit| limit - limit / 10);
        let work = async {
            let found = self.submit(asked).await?;
            if let (Found::Record(record), true) = (&found, waits) {
                tokio::select! {
                    _ = record.ended() => {}
                    () = self.serving.stopped() => {}
                    () = deadline::elapsed(limit) => {}
                }
            }
            Ok(found)
        };
        let found = deadline::bounded(&metadata, work).await;
        let batch = Some(found.map_err(|e| status_of(&e))?.message());
        Ok(Response::new(v1::SubmitBatchResponse { batch }))
    }

    async fn get_batch(
        &self,
        request: Request<v1::GetBatchRequest>,
    ) -> Result<Response<v1::GetBatchResponse>, Status> {
        let (metadata, asked) = (request.metadata(), request.get_ref());
        let work = self.find(&asked.table, &asked.batch_id, metadata);
        let found = deadline::bounded(metadata, work).await;
        let found = found.map_err(|e| status_of(&e))?;
        if let Found::Open(_, Some(channel)) = &found {
            let request = Elsewhere::passed_on(metadata, asked.clone());
            let mut runner = BatchServiceClient::new(channel.clone());
            // Where the node does not answer, the replicated state does.
            if let Ok(answer) = runner.get_batch(request).await {
                return Ok(answer);
            }
        }
        let batch = Some(found.message());
        Ok(Response::new(v1::GetBatchResponse { batch }))
    }

    async fn watch_batch(
        &self,
        request: Request<v1::WatchBatchRequest>,
    ) -> Result<Response<Self::WatchBatchStream>, Status> {
        let (metadata, asked) = (request.metadata(), request.get_ref());
        let found = self.find(&asked.table, &asked.batch_id, metadata).await;
        match found.map_err(|e| status_of(&e))? {
            Found::Record(record) => Ok(Response::new(watched(self.serving.clone(), record))),
            Found::Open(open, channel) => {
                if let Some(channel) = channel {
                    let request = Elsewhere::passed_on(metadata, asked.clone());
                    let mut runner = BatchServiceClient::new(channel);
                    if let Ok(answer) = runner.watch_batch(request).await {
                        return Ok(Response::new(answer.into_inner().boxed()));
                    }
                }
                Ok(Response::new(self.clone().watched_from_afar(open)))
            }
            found => {
                let batch = Some(found.message());
                let once = futures::stream::iter([Ok(v1::WatchBatchResponse { batch })]);
                Ok(Response::new(once.boxed()))
            }
        }
    }

    async fn list_batches(
        &self,
        request: Request<v1::ListBatchesRequest>,
    ) -> Result<Response<v1::ListBatchesResponse>, Status> {
        let work = list_batches(&self.serving, request.get_ref());
        let page = deadline::bounded(request.metadata(), work).await;
        page.map(Response::new).map_err(|e| status_of(&e))
    }

    async fn cancel_batch(
        &self,
        request: Request<v1::CancelBatchRequest>,
    ) -> Result<Response<v1::CancelBatchResponse>, Status> {
        let (metadata, asked) = (request.metadata(), request.get_ref());
        let found = self.find(&asked.table, &asked.batch_id, metadata).await;
        let found = found.map_err(|e| status_of(&e))?;
        if let Found::Open(_, Some(channel)) = &found {
            let request = Elsewhere::passed_on(metadata, asked.clone());
            return BatchServiceClient::new(channel.clone())
                .cancel_batch(request)
                .await;
        }
        if let Found::Record(record) = &found {
            record.cancellation.cancel();
            let limit = deadline::remaining(request.metadata()).unwrap_or(CANCEL_WAIT);
            // Whether it ended or not, the answer says how it stands.
            deadline::within(Some(limit.min(CANCEL_WAIT)), record.ended()).await;
        }
        let batch = Some(found.message());
        Ok(Response::new(v1::CancelBatchResponse { batch }))
    }
}

/// The message of a batch that stands like that.
pub(crate) fn batch_message(record: &BatchRecord, status: &BatchStatus) -> v1::Batch {
    let mut batch = v1::Batch {
        table: record.table.clone(),
        batch_id: record.batch_id.0.clone(),
        ..v1::Batch::default()
    };
    match status {
        BatchStatus::Queued => {
            batch.set_state(v1::BatchState::Running);
            batch.progress = Some(v1::BatchProgress {
                phase: "queue".to_owned(),
                ..v1::BatchProgress::default()
            });
        }
        BatchStatus::Running(progress) => {
            batch.set_state(v1::BatchState::Running);
            batch.progress = Some(progress_message(progress));
        }
        BatchStatus::Succeeded(result) => {
            batch.set_state(v1::BatchState::Succeeded);
            batch.result = Some(result_message(result));
        }
        BatchStatus::Failed(error, _) => {
            batch.set_state(v1::BatchState::Failed);
            batch.error = Some(error_message(error));
        }
        BatchStatus::Cancelled(_) => batch.set_state(v1::BatchState::Cancelled),
    }
    batch
}

fn progress_message(progress: &BatchProgress) -> v1::BatchProgress {
    v1::BatchProgress {
        phase: phase_word(progress.phase).to_owned(),
        events_read_count: progress.events_read,
        source_bytes_read: progress.bytes_read,
        source_bytes_total: progress.bytes_total.unwrap_or_default(),
        buckets_merged_count: progress.buckets_merged,
        buckets_total: progress.buckets_total,
    }
}

/// A phase as messages name it.
pub(crate) fn phase_word(phase: BatchPhase) -> &'static str {
    match phase {
        BatchPhase::Reading => "decode",
        BatchPhase::Merging => "merge",
        BatchPhase::Committing => "commit",
    }
}

/// The batch at once and whenever it changes, until it ends or the node stops.
fn watched(serving: Serving, record: Arc<BatchRecord>) -> Answers<v1::WatchBatchResponse> {
    let mut changes = record.watch();
    changes.mark_changed();
    let next = move |state: Option<_>| {
        let (serving, record) = (serving.clone(), Arc::clone(&record));
        async move {
            let mut changes: tokio::sync::watch::Receiver<BatchStatus> = state?;
            tokio::select! {
                biased;
                changed = changes.changed() => changed.ok()?,
                () = serving.stopped() => {
                    return Some((Err(status_of(&Serving::stopping())), None));
                }
            }
            // Progress comes from every thread; nobody looks ten times a second.
            deadline::within(Some(WATCH_INTERVAL), record.ended()).await;
            let status = changes.borrow_and_update().clone();
            let batch = Some(batch_message(&record, &status));
            let rest = (!status.is_final()).then_some(changes);
            Some((Ok(v1::WatchBatchResponse { batch }), rest))
        }
    };
    futures::stream::unfold(Some(changes), next).boxed()
}

fn check_batch_id(id: &str) -> Result<(), Status> {
    use tidegate_cluster::metadata::limits::NAME_BYTES_MAX;
    if id.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let message = format!("batch_id: is longer than {NAME_BYTES_MAX} bytes");
    let error = Error::new(Code::InvalidArgument, message);
    Err(status_of_field("batch_id", &error))
}

fn format_of(word: &str) -> Result<Option<FileFormat>> {
    match word {
        "" => Ok(None),
        word => FileFormat::from_word(word).map(Some),
    }
}

fn ranges(offsets: &BTreeMap<String, v1::OffsetRange>) -> BTreeMap<String, OffsetRange> {
    offsets
        .iter()
        .map(|(partition, range)| {
            let range = OffsetRange {
                from: range.from,
                to: range.to,
            };
            (partition.clone(), range)
        })
        .collect()
}

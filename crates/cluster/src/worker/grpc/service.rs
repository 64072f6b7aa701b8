//! The answering side of a worker.

use std::sync::Arc;

use arrow_flight::FlightData;
use futures::StreamExt;
use futures::stream::BoxStream;
use tidegate_apply::{BatchObserver, BatchProgress};
use tidegate_change::{Code, Error};
use tidegate_rpc::internal::merge_buckets_response::Answer as Merged;
use tidegate_rpc::internal::read_sources_response::Answer as Read;
use tidegate_rpc::internal::work_service_server::{WorkService, WorkServiceServer};
use tidegate_rpc::internal::{
    AbandonAttemptRequest, AbandonAttemptResponse, FinishMergeRequest, FinishMergeResponse,
    MergeBucketsRequest, MergeBucketsResponse, ReadSourcesRequest, ReadSourcesResponse,
    WorkProgress,
};
use tidegate_rpc::status::status_of;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::messages::{
    finish_from, merge_from, progress_to, read_from, seat_from, to_json, token_from,
};
use crate::placement::Seat;
use crate::shuffle::{self, MESSAGE_BYTES_MAX};
use crate::worker::{CallError, Called, Fetch, Worker, WorkerLink};

/// Answers of a call that wait for the caller.
const ANSWERS_WAITING: usize = 4;
/// Messages with rows that wait for the caller.
const MESSAGES_WAITING: usize = 2;

type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// The work of a node, on threads of its own.
#[derive(Clone, Debug)]
pub struct WorkEndpoint {
    worker: Arc<Worker>,
    threads: Handle,
}

/// The service of a worker, with its bounds, for a server to add. Work runs on the threads of `threads`.
#[must_use]
pub fn work_service(worker: Arc<Worker>, threads: Handle) -> WorkServiceServer<WorkEndpoint> {
    WorkServiceServer::new(WorkEndpoint { worker, threads })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// The status of an error; what a worker does not hold any more can be done again elsewhere.
fn refused(error: CallError) -> Status {
    let error = match error {
        CallError::Lost(error) if error.code() != Code::Unavailable => {
            Error::new(Code::Unavailable, error.to_string()).with_source(error)
        }
        other => other.into_error(),
    };
    status_of(&error)
}

/// Rows that a worker holds, as Flight messages; they are encoded on the threads of `threads`, as fast as
/// they are taken. `UNAVAILABLE` for what is not held.
pub fn fetched(worker: &Arc<Worker>, threads: &Handle, fetch: Fetch) -> Answers<FlightData> {
    let (sender, messages) = mpsc::channel(MESSAGES_WAITING);
    let worker = Arc::clone(worker);
    threads.spawn(async move {
        let opened = match worker.fetch(fetch).await {
            Ok(rows) => shuffle::encode(rows).map_err(CallError::from),
            Err(error) => Err(error),
        };
        let mut rows = match opened {
            Ok(rows) => rows,
            Err(error) => {
                // A caller that is gone hears nothing.
                let _ = sender.send(Err(refused(error))).await;
                return;
            }
        };
        while let Some(message) = rows.next().await {
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(messages).boxed()
}

/// Tells a caller how far its call is; what it does not take in time is left out.
#[derive(Debug)]
struct Telling<T> {
    answers: mpsc::Sender<Result<T, Status>>,
    progress: fn(WorkProgress) -> T,
}

impl<T: std::fmt::Debug + Send + 'static> BatchObserver for Telling<T> {
    fn observe(&self, progress: BatchProgress) {
        let answer = (self.progress)(progress_to(progress));
        let _ = self.answers.try_send(Ok(answer));
    }
}

impl WorkEndpoint {
    fn require_seat(&self, seat: Option<tidegate_rpc::internal::Seat>) -> Called<()> {
        let seat: Seat = seat_from(seat)?;
        let is_own =
            seat.node == self.worker.node() && seat.incarnation == self.worker.incarnation();
        match is_own {
            true => Ok(()),
            false => Err(CallError::not_held(format!(
                "the work of node {}",
                seat.node
            ))),
        }
    }

    /// Runs a call on the threads of the node, until it ends or its caller is gone.
    fn run<T, W, F>(&self, progress: fn(WorkProgress) -> T, work: F) -> Answers<T>
    where
        T: std::fmt::Debug + Send + 'static,
        F: FnOnce(Arc<Worker>, Arc<dyn BatchObserver>) -> W,
        W: Future<Output = Called<T>> + Send + 'static,
    {
        let (answers, stream) = mpsc::channel(ANSWERS_WAITING);
        let teller = Arc::new(Telling {
            answers: answers.clone(),
            progress,
        });
        let work = work(Arc::clone(&self.worker), teller);
        self.threads.spawn(async move {
            let done = tokio::select! {
                done = work => done.map_err(refused),
                () = answers.closed() => return,
            };
            let _ = answers.send(done).await;
        });
        ReceiverStream::new(stream).boxed()
    }
}

#[tonic::async_trait]
impl WorkService for WorkEndpoint {
    type ReadSourcesStream = Answers<ReadSourcesResponse>;
    type MergeBucketsStream = Answers<MergeBucketsResponse>;

    async fn read_sources(
        &self,
        request: Request<ReadSourcesRequest>,
    ) -> Result<Response<Self::ReadSourcesStream>, Status> {
        let mut request = request.into_inner();
        self.require_seat(request.seat.take()).map_err(refused)?;
        let order = read_from(request).map_err(|e| status_of(&e))?;
        let answer = |answer| ReadSourcesResponse {
            answer: Some(answer),
        };
        let progress = |progress| ReadSourcesResponse {
            answer: Some(Read::Progress(progress)),
        };
        let work = move |worker: Arc<Worker>, teller| async move {
            let summaries = worker.read(order, Some(teller)).await?;
            let json = to_json("summaries", &summaries)?;
            Ok(answer(Read::Summaries(json)))
        };
        Ok(Response::new(self.run(progress, work)))
    }

    async fn merge_buckets(
        &self,
        request: Request<MergeBucketsRequest>,
    ) -> Result<Response<Self::MergeBucketsStream>, Status> {
        let mut request = request.into_inner();
        self.require_seat(request.seat.take()).map_err(refused)?;
        let order = merge_from(request).map_err(|e| status_of(&e))?;
        let progress = |progress| MergeBucketsResponse {
            answer: Some(Merged::Progress(progress)),
        };
        let work = move |worker: Arc<Worker>, teller| async move {
            let outcome = worker.merge(order, Some(teller)).await?;
            Ok(MergeBucketsResponse {
                answer: Some(Merged::Outcome(to_json("an outcome", &outcome)?)),
            })
        };
        Ok(Response::new(self.run(progress, work)))
    }

    async fn finish_merge(
        &self,
        request: Request<FinishMergeRequest>,
    ) -> Result<Response<FinishMergeResponse>, Status> {
        let order = finish_from(request.into_inner()).map_err(|e| status_of(&e))?;
        let worker = Arc::clone(&self.worker);
        let finished = self.threads.spawn(async move {
            let manifest = worker.finish(order).await?;
            Ok::<_, CallError>(to_json("what was written", &manifest)?)
        });
        let finished = finished
            .await
            .map_err(|e| status_of(&Error::internal("a call panicked").with_source(e)))?;
        let manifest = finished.map_err(refused)?;
        Ok(Response::new(FinishMergeResponse { manifest }))
    }

    async fn abandon_attempt(
        &self,
        request: Request<AbandonAttemptRequest>,
    ) -> Result<Response<AbandonAttemptResponse>, Status> {
        let token = token_from(request.into_inner().token).map_err(|e| status_of(&e))?;
        self.worker.abandon(token).await.map_err(refused)?;
        Ok(Response::new(AbandonAttemptResponse {}))
    }
}

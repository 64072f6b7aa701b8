//! Flight of a node that only works: `DoGet` of what other nodes hold tickets for. Whoever wants anything
//! else is sent to a node that has it.

use std::fmt;
use std::sync::Arc;

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tidegate_rpc::status::status_of;
use tokio::runtime::Handle;
use tonic::{Request, Response, Status, Streaming};

use super::service::fetched;
use crate::shuffle::{MESSAGE_BYTES_MAX, fetch_of};
use crate::worker::Worker;

type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// What callers hear who want what this node does not have: where to ask.
pub type Redirect = Arc<dyn Fn() -> BoxFuture<'static, Status> + Send + Sync>;

/// The rows that a worker holds.
#[derive(Clone)]
pub struct WorkFlight {
    worker: Arc<Worker>,
    threads: Handle,
    redirect: Redirect,
}

impl fmt::Debug for WorkFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkFlight")
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

/// Flight of a node that only works, for a server to add. Rows are encoded on the threads of `threads`.
#[must_use]
pub fn work_flight(
    worker: Arc<Worker>,
    threads: Handle,
    redirect: Redirect,
) -> FlightServiceServer<WorkFlight> {
    FlightServiceServer::new(WorkFlight {
        worker,
        threads,
        redirect,
    })
    .max_decoding_message_size(MESSAGE_BYTES_MAX)
}

#[tonic::async_trait]
impl FlightService for WorkFlight {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        let fetch = fetch_of(&request.get_ref().ticket).map_err(|e| status_of(&e))?;
        match fetch {
            Some(fetch) => Ok(Response::new(fetched(&self.worker, &self.threads, fetch))),
            None => Err((self.redirect)().await),
        }
    }

    async fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err((self.redirect)().await)
    }

    async fn list_flights(
        &self,
        _request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err((self.redirect)().await)
    }

    async fn get_flight_info(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Err((self.redirect)().await)
    }

    async fn poll_flight_info(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        Err((self.redirect)().await)
    }

    async fn get_schema(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        Err((self.redirect)().await)
    }

    async fn do_put(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        Err((self.redirect)().await)
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err((self.redirect)().await)
    }

    async fn do_action(
        &self,
        _request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        Err((self.redirect)().await)
    }

    async fn list_actions(
        &self,
        _request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        Err((self.redirect)().await)
    }
}

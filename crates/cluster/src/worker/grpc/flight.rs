//! Flight of a node that only works: `DoGet` of what other nodes hold tickets for.

use std::sync::Arc;

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::BoxStream;
use tidegate_change::{Code, Error};
use tidegate_rpc::status::status_of;
use tokio::runtime::Handle;
use tonic::{Request, Response, Status, Streaming};

use super::service::fetched;
use crate::shuffle::{MESSAGE_BYTES_MAX, fetch_of};
use crate::worker::Worker;

type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// The rows that a worker holds.
#[derive(Clone, Debug)]
pub struct WorkFlight {
    worker: Arc<Worker>,
    threads: Handle,
}

/// Flight of a node that only works, for a server to add. Rows are encoded on the threads of `threads`.
#[must_use]
pub fn work_flight(worker: Arc<Worker>, threads: Handle) -> FlightServiceServer<WorkFlight> {
    FlightServiceServer::new(WorkFlight { worker, threads })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
}

fn not_here(what: &str) -> Status {
    let message = format!("Flight {what}: this node only works");
    let error = Error::new(Code::Unsupported, message);
    status_of(&error.with_hint("ask a node of cluster.peers"))
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
        let fetch = fetch.ok_or_else(|| not_here("DoGet"))?;
        Ok(Response::new(fetched(&self.worker, &self.threads, fetch)))
    }

    async fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(not_here("Handshake"))
    }

    async fn list_flights(
        &self,
        _request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(not_here("ListFlights"))
    }

    async fn get_flight_info(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Err(not_here("GetFlightInfo"))
    }

    async fn poll_flight_info(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        Err(not_here("PollFlightInfo"))
    }

    async fn get_schema(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        Err(not_here("GetSchema"))
    }

    async fn do_put(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        Err(not_here("DoPut"))
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(not_here("DoExchange"))
    }

    async fn do_action(
        &self,
        _request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        Err(not_here("DoAction"))
    }

    async fn list_actions(
        &self,
        _request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        Err(not_here("ListActions"))
    }
}

//! Arrow Flight: change events in, rows and changes out, on the port of the other services.
//!
//! - `get`: `DoGet`, `GetFlightInfo`, `GetSchema`.
//! - `put`: `DoPut`, from the first message to the result.
//! - `intake`: what a put holds, on its way to disk.

mod get;
mod intake;
mod put;
#[cfg(test)]
mod tests;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use tidegate_change::{Code, Error, Result};
use tidegate_cluster::shuffle::fetch_of;
use tidegate_cluster::worker::grpc::fetched;
use tidegate_rpc::status::status_of;
use tonic::{Request, Response, Status, Streaming};

use crate::node::Serving;
use crate::services::Answers;

/// Flight over the tables of a node.
#[derive(Clone, Debug)]
pub(crate) struct FlightEndpoint {
    serving: Serving,
}

impl FlightEndpoint {
    pub(crate) fn new(serving: Serving) -> Self {
        Self { serving }
    }
}

/// The table that a descriptor's path names.
fn table_of(descriptor: &FlightDescriptor) -> Result<String> {
    match descriptor.path.as_slice() {
        [table] => Ok(table.clone()),
        _ => Err(Error::new(
            Code::InvalidArgument,
            "descriptor: its path names one table",
        )),
    }
}

fn without(what: &str) -> Status {
    let message = format!("Flight {what}: is not offered");
    status_of(&Error::new(Code::Unsupported, message))
}

#[tonic::async_trait]
impl FlightService for FlightEndpoint {
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
        if let Some(work) = &self.serving.work {
            let fetch = fetch_of(&request.get_ref().ticket).map_err(|e| status_of(&e))?;
            if let Some(fetch) = fetch {
                let work = &work.own;
                return Ok(Response::new(fetched(&work.worker, &work.handle(), fetch)));
            }
        }
        let rows = get::rows(&self.serving, &request).await;
        rows.map(Response::new).map_err(|e| status_of(&e))
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let info = get::flight_info(&self.serving, &request).await;
        info.map(Response::new).map_err(|e| status_of(&e))
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        let schema = get::schema(&self.serving, &request).await;
        schema.map(Response::new).map_err(|e| status_of(&e))
    }

    async fn list_flights(
        &self,
        _request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        let flights = get::flights(&self.serving).await;
        flights.map(Response::new).map_err(|e| status_of(&e))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let answers = put::take(self.serving.clone(), request.into_inner());
        Ok(Response::new(answers))
    }

    async fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(without("Handshake"))
    }

    async fn poll_flight_info(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        Err(without("PollFlightInfo"))
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(without("DoExchange"))
    }

    async fn do_action(
        &self,
        _request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        Err(without("DoAction"))
    }

    async fn list_actions(
        &self,
        _request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        Err(without("ListActions"))
    }
}

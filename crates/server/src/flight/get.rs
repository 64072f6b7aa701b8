//! Rows and changes as Arrow streams.

use std::sync::Arc;

use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, SchemaAsIpc, SchemaResult, Ticket,
};
use futures::{StreamExt, TryStreamExt};
use tidegate_change::{Error, Result};
use tidegate_rpc::batch::version_message;
use tidegate_rpc::flight::{ReadTicket, StreamEnd, Ticket as Wanted, from_json, to_json};
use tidegate_rpc::status::status_of;
use tonic::{Request, Status};

use super::table_of;
use crate::node::Serving;
use crate::reads;
use crate::services::{Answers, deadline};

/// The rows of a ticket.
pub(super) async fn rows(
    serving: &Serving,
    request: &Request<Ticket>,
) -> Result<Answers<FlightData>> {
    let wanted: Wanted = from_json("ticket", &request.get_ref().ticket)?;
    let work = async {
        let reader = serving.embedded.current_reader().await?;
        reads::open(&reader, wanted).await
    };
    let opened = deadline::bounded(request.metadata(), work).await?;
    let mut encoder = FlightDataEncoderBuilder::new().with_schema(Arc::clone(opened.rows.schema()));
    if let Some(until) = opened.until {
        let end = StreamEnd {
            until: until.map(version_message),
        };
        encoder = encoder.with_metadata(to_json("the end of a stream", &end)?.into());
    }
    let rows = opened.rows.into_stream();
    let messages = encoder.build(rows.map_err(|error| FlightError::from(status_of(&error))));
    Ok(messages.map_err(Status::from).boxed())
}

/// How a version of a table, or what a ticket in a command asks for, is read.
pub(super) async fn flight_info(
    serving: &Serving,
    request: &Request<FlightDescriptor>,
) -> Result<FlightInfo> {
    let work = info(serving, request.get_ref());
    deadline::bounded(request.metadata(), work).await
}

async fn info(serving: &Serving, descriptor: &FlightDescriptor) -> Result<FlightInfo> {
    let reader = serving.embedded.current_reader().await?;
    let wanted = match wanted(descriptor)? {
        Wanted::Read(ticket) => Wanted::Read(reads::pinned(&reader, ticket).await?),
        other => other,
    };
    let opened = reads::open(&reader, wanted.clone()).await?;
    let ticket = Ticket::new(to_json("a ticket", &wanted)?);
    FlightInfo::new()
        .try_with_schema(opened.rows.schema())
        .map(|info| {
            info.with_descriptor(descriptor.clone())
                .with_endpoint(FlightEndpoint::new().with_ticket(ticket))
        })
        .map_err(|e| Error::internal("a schema cannot be sent").with_source(e))
}

/// The columns of a table, or of what a ticket in a command asks for.
pub(super) async fn schema(
    serving: &Serving,
    request: &Request<FlightDescriptor>,
) -> Result<SchemaResult> {
    let work = async {
        let wanted = wanted(request.get_ref())?;
        reads::open(&serving.embedded.current_reader().await?, wanted).await
    };
    let opened = deadline::bounded(request.metadata(), work).await?;
    let options = IpcWriteOptions::default();
    SchemaAsIpc::new(opened.rows.schema(), &options)
        .try_into()
        .map_err(|e: arrow::error::ArrowError| {
            Error::internal("a schema cannot be sent").with_source(e)
        })
}

/// All tables.
pub(super) async fn flights(serving: &Serving) -> Result<Answers<FlightInfo>> {
    let serving = serving.clone();
    let names: Vec<String> = serving
        .embedded
        .current_reader()
        .await?
        .names_after(None)
        .map(str::to_owned)
        .collect();
    let infos = futures::stream::iter(names).then(move |name| {
        let serving = serving.clone();
        async move {
            let descriptor = FlightDescriptor::new_path(vec![name]);
            let info = info(&serving, &descriptor).await;
            info.map_err(|e| status_of(&e))
        }
    });
    Ok(infos.boxed())
}

/// A path is a table at its newest version, a command is a ticket.
fn wanted(descriptor: &FlightDescriptor) -> Result<Wanted> {
    if !descriptor.cmd.is_empty() {
        return from_json("command", &descriptor.cmd);
    }
    Ok(Wanted::Read(ReadTicket {
        table: table_of(descriptor)?,
        ..ReadTicket::default()
    }))
}

//! The services of a node, with their limits.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use tidegate_change::{Code, Error, Result};
use tidegate_cluster::metadata::replicated::transport::grpc::peer_service;
use tidegate_cluster::worker::grpc::{placement_service, work_flight, work_service};
use tidegate_rpc::DESCRIPTORS;
use tidegate_rpc::encryption::choose_provider;
use tidegate_rpc::v1::batch_service_server::BatchServiceServer;
use tidegate_rpc::v1::cluster_service_server::ClusterServiceServer;
use tidegate_rpc::v1::table_service_server::TableServiceServer;
use tonic::transport::server::Router;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic_health::server::HealthReporter;
use tonic_reflection::server::Builder as ReflectionBuilder;

use super::serving::Serving;
use crate::config::{Config, Tls};
use crate::flight::FlightEndpoint;
use crate::group::{Outside, group_service};
use crate::services::{BatchApi, ClusterApi, TableApi};
use crate::work::NodeWork;

/// Bytes of a stream that a caller may send ahead.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of all streams of a connection that a caller may send ahead.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Calls that may be given up before this node looks at them: after a pause of the process these are all
/// heartbeats of that time, and no attack.
const RESETS_MAX: usize = 1_024;

/// The services that reflection shows.
const PUBLIC: [&str; 4] = [
    "tidegate.v1.BatchService",
    "tidegate.v1.ClusterService",
    "tidegate.v1.TableService",
    "grpc.health.v1.Health",
];

/// All services, and what says that they serve.
pub(super) fn router(serving: &Serving) -> Result<(Router, HealthReporter)> {
    let limits = &serving.config.limits;
    let (message, flight) = (
        limits.message_bytes.as_length(),
        limits.flight_message_bytes.as_length(),
    );
    let batches =
        BatchServiceServer::new(BatchApi::new(serving.clone())).max_decoding_message_size(message);
    let tables =
        TableServiceServer::new(TableApi::new(serving.clone())).max_decoding_message_size(message);
    let cluster = ClusterServiceServer::new(ClusterApi::new(serving.clone()))
        .max_decoding_message_size(message);
    let flights = FlightServiceServer::new(FlightEndpoint::new(serving.clone()))
        .max_decoding_message_size(flight);
    let (reporter, health) = tonic_health::server::health_reporter();
    let (v1, v1alpha) = (reflection().build_v1(), reflection().build_v1alpha());
    let invalid = |e| Error::internal("the descriptors cannot be served").with_source(e);
    let router = server(&serving.config)?
        .add_service(batches)
        .add_service(tables)
        .add_service(cluster)
        .add_service(flights)
        .add_service(health)
        .add_service(v1.map_err(invalid)?)
        .add_service(v1alpha.map_err(invalid)?);
    if !serving.config.is_clustered() {
        return Ok((router, reporter));
    }
    let admission = serving.elsewhere.admission.clone();
    let peers = peer_service(serving.embedded.member().inbox());
    let mut router = router
        .add_service(peers)
        .add_service(group_service(admission));
    if let Some(work) = &serving.work {
        let worker = Arc::clone(&work.own.worker);
        router = router
            .add_service(work_service(worker, work.own.handle()))
            .add_service(placement_service(Arc::clone(&work.keeper)));
    }
    Ok((router, reporter))
}

/// Services of a node without the log: whoever calls another service is sent to a node that has it.
pub(super) fn outside_router(
    config: &Config,
    outside: &Outside,
    work: &NodeWork,
) -> Result<(Router, HealthReporter)> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let (v1, v1alpha) = (reflection().build_v1(), reflection().build_v1alpha());
    let invalid = |e| Error::internal("the descriptors cannot be served").with_source(e);
    let worker = Arc::clone(&work.worker);
    let flights = work_flight(worker, work.handle(), outside.redirector());
    let router = server(config)?
        .add_routes(outside.routes())
        .add_service(work_service(Arc::clone(&work.worker), work.handle()))
        .add_service(flights)
        .add_service(health)
        .add_service(v1.map_err(invalid)?)
        .add_service(v1alpha.map_err(invalid)?);
    Ok((router, reporter))
}

/// Says that everything serves.
pub(super) async fn set_serving(reporter: &HealthReporter) {
    let whole = tonic_health::ServingStatus::Serving;
    reporter.set_service_status("", whole).await;
    reporter.set_serving::<BatchServiceServer<BatchApi>>().await;
    reporter.set_serving::<TableServiceServer<TableApi>>().await;
    reporter
        .set_serving::<ClusterServiceServer<ClusterApi>>()
        .await;
    reporter
        .set_serving::<FlightServiceServer<FlightEndpoint>>()
        .await;
}

/// Says that nothing serves, not yet or no more.
pub(super) async fn set_not_serving(reporter: &HealthReporter) {
    reporter
        .set_not_serving::<BatchServiceServer<BatchApi>>()
        .await;
    reporter
        .set_not_serving::<TableServiceServer<TableApi>>()
        .await;
    reporter
        .set_not_serving::<ClusterServiceServer<ClusterApi>>()
        .await;
    reporter
        .set_not_serving::<FlightServiceServer<FlightEndpoint>>()
        .await;
    let whole = tonic_health::ServingStatus::NotServing;
    reporter.set_service_status("", whole).await;
}

fn reflection() -> ReflectionBuilder<'static> {
    let mut builder = ReflectionBuilder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    for name in PUBLIC {
        builder = builder.with_service_name(name);
    }
    builder
}

fn server(config: &Config) -> Result<Server> {
    let limits = &config.limits;
    let headers = u32::try_from(limits.header_bytes.0).unwrap_or(u32::MAX);
    let server = Server::builder()
        .max_concurrent_streams(limits.streams)
        .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
        .http2_max_header_list_size(headers)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(config.keep_alive.interval.duration()))
        .http2_keepalive_timeout(Some(config.keep_alive.timeout.duration()));
    match tls_of(&config.tls)? {
        None => Ok(server),
        Some(tls) => server.tls_config(tls).map_err(|e| {
            let message = "tls: the certificate or the key cannot be used";
            Error::new(Code::InvalidArgument, message).with_source(e)
        }),
    }
}

fn tls_of(tls: &Tls) -> Result<Option<ServerTlsConfig>> {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok(None);
    };
    choose_provider();
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|e| Error::io(format!("tls file {}", path.display()), e))
    };
    let identity = Identity::from_pem(read(certificate)?, read(key)?);
    let config = ServerTlsConfig::new().identity(identity);
    Ok(Some(match &tls.client_authority {
        Some(authority) => config.client_ca_root(Certificate::from_pem(read(authority)?)),
        None => config,
    }))
}

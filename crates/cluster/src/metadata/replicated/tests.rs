//! Members alone and in groups, over memory and over gRPC.

mod alone;
mod disks;
mod group;
mod leader_changes;
mod members;
mod over_grpc;
mod support;

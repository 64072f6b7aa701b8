//! Messages and services between processes, generated from `/proto`, and their conversions.
//!
//! - [`v1`] is the public interface; [`internal`] is spoken between nodes of one cluster.
//! - [`status`]: errors as gRPC statuses with details, and back.
//! - [`batch`]: results of batches as messages, and back; [`time`]: times and durations.
//! - [`encryption`]: the process's choice of cryptography.
//! - [`flight`]: what the JSON in Flight tickets and metadata says.
//!
//! [`DESCRIPTORS`] is what reflection serves.

pub mod batch;
pub mod encryption;
pub mod flight;
pub mod status;
pub mod time;

/// The encoded descriptors of all services.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The public interface.
pub mod v1 {
    #![expect(
        unused_qualifications,
        clippy::allow_attributes,
        clippy::clone_on_ref_ptr,
        clippy::missing_errors_doc,
        clippy::too_many_lines,
        reason = "generated"
    )]
    tonic::include_proto!("tidegate.v1");
}

/// What nodes of one cluster say to each other.
pub mod internal {
    #![expect(
        unused_qualifications,
        clippy::allow_attributes,
        clippy::clone_on_ref_ptr,
        clippy::missing_errors_doc,
        clippy::too_many_lines,
        reason = "generated"
    )]
    tonic::include_proto!("tidegate.internal.v1");
}

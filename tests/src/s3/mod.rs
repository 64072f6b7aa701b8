//! Object stores to test against: [`Moto`], an S3 of another make, and [`Stub`], a small one that goes wrong
//! on demand.

mod moto;
mod stub;

pub use moto::Moto;
pub use stub::{Fault, Stub};

/// Bucket of all tests.
pub const BUCKET: &str = "tidegate";

/// The usual variables by which a client reaches a store at an address.
#[must_use]
pub fn variables(endpoint: &str) -> Vec<(String, String)> {
    [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "tidegate"),
        ("AWS_SECRET_ACCESS_KEY", "secret-of-the-test"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

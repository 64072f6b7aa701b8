//! Object stores by address: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
//!
//! - [`Address`]: an address, checked. It names bucket and prefix and nothing else, never a secret.
//! - [`RemoteStores`]: opens them, each bucket once.
//!
//! What a store answers with "slow down" or an error of its own is repeated by its client, with growing
//! pauses that differ by chance, as long as `stores.patience` says. Such a repeated create may meet its own
//! success; whoever writes commits looks at the slot and never at the answer.

mod address;
mod objects;
mod remote;

pub use address::Address;
pub(crate) use objects::fetch;
pub use remote::RemoteStores;

//! The replicated log: the commit state machine on openraft, and the only module that knows openraft.
//!
//! - [`Member`]: one metadata node of a group, behind [`crate::Consensus`]; `leadership`: what only a
//!   leader can do; `membership`: who belongs to the group; [`MemberOptions`]: how to open a member.
//! - `store`: log, vote, state and identity in one file, all of it synced before it counts.
//! - [`transport`]: how members reach each other.
//! - `types`: what openraft is instantiated with; [`DirectoryLock`]: one writer a directory.
//!
//! An embedded directory is a group with one voter: the same code without peers. Reads that decide
//! anything are confirmed by a quorum (ReadIndex); leases of leaders are never relied on.

mod leadership;
mod lock;
mod member;
mod membership;
mod options;
mod status;
mod store;
pub mod transport;
mod types;

pub use self::lock::DirectoryLock;
pub use self::member::Member;
pub use self::options::{MemberOptions, NewDirectory};
pub use self::status::{GroupStatus, MemberStatus};
pub use self::store::{Identity, WriteMode};
pub use self::types::Peer;

#[cfg(test)]
mod tests;

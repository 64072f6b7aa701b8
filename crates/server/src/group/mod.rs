//! A node among others: how it finds its cluster, joins it, and takes over what others left.
//!
//! - `step`: what a node does next, decided from who it is and what its peers answer.
//! - `steward`: does it, and then watches: a leader takes over the work of nodes that are gone.
//! - `admission`: the leader's side of joining and leaving; `service`: both sides' messages.
//! - `channels`: connections to other nodes; `elsewhere`: calls that another node answers.
//! - `outside`: what a node without the log says to callers.
//!
//! A cluster is founded once: by the peer whose address comes first, when all peers have answered that they
//! belong to none. So a node that lost its directory joins again as a new one and never founds a second
//! cluster, whatever its configuration says.

mod admission;
mod channels;
mod elsewhere;
mod outside;
mod pause;
mod service;
mod step;
mod steward;

pub(crate) use self::admission::Admission;
pub(crate) use self::channels::Channels;
pub(crate) use self::elsewhere::{Elsewhere, is_forwarded};
pub(crate) use self::outside::Outside;
pub(crate) use self::pause::{pause, within};
pub(crate) use self::service::group_service;
pub(crate) use self::steward::{Steward, StewardParts};

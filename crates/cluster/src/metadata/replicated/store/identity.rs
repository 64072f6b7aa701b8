//! Who a data directory is: issued once, never changed, gone with the directory.

use serde::{Deserialize, Serialize};

use crate::metadata::{ClusterId, NodeId};

/// The ids of a data directory, stored in the file that holds its log, so that neither is there without
/// the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The node, a random id.
    pub node: NodeId,
    /// Its group; none until a new node has been taken in.
    pub cluster: Option<ClusterId>,
    /// Whether it founds its group; others wait until they are called.
    pub is_founder: bool,
}

//! A commit as it was read.

use bytes::Bytes;
use tidegate_change::{Digest, TableVersion};

use crate::actions::{Action, CommitInfo};

/// A commit of the log.
#[derive(Clone, Debug)]
pub struct TableCommit {
    /// Its version.
    pub version: TableVersion,
    /// Its bytes, whose digest decides whose commit it is.
    pub bytes: Bytes,
    /// Its actions.
    pub actions: Vec<Action>,
}

impl TableCommit {
    /// The digest of the bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// What it was for, if it says so.
    #[must_use]
    pub fn info(&self) -> Option<&CommitInfo> {
        self.actions.iter().find_map(|action| match action {
            Action::CommitInfo(info) => Some(info),
            _ => None,
        })
    }

    pub(crate) fn into_info(self) -> Option<CommitInfo> {
        self.actions.into_iter().find_map(|action| match action {
            Action::CommitInfo(info) => Some(info),
            _ => None,
        })
    }
}

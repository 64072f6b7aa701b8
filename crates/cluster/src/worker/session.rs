//! What a worker holds for one attempt.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_apply::phases::{MergePart, ReadPart};

use super::link::{CallError, Called};

/// A merge that is held.
pub(super) type HeldMerge = Arc<tokio::sync::Mutex<MergePart>>;

/// What a worker holds for one attempt. Temporary files go with it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) secret: u64,
    touched_ns: AtomicU64,
    /// By number, with the round of reading.
    read: Mutex<BTreeMap<u32, (u32, Arc<ReadPart>)>>,
    merged: Mutex<BTreeMap<u32, HeldMerge>>,
}

impl Session {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            secret,
            touched_ns: AtomicU64::new(0),
            read: Mutex::default(),
            merged: Mutex::default(),
        }
    }

    pub(super) fn touch(&self, now_ns: u64) {
        self.touched_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    /// Whether nobody has asked for anything since.
    pub(super) fn is_idle_since(&self, ns: u64) -> bool {
        self.touched_ns.load(Ordering::Relaxed) < ns
    }

    /// Holds what was read in a round.
    pub(super) fn hold_read(&self, number: u32, round: u32, part: ReadPart) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(number, (round, Arc::new(part)));
    }

    /// Drops what was read in earlier rounds: it is read again.
    pub(super) fn drop_read_before(&self, round: u32) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.retain(|_, (own, _)| *own >= round);
    }

    pub(super) fn read(&self, number: u32) -> Called<Arc<ReadPart>> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let part = read.get(&number).map(|(_, part)| Arc::clone(part));
        part.ok_or_else(|| CallError::not_held(format!("part {number}")))
    }

    pub(super) fn hold_merged(&self, owner: u32, part: MergePart) {
        let mut merged = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
        merged.insert(owner, Arc::new(tokio::sync::Mutex::new(part)));
    }

    /// Takes a merge out: what it wrote is told once, and a caller that missed it merges again elsewhere.
    pub(super) fn take_merged(&self, owner: u32) -> Called<HeldMerge> {
        let mut merged = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
        let part = merged.remove(&owner);
        part.ok_or_else(|| CallError::not_held(format!("the merge of owner {owner}")))
    }

    pub(super) fn merged(&self, owner: u32) -> Called<HeldMerge> {
        let merged = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
        let part = merged.get(&owner).map(Arc::clone);
        part.ok_or_else(|| CallError::not_held(format!("the merge of owner {owner}")))
    }
}

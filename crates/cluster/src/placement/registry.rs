//! What the leader hears from workers.
//!
//! Pure: time comes in. Times decide only who gets work; a worker that is taken for dead and is not harms
//! nothing, because no commit names what it writes later.

use std::collections::BTreeMap;

use super::{PlacedWorker, Placement};
use crate::metadata::NodeId;

/// A sign of life of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its node.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u64,
    /// Where it is reached.
    pub endpoint: String,
    /// Whether it stops and wants no more work.
    pub is_draining: bool,
}

/// The workers that a leader has heard from since it leads.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Silence after which a worker is taken for dead, nanoseconds.
    dead_after_ns: u64,
    /// When this node began to lead; None while it does not.
    leads_since_ns: Option<u64>,
    beats: BTreeMap<NodeId, (Beat, u64)>,
}

impl Registry {
    /// Nothing heard yet.
    #[must_use]
    pub fn new(dead_after_ns: u64) -> Self {
        Self {
            dead_after_ns,
            leads_since_ns: None,
            beats: BTreeMap::new(),
        }
    }

    /// Hears a sign of life. Of two processes of one node the one counts that was heard last.
    pub fn hear(&mut self, beat: Beat, now_ns: u64) {
        self.beats.insert(beat.node, (beat, now_ns));
    }

    /// Forgets everything: this node does not lead.
    pub fn step_down(&mut self) {
        self.leads_since_ns = None;
        self.beats.clear();
    }

    /// What the workers of the placement should be; None where they are right.
    ///
    /// Workers that an earlier leader placed have time to be heard by this one.
    pub fn wanted(
        &mut self,
        current: &Placement,
        now_ns: u64,
    ) -> Option<BTreeMap<NodeId, PlacedWorker>> {
        let since = *self.leads_since_ns.get_or_insert(now_ns);
        let is_silent = |heard_ns: u64| now_ns.saturating_sub(heard_ns) > self.dead_after_ns;
        self.beats.retain(|_, (_, heard_ns)| !is_silent(*heard_ns));
        let mut wanted = BTreeMap::new();
        for (node, placed) in &current.workers {
            if !self.beats.contains_key(node) && !is_silent(since) {
                wanted.insert(*node, placed.clone());
            }
        }
        for (node, (beat, _)) in &self.beats {
            let known = current.workers.get(node);
            // A drain ends with the process that was drained.
            let drained = known.filter(|known| known.incarnation == beat.incarnation);
            let worker = PlacedWorker {
                endpoint: beat.endpoint.clone(),
                incarnation: beat.incarnation,
                is_draining: beat.is_draining || drained.is_some_and(|known| known.is_draining),
            };
            wanted.insert(*node, worker);
        }
        (wanted != current.workers).then_some(wanted)
    }
}

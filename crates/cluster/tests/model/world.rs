//! A state of the modelled world, and what must hold in it.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_change::{BatchId, Digest, TableVersion, WriterId};
use tidegate_cluster::metadata::{
    BatchKey, CreateTable, Entry, Epoch, Grant, NodeId, Outcome, Role, Standing, State, TableId,
    TableState, apply,
};

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) tables: usize,
    pub(crate) batches: u8,
    pub(crate) attempts: usize,
    pub(crate) slots: usize,
    pub(crate) crashes: u8,
    pub(crate) foreign: u8,
    pub(crate) losses: u8,
    pub(crate) maintenance: bool,
}

impl Limits {
    pub(crate) const SMALL: Self = Self {
        tables: 1,
        batches: 1,
        attempts: 2,
        slots: 3,
        crashes: 1,
        foreign: 1,
        losses: 0,
        maintenance: false,
    };
}

/// A shortcut that is known to lose or double data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A prepared batch is aborted on time-out.
    AbortOnTimeout,
    /// Files are deleted by age.
    CollectByAge,
    /// `Prepare` takes attempts that were aborted.
    NoAttemptFence,
    /// `AlreadyExists` is taken as "someone else".
    ExistsIsForeign,
    /// `AlreadyExists` is taken as "mine".
    ExistsIsMine,
    /// The slot is written before `Prepare`.
    PublishBeforePrepare,
    /// A conflict without effect is read as "exists", and the batch moves on.
    ConflictIsExists,
    /// The client is answered before the slot was seen.
    AckBeforeSlot,
    /// Files are cleaned up when the outcome is not known.
    CleanUnknown,
    /// `Prepare` does not look for the batch.
    NoDedup,
}

impl Mutant {
    pub(crate) const ALL: [Self; 10] = [
        Self::AbortOnTimeout,
        Self::CollectByAge,
        Self::NoAttemptFence,
        Self::ExistsIsForeign,
        Self::ExistsIsMine,
        Self::PublishBeforePrepare,
        Self::ConflictIsExists,
        Self::AckBeforeSlot,
        Self::CleanUnknown,
        Self::NoDedup,
    ];
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Content {
    /// The commit of an attempt, for this very slot.
    Ours(u64),
    /// A commit of somebody else that changes nothing.
    Foreign,
    /// A commit of ours that only takes the slot away.
    Fence,
}

/// An attempt on one table, on the head that its coordinator saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) table: usize,
    pub(crate) attempt: u64,
    pub(crate) head: Option<TableVersion>,
}

/// What a coordinator is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// Attempts are open, workers write.
    Working(Vec<Part>),
    /// Files and staged commits are there.
    Staged(Vec<Part>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Coordinator {
    pub(crate) epoch: Epoch,
    pub(crate) phase: Phase,
}

/// Everything that can differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) slots: Vec<Vec<Option<Content>>>,
    pub(crate) coordinators: Vec<Coordinator>,
    /// Writes that may still arrive: table, slot, attempt.
    pub(crate) in_flight: BTreeSet<(usize, usize, u64)>,
    /// Attempts whose files and staged commit are there.
    pub(crate) files: BTreeSet<u64>,
    /// Attempts whose files were taken away by somebody else.
    pub(crate) lost: BTreeSet<u64>,
    pub(crate) aborted: BTreeSet<u64>,
    /// Batch of each attempt; none for maintenance.
    pub(crate) opened: Vec<Option<u8>>,
    /// Versions by table that clients were told.
    pub(crate) acked: BTreeMap<u8, Vec<u64>>,
    pub(crate) crashes: u8,
    pub(crate) foreign: u8,
    pub(crate) losses: u8,
}

/// Log index of the first attempt; smaller ones are taken by grants and tables.
pub(crate) const FIRST_ATTEMPT: u64 = 100;

pub(crate) fn table_id(table: usize) -> TableId {
    TableId(format!("t{table}"))
}

pub(crate) fn batch_key(batch: u8) -> BatchKey {
    BatchKey {
        id: BatchId(batch.to_string()),
        input_digest: Digest([batch; 32]),
        sequence: None,
        logical_time_ms: None,
    }
}

/// Digest of what a slot holds; the bytes of one attempt differ from slot to slot.
pub(crate) fn digest(content: Content, slot: usize) -> Digest {
    let mut bytes = [0; 32];
    bytes[0] = match content {
        Content::Ours(attempt) => u8::try_from(attempt).unwrap(),
        Content::Foreign => 1,
        Content::Fence => 2,
    };
    bytes[1] = u8::try_from(slot).unwrap();
    Digest(bytes)
}

/// A digest that was never seen anywhere: what a mutant makes up.
pub(crate) const MADE_UP: Digest = Digest([0xff; 32]);

impl World {
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut state = State::new(WriterId(1));
        let coordinators = (0..2)
            .map(|node| {
                let grant = Grant {
                    node: NodeId(node),
                    role: Role::Coordinator,
                };
                match apply(&mut state, node + 1, &Entry::Grant(grant)) {
                    Outcome::Granted(epoch) => Coordinator {
                        epoch,
                        phase: Phase::Idle,
                    },
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        for table in 0..limits.tables {
            let name = format!("t{table}");
            let create = CreateTable {
                table: table_id(table),
                name: name.clone(),
                location: name,
                epoch: None,
            };
            apply(&mut state, 10, &Entry::CreateTable(create));
        }
        state.last_applied = 0;
        Self {
            state,
            slots: vec![vec![None; limits.slots]; limits.tables],
            coordinators,
            in_flight: BTreeSet::new(),
            files: BTreeSet::new(),
            lost: BTreeSet::new(),
            aborted: BTreeSet::new(),
            opened: Vec::new(),
            acked: BTreeMap::new(),
            crashes: limits.crashes,
            foreign: limits.foreign,
            losses: limits.losses,
        }
    }

    pub(crate) fn table(&self, table: usize) -> &TableState {
        &self.state.tables[&table_id(table)]
    }

    /// Proposes an entry. The log index counts only where it names something, so that equal worlds are equal.
    pub(crate) fn propose(&mut self, entry: &Entry) -> Outcome {
        let index = match entry {
            Entry::OpenAttempt(_) => FIRST_ATTEMPT + self.opened.len() as u64,
            Entry::Grant(_) => 20 + u64::from(self.crashes),
            _ => u64::MAX,
        };
        let outcome = apply(&mut self.state, index, entry);
        self.state.last_applied = 0;
        if let (Outcome::Aborted, Entry::Abort(abort)) = (&outcome, entry) {
            self.aborted.insert(abort.attempt);
        }
        outcome
    }

    pub(crate) fn batch_of(&self, attempt: u64) -> Option<u8> {
        self.opened[usize::try_from(attempt - FIRST_ATTEMPT).unwrap()]
    }

    /// Versions by table of a batch that is in all of them.
    pub(crate) fn final_versions(&self, batch: u8) -> Option<Vec<u64>> {
        let versions = (0..self.slots.len()).map(|table| {
            match self.table(table).standing(&batch_key(batch)) {
                Standing::Final { version } => Some(version.0),
                _ => None,
            }
        });
        versions.collect()
    }

    pub(crate) fn broken_invariant(&self) -> Option<String> {
        for (table, slots) in self.slots.iter().enumerate() {
            let filled = slots.iter().take_while(|slot| slot.is_some()).count();
            if slots.iter().skip(filled).any(Option::is_some) {
                return Some("the log has a hole".into());
            }
            if self
                .table(table)
                .head
                .is_some_and(|head| head.0 >= filled as u64)
            {
                return Some("the head is beyond the log".into());
            }
            let mut batches = BTreeSet::new();
            for content in slots.iter().flatten() {
                let Content::Ours(attempt) = content else {
                    continue;
                };
                if self
                    .batch_of(*attempt)
                    .is_some_and(|batch| !batches.insert(batch))
                {
                    return Some("a batch is in two versions".into());
                }
                if !self.files.contains(attempt) && !self.lost.contains(attempt) {
                    return Some("a version names deleted files".into());
                }
                if self.aborted.contains(attempt) {
                    return Some("a version holds an aborted attempt".into());
                }
            }
        }
        for (batch, versions) in &self.acked {
            for (table, version) in versions.iter().enumerate() {
                let slot = self.slots[table][usize::try_from(*version).unwrap()];
                let holds = match slot {
                    Some(Content::Ours(attempt)) => self.batch_of(attempt) == Some(*batch),
                    _ => false,
                };
                if !holds {
                    return Some("an acknowledged batch is not in its version".into());
                }
            }
        }
        None
    }
}

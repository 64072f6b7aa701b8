//! What goes wrong, where and how often.

use crate::dice::Dice;

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// An object is written in place of what has its name.
    Put,
    /// An object is written if its name is free.
    Create,
    /// An object, or a part of it, is read.
    Get,
    /// Objects are listed.
    List,
    /// An object is deleted.
    Delete,
    /// An object is written in parts.
    Multipart,
}

impl Operation {
    /// Those that change something.
    pub const WRITES: [Self; 4] = [Self::Put, Self::Create, Self::Delete, Self::Multipart];
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Put,
        Self::Create,
        Self::Get,
        Self::List,
        Self::Delete,
        Self::Multipart,
    ];
}

/// A way to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Toxin {
    /// Not done, and failed.
    Fails,
    /// Done, but the answer is lost.
    AnswerLost,
    /// Failed now, done some operations later.
    Late,
    /// Not done, answered as a conflict (a 409 of S3).
    FalseConflict,
    /// Done, and answered as a conflict: a retry inside the client met its own success (412).
    OwnConflict,
    /// Not done, "slow down", for some operations in a row.
    SlowDown,
    /// No answer in time: done or not.
    TimedOut,
    /// The body ends before the length that was announced.
    Truncated,
    /// A range comes back shorter than asked, and says so.
    ShortRange,
    /// A bit of the body is another.
    BitFlip,
    /// The listing lacks its newest name.
    StaleList,
    /// Answered as deleted, and still there.
    SilentDelete,
    /// Writes are refused: a store that became read-only.
    ReadOnly,
    /// Everything is refused: credentials that have expired.
    Unauthorized,
}

impl Toxin {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Fails,
        Self::AnswerLost,
        Self::Late,
        Self::FalseConflict,
        Self::OwnConflict,
        Self::SlowDown,
        Self::TimedOut,
        Self::Truncated,
        Self::ShortRange,
        Self::BitFlip,
        Self::StaleList,
        Self::SilentDelete,
        Self::ReadOnly,
        Self::Unauthorized,
    ];

    /// The operations that it can spoil.
    #[must_use]
    pub fn operations(self) -> &'static [Operation] {
        match self {
            Self::Fails | Self::SlowDown | Self::TimedOut | Self::Unauthorized => &Operation::ALL,
            Self::AnswerLost => &[Operation::Put, Operation::Create, Operation::Delete],
            Self::Late => &[Operation::Put, Operation::Create],
            Self::FalseConflict | Self::OwnConflict => &[Operation::Create],
            Self::Truncated | Self::ShortRange | Self::BitFlip => &[Operation::Get],
            Self::StaleList => &[Operation::List],
            Self::SilentDelete => &[Operation::Delete],
            Self::ReadOnly => &Operation::WRITES,
        }
    }

    /// How many operations in a row it lasts once it strikes.
    fn burst(self) -> u64 {
        match self {
            Self::SlowDown => 8,
            Self::ReadOnly | Self::Unauthorized => 12,
            _ => 1,
        }
    }
}

/// A toxin, and when it strikes.
#[derive(Clone, Debug)]
pub struct Rule {
    toxin: Toxin,
    operations: Vec<Operation>,
    contains: &'static str,
    chance: usize,
    doses: Option<u64>,
    burst_left: u64,
    hits: u64,
}

impl Rule {
    /// Strikes every time, at everything that the toxin can spoil.
    #[must_use]
    pub fn new(toxin: Toxin) -> Self {
        Self {
            toxin,
            operations: toxin.operations().to_vec(),
            contains: "",
            chance: 100,
            doses: None,
            burst_left: 0,
            hits: 0,
        }
    }

    /// Only at these operations.
    #[must_use]
    pub fn at(mut self, operations: &[Operation]) -> Self {
        self.operations.retain(|known| operations.contains(known));
        self
    }

    /// Only at keys that contain a text.
    #[must_use]
    pub fn keys_with(mut self, text: &'static str) -> Self {
        self.contains = text;
        self
    }

    /// Only in that many of a hundred cases.
    #[must_use]
    pub fn chance(mut self, percent: usize) -> Self {
        self.chance = percent;
        self
    }

    /// Only that often; a burst counts once.
    #[must_use]
    pub fn doses(mut self, doses: u64) -> Self {
        self.doses = Some(doses);
        self
    }

    /// What goes wrong.
    #[must_use]
    pub fn toxin(&self) -> Toxin {
        self.toxin
    }

    /// How often it has struck.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Whether it strikes this operation.
    pub(super) fn strikes(&mut self, operation: Operation, key: &str, dice: &Dice) -> bool {
        if !self.operations.contains(&operation) || !key.contains(self.contains) {
            return false;
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            self.hits += 1;
            return true;
        }
        if self.doses == Some(0) || !dice.percent(self.chance) {
            return false;
        }
        self.doses = self.doses.map(|doses| doses - 1);
        self.burst_left = self.toxin.burst() - 1;
        self.hits += 1;
        true
    }
}

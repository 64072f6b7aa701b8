//! Deliberate bugs, by which the property tests are tested themselves.
//!
//! Always off, and compiled to nothing, unless the feature `mutants` is on; only the tests of `simulation`
//! turn it on. A bug is one line at the place that it spoils: `is_on(Mutant::…)`.

/// A deliberate bug. Each breaks one rule where an implementation would plausibly do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// Merge: a delete beats an upsert of its sequence (R-T1).
    DeleteWinsTie = 1,
    /// Merge: the stored row beats equal sequences, so that arrival decides (R-T2).
    StoredWinsTie,
    /// Merge: a delete clears no leaf that is older than it (R-N4).
    LeavesOutliveDeletes,
    /// Merge: an upsert at the purge horizon itself is taken (R-G4).
    HorizonIsOpen,
    /// Apply: a truncate meets only the keys that its batch names (R-X2).
    TruncateOfNamedKeys,
    /// Apply: the watermark is that of the batch and falls with it (R-W1).
    WatermarkFalls,
    /// Apply: a tombstone is purged at the end of its retention, not after it (R-G2).
    PurgeTooEarly,
    /// Apply: rows that die only by new rows of their key stay in their file (invariant 4).
    DeadRowsStay,
    /// Index: the oldest run answers first (invariant 4).
    OldestRunWins,
    /// Index: a key that is gone shows what older runs know of it (invariant 4).
    GoneIsForgotten,
    /// Index: the merge of runs keeps the oldest entry of a key (invariant 4).
    MergeKeepsOldest,
    /// Append: a record is known by its place alone (R-K7).
    PlaceAlone,
    /// Append: a record is known by its values alone (R-K7).
    ValuesAlone,
    /// Commit: a prepared commit is given up without evidence, when its store does not answer.
    AbortsOnTimeout,
    /// Commit: files of attempts whose outcome is open are collected.
    CollectsOpenAttempts,
    /// Commit: an attempt that was closed can still be prepared, until its files are gone.
    NoAttemptFence,
    /// Commit: a slot that is taken is taken for a stranger's.
    ExistsIsForeign,
    /// Commit: a slot that is taken is taken for ours.
    ExistsIsOurs,
    /// Commit: the slot is written before the log has prepared it.
    PublishesFirst,
    /// Commit: a conflict without effect moves the commit to the next slot.
    ConflictIsForeign,
    /// Commit: the batch is answered once it is prepared.
    AnswersEarly,
    /// Commit: files are removed after a failure, whatever became of the commit.
    CleansUnknown,
    /// Commit: whether a batch is in is looked up once, before its first try.
    NoDedup,
    /// Clean-up: files are noted as gone before they are.
    NotedBeforeDeleted,
    /// Clean-up: attempts of another group with the same number are cleaned up too.
    CleansByNumber,
    /// Recovery: what is prepared is taken for published.
    RecoveryFinalizes,
    /// Recovery: a commit is published although a file of it is lost.
    FilesUnchecked,
    /// Rebase: the marks in a commit keep the version that it did not get.
    MarksKeepVersion,
}

impl Mutant {
    /// Those of merge, apply and index.
    pub const OF_BATCHES: [Self; 13] = [
        Self::DeleteWinsTie,
        Self::StoredWinsTie,
        Self::LeavesOutliveDeletes,
        Self::HorizonIsOpen,
        Self::TruncateOfNamedKeys,
        Self::WatermarkFalls,
        Self::PurgeTooEarly,
        Self::DeadRowsStay,
        Self::OldestRunWins,
        Self::GoneIsForgotten,
        Self::MergeKeepsOldest,
        Self::PlaceAlone,
        Self::ValuesAlone,
    ];

    /// Those of the commit path: ten of the protocol, five of clean-up and recovery.
    pub const OF_COMMITS: [Self; 15] = [
        Self::AbortsOnTimeout,
        Self::CollectsOpenAttempts,
        Self::NoAttemptFence,
        Self::ExistsIsForeign,
        Self::ExistsIsOurs,
        Self::PublishesFirst,
        Self::ConflictIsForeign,
        Self::AnswersEarly,
        Self::CleansUnknown,
        Self::NoDedup,
        Self::NotedBeforeDeleted,
        Self::CleansByNumber,
        Self::RecoveryFinalizes,
        Self::FilesUnchecked,
        Self::MarksKeepVersion,
    ];
}

/// Whether a bug is on.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn is_on(_: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
static ON: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Whether a bug is on.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_on(mutant: Mutant) -> bool {
    ON.load(std::sync::atomic::Ordering::Relaxed) == mutant as u8
}

/// Turns one bug on in this process, or all off.
#[cfg(feature = "mutants")]
pub fn turn_on(mutant: Option<Mutant>) {
    let number = mutant.map_or(0, |mutant| mutant as u8);
    ON.store(number, std::sync::atomic::Ordering::Relaxed);
}

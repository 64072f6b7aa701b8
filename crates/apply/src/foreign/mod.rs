//! Commits of other engines, taken into what Tidegate keeps beside the rows (commit protocol, "Foreign
//! commits").
//!
//! [`integrate`] compares the version of the newest own commit with a later one that only others made, file
//! by file and then key by key, and says what a commit of its own must hold so that all is known again: it
//! rewrites the rows that others wrote, with hidden columns; it leaves tombstones for rows that others
//! deleted; the index gets their new places. No visible value changes with it.
//!
//! What several foreign commits did counts by its result: a row that one deleted and the next wrote again is
//! an update. `diff` finds files and rows that differ, `arrivals` gives hidden state to what came,
//! `burials` leaves tombstones for what went.

mod arrivals;
mod burials;
mod diff;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_change::spec::{ResolvedSpec, TableMode};
use tidegate_change::{AttemptId, Code, Error, Result};
use tidegate_delta::actions::{Action, AddFile};
use tidegate_delta::dv::{self, DeletionVector};
use tidegate_delta::{TableRoot, TableSnapshot};
use tidegate_index::is_said_twice;
use tidegate_merge::{MergeContext, MergeMode, MergeRules};

use crate::attempt_output::AttemptOutput;
use crate::index_rebuild;
use crate::limits::Limits;
use crate::output::Output;
use crate::progress::{self, StateManifest, domain_action};
use crate::spill::SpillDirectory;
use crate::table::{Attempt, TableView};

use diff::{Deaths, FileDiff};

/// Two versions of a table, and the attempt that takes the difference in.
#[derive(Clone, Debug)]
pub struct ForeignWork {
    /// Where the table lies.
    pub root: TableRoot,
    /// The version of the newest own commit.
    pub before: Arc<TableSnapshot>,
    /// The newest version; all commits between the two are others'.
    pub after: Arc<TableSnapshot>,
    /// The spec.
    pub resolved: ResolvedSpec,
    /// The attempt whose name every file carries.
    pub attempt: AttemptId,
    /// When the deletes of others arrive, ms since the epoch.
    pub now_ms: i64,
    /// Whether the index of `before` is made anew first: a run of it is lost or damaged.
    pub rebuild_index: bool,
    /// Memory and temporary space.
    pub limits: Limits,
}

/// What a commit must say so that Tidegate knows all rows again.
#[derive(Clone, Debug, Default)]
pub struct Integration {
    /// Actions of the commit, in order; none changes a visible value.
    pub actions: Vec<Action>,
    /// What was found.
    pub counts: ForeignCounts,
}

/// What commits of others did to a table, by its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForeignCounts {
    /// Rows of new keys.
    pub inserted: u64,
    /// Rows whose values differ from those before.
    pub updated: u64,
    /// Rows that were only rewritten.
    pub rewritten: u64,
    /// Rows that are gone.
    pub deleted: u64,
}

impl ForeignWork {
    /// Whether there is anything to take in: rows of append tables need nothing.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let diff = FileDiff::of(&self.before, &self.after);
        let is_append = self.resolved.spec.mode == TableMode::Append;
        let needs_nothing = diff.is_empty() || (is_append && diff.is_append());
        !needs_nothing
    }
}

/// Takes in what others did between two versions.
///
/// # Errors
/// `FOREIGN_DUPLICATE` and `FOREIGN_REWRITE` for what cannot be taken in without losing or inventing
/// something, with the reason; damage of the index; failures of storage.
pub async fn integrate(work: &ForeignWork) -> Result<Integration> {
    let diff = FileDiff::of(&work.before, &work.after);
    if work.resolved.spec.mode == TableMode::Append && !diff.is_append() {
        return Err(rewritten(
            "rows of an append table were rewritten or deleted, which loses their places in the source",
        ));
    }
    let layout = work.resolved.layout()?;
    if layout.sequence_type.is_none() {
        return Err(rewritten(
            "rows were written before the first batch, which fixes the type of the sequence",
        ));
    }
    let directory = SpillDirectory::new(&work.limits, work.attempt);
    let mut table = TableView::open(
        &work.root,
        &work.before,
        work.before.schema().clone(),
        (work.resolved.clone(), layout),
        Attempt {
            id: work.attempt,
            now_ms: work.now_ms,
            sources: Vec::new(),
            first_file: 0,
        },
    )?;
    if work.rebuild_index {
        index_rebuild::rebuild(&mut table, &work.limits, &directory).await?;
    }
    let spec = &work.resolved.spec;
    let mode = MergeRules::new(&table.layout, spec, MergeContext::default())?.mode();
    let mut pass = Pass {
        deaths: Deaths::of(&table.root, &diff).await?,
        output: AttemptOutput::new(&work.limits, &directory)?,
        matched: BTreeMap::new(),
        counts: ForeignCounts::default(),
        chunk_bytes: work.limits.slice_bytes(1),
        table: &table,
        mode,
    };
    pass.take_arrivals(&diff).await?;
    pass.bury().await?;
    pass.finish(&diff).await
}

/// One integration.
struct Pass<'a> {
    table: &'a TableView,
    mode: MergeMode,
    deaths: Deaths,
    output: AttemptOutput,
    /// By file of `before`: rows that died and that a row of the same key took the place of.
    matched: BTreeMap<Arc<str>, DeletionVector>,
    counts: ForeignCounts,
    /// Bytes of rows that are handled at once.
    chunk_bytes: usize,
}

impl Pass<'_> {
    /// Whether deletes mean anything to the table.
    fn takes_deletes(&self) -> bool {
        match self.mode {
            MergeMode::Last | MergeMode::Flagged => true,
            MergeMode::First | MergeMode::Once => false,
        }
    }

    async fn keep(&mut self, output: Output) -> Result<()> {
        self.output.take(output).await.map_err(doubled)
    }

    async fn finish(mut self, diff: &FileDiff) -> Result<Integration> {
        let table = self.table;
        let now_ms = table.now_ms;
        let mut actions: Vec<Action> = Vec::new();
        for add in &diff.added {
            actions.push(Action::Remove(add.to_remove(now_ms, false)));
        }
        let (mut files, mut vectors): (Vec<Arc<AddFile>>, Vec<_>) = (Vec::new(), Vec::new());
        for revised in &diff.revised {
            actions.push(Action::Remove(revised.after.to_remove(now_ms, false)));
            if let Some(vector) = self.deaths.remains(&revised.before)? {
                files.push(Arc::clone(&revised.before));
                vectors.push(vector);
            }
        }
        // Vectors get names of our own, so that the table is as if nobody else had ever written it.
        let descriptors =
            dv::write_packed(&table.root, table.attempt, table.next_file(), &vectors).await?;
        for (file, descriptor) in files.iter().zip(descriptors) {
            actions.push(Action::Add(file.with_deletion_vector(descriptor, false)));
        }
        actions.extend(self.output.file_actions(table, false).await?);
        actions.extend(self.output.write_index(table).await.map_err(doubled)?);
        if !self.output.states.is_empty() {
            let mut states = table.states.files.clone();
            states.append(&mut self.output.states);
            let states = StateManifest { files: states };
            actions.push(domain_action(progress::STATE, &states)?);
        }
        Ok(Integration {
            actions,
            counts: self.counts,
        })
    }
}

/// A commit of others that cannot be taken in.
fn rewritten(why: impl Into<String>) -> Error {
    Error::new(Code::ForeignRewrite, why)
}

/// A row of others whose key has a row already.
fn duplicate(why: impl Into<String>) -> Error {
    Error::new(Code::ForeignDuplicate, why)
}

/// Two rows of others with one key, as the index finds them.
fn doubled(error: Error) -> Error {
    match is_said_twice(&error) {
        true => duplicate("two rows that others wrote have one key").with_source(error),
        false => error,
    }
}

/// A file that is gone or damaged for good is a reason to refuse, a store that does not answer is none.
fn unreadable(what: &str, error: Error) -> Error {
    match error.code() {
        Code::NotFound | Code::Corrupt | Code::Unsupported => {
            rewritten(format!("{what}: {error}")).with_source(error)
        }
        _ => error,
    }
}

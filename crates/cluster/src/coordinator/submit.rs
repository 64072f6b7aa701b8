//! One batch, from its key to its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tidegate_apply::work::SourceFile;
use tidegate_apply::{BatchObserver, BatchPhase, BatchProgress, Manifest, Work, is_index_damage};
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::spec::ResolvedSpec;
use tidegate_change::{BatchId, BatchResult, Code, Error, Kind, Result, TableVersion};
use tidegate_delta::actions::SPEC_DOMAIN;
use tidegate_delta::{DeltaLog, TableSnapshot};

use super::Coordinator;
use super::answer::stored_answer;
use super::draft::{CommitDraft, Draft};
use super::right::LOSSES_MAX;
use crate::cancellation::Cancellation;
use crate::metadata::{
    Abort, BatchKey, CommitKind, Entry, OffsetRange, OpenAttempt, Outcome, Prepare, PreparePart,
    Refusal, Standing, TableId, TableState, Watermark,
};

/// Executions of one batch before the caller is told that it always loses.
const TRIES_MAX: u32 = 32;

/// A batch as it is submitted.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// Name of the table.
    pub table: String,
    /// Id and content of the batch.
    pub key: BatchKey,
    /// The sources.
    pub sources: Vec<SourceFile>,
    /// Offsets that the submitter sends; they must begin where the table's end.
    pub offsets: BTreeMap<String, OffsetRange>,
    /// Execute and count, but commit nothing.
    pub dry_run: bool,
    /// Ends the batch with `CANCELLED`, unless it is prepared.
    pub cancellation: Cancellation,
    /// Who sees how far the batch is.
    pub observer: Option<Arc<dyn BatchObserver>>,
}

/// What one try came to.
enum Try {
    /// The batch is in the table.
    Answered(Box<BatchResult>),
    /// Another commit was first.
    Lost,
}

/// An open attempt on a version of a table.
#[derive(Debug)]
pub(super) struct OpenTry<'a> {
    pub(super) id: &'a TableId,
    pub(super) table: &'a TableState,
    pub(super) log: &'a DeltaLog,
    pub(super) attempt: u64,
}

impl OpenTry<'_> {
    /// A failure behind `Prepare`, after which only the slot decides.
    pub(super) fn undecided(&self, error: Error) -> Error {
        self.open_outcome(error).with_hint(
            "it is prepared: the next command that writes publishes it, once storage takes it; the same batch again gets its answer",
        )
    }

    /// A failure of `Prepare` itself, which may or may not be durable.
    fn unknown(&self, error: Error) -> Error {
        self.open_outcome(error).with_hint(
            "the next command that writes finds out whether it was prepared, and publishes it then; submit the same batch again",
        )
    }

    fn open_outcome(&self, error: Error) -> Error {
        let (table, version) = (&self.table.name, self.table.next_version());
        error.context(format!(
            "table {table}: the outcome of version {version} is open"
        ))
    }

    /// The end of a try whose attempt was closed: the failure that ended the try is the one to report.
    pub(super) fn ended<T>(&self, tried: Result<T>, closed: Result<()>) -> Result<T> {
        if let (Err(_), Err(error)) = (&tried, &closed) {
            tracing::warn!(table = self.table.name, %error, "an attempt was not closed");
            return tried;
        }
        closed.and(tried)
    }
}

impl Coordinator {
    /// Applies a batch, once: the same batch again gets the same answer.
    ///
    /// # Errors
    /// `BATCH_CONTENT_MISMATCH` for an id that was used with other content, what refuses the batch, or what
    /// keeps its outcome from being known; then the same batch may be submitted again.
    pub async fn submit(&self, request: &BatchRequest) -> Result<BatchResult> {
        let (id, _) = self.table_named(&request.table).await?;
        let lock = self.lock_of(&id);
        let waiting = async { Ok(lock.lock().await) };
        let _working = request.cancellation.guard(waiting).await?;
        let mut rebuild_index = false;
        let mut losses_count = 0;
        for n in 0..TRIES_MAX {
            let asks = n == 0 || !is_on(Mutant::NoDedup);
            match self.try_batch(&id, request, (rebuild_index, asks)).await {
                Ok(Try::Answered(result)) => return Ok(*result),
                Ok(Try::Lost) => {}
                Err(error) if error.kind() == Kind::Conflict => {
                    tracing::debug!(table = request.table, %error, "a batch starts over");
                }
                // A new attempt, so that what this one wrote is collected as any other's.
                Err(error) if !rebuild_index && is_index_damage(&error) => {
                    let table = &request.table;
                    tracing::warn!(table, %error, "the key index is rebuilt from the table");
                    if let Some(observer) = &request.observer {
                        observer.warn(&format!(
                            "table {table}: the key index is rebuilt from the table: {error}"
                        ));
                    }
                    rebuild_index = true;
                }
                Err(error) => {
                    losses_count += 1;
                    if losses_count > LOSSES_MAX || !self.may_go_on(&id, &error).await? {
                        return Err(error);
                    }
                    tracing::debug!(table = request.table, %error, "a batch is taken up again");
                }
            }
        }
        let message = format!("table {}: other commits were always first", request.table);
        Err(Error::new(Code::CommitConflict, message))
    }

    /// The answer to a batch that is in the table already; none to one that is not.
    ///
    /// # Errors
    /// As [`Self::submit`], for a batch that cannot be taken any more.
    pub async fn answer_to(&self, table: &str, key: &BatchKey) -> Result<Option<BatchResult>> {
        let (_, table) = self.table_named(table).await?;
        match table.standing(key) {
            Standing::New => Ok(None),
            Standing::Final { version } => {
                let log = self.log(&table)?;
                let answer = stored_answer(&log, &table.name, &key.id, version).await?;
                Ok(Some(answer))
            }
            standing => Err(refused(standing, &table.name)),
        }
    }

    /// The result of a batch that is in the table, by its id alone; none where it is not known there.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the log says.
    pub async fn result_of(&self, table: &str, id: &BatchId) -> Result<Option<BatchResult>> {
        let (_, table) = self.table_named(table).await?;
        let log = self.log(&table)?;
        if let Some(mark) = table.marks.iter().rev().find(|mark| mark.id == *id) {
            let answer = stored_answer(&log, &table.name, id, mark.version).await?;
            return Ok(Some(answer));
        }
        // Older batches are found in their commits as long as these are there.
        let oldest = table.marks.front().map(|mark| mark.version);
        let entries = match oldest {
            Some(oldest) => log.history_below(Some(oldest), None).await?,
            None => Vec::new(),
        };
        for entry in entries {
            let version = entry.version;
            let result = entry.info.batch_result();
            let result = result.map_err(|e| e.context(format!("version {version}")))?;
            if let Some(result) = result.filter(|result| result.batch_id == *id) {
                return Ok(Some(BatchResult { version, ..result }));
            }
        }
        Ok(None)
    }

    /// One try; `asks` is off only under a deliberate bug, which looks a batch up once.
    async fn try_batch(
        &self,
        id: &TableId,
        request: &BatchRequest,
        (rebuild_index, asks): (bool, bool),
    ) -> Result<Try> {
        self.resolve(id).await?;
        let table = self.table(id).await?;
        let log = self.log(&table)?;
        match table.standing(&request.key) {
            Standing::New => {}
            Standing::Final { .. } if !asks => {}
            Standing::Final { version } => {
                let answer = stored_answer(&log, &table.name, &request.key.id, version).await?;
                return Ok(Try::Answered(Box::new(answer)));
            }
            standing => return Err(refused(standing, &table.name)),
        }
        table
            .require_active()
            .map_err(|refusal| refusal.into_error(&table.name))?;
        self.close_leftovers(id, &table).await?;
        let table = self.follow_log(id).await?;
        let Some(head) = table.head else {
            return Err(Refusal::TableUnknown.into_error(&table.name));
        };
        let entry = OpenAttempt {
            table: id.clone(),
            epoch: self.epoch().await?,
            kind: CommitKind::Batch,
            batches: vec![request.key.clone()],
            proposed_ms: self.parts.clock.now_ms(),
        };
        let attempt = match self.propose(Entry::OpenAttempt(entry)).await?.outcome {
            Outcome::AttemptOpened(attempt) => attempt.index,
            Outcome::Refused(Refusal::BatchFinal { .. }) => return Ok(Try::Lost),
            Outcome::Refused(refusal) => return Err(refusal.into_error(&table.name)),
            _ => return Err(Error::internal("an attempt was not opened")),
        };
        let open = OpenTry {
            id,
            table: &table,
            log: &log,
            attempt,
        };
        let run = self.run_attempt(&open, head, request, rebuild_index);
        let tried = run.await;
        if matches!(&tried, Ok(Try::Answered(_)) if !request.dry_run) {
            return tried;
        }
        let closed = self.give_up(&open).await;
        open.ended(tried, closed)
    }

    async fn run_attempt(
        &self,
        open: &OpenTry<'_>,
        head: TableVersion,
        request: &BatchRequest,
        rebuild_index: bool,
    ) -> Result<Try> {
        let started = self.parts.clock.monotonic_ns();
        let head = (head, open.table.head_digest);
        let snapshot = self.snapshots.at(open.id, open.log, head).await?;
        let manifest = self.execute(open, snapshot, request, rebuild_index).await?;
        let version = open.table.next_version();
        let result = BatchResult {
            table: open.table.name.clone(),
            batch_id: request.key.id.clone(),
            version,
            watermark: manifest.watermark.clone(),
            offsets: next_offsets(&manifest.offsets, &request.offsets),
            counters: manifest.counters,
            other: manifest.other.clone(),
            seconds: seconds(self.parts.clock.monotonic_ns().saturating_sub(started)),
        };
        if request.dry_run {
            return Ok(Try::Answered(Box::new(result)));
        }
        tell_committing(request, &manifest);
        let time_ms = self.commit_time(open.table);
        let offsets = risen(open.table, &result.offsets);
        let draft = Draft {
            id: open.id,
            table: open.table,
            attempt: self.attempt_id(open.attempt),
            kind: CommitKind::Batch,
            batches: std::slice::from_ref(&request.key),
            operation: "MERGE",
            result: Some(&result),
            offsets: &offsets,
            actions: manifest.actions,
            time_ms,
        }
        .build()?;
        let progress = Progress {
            offsets: ranges(&offsets, &request.offsets),
            watermark: watermark(&manifest.watermark),
        };
        request.cancellation.check()?;
        if !self.prepare(open, &draft, time_ms, progress).await? {
            return Ok(Try::Lost);
        }
        if is_on(Mutant::AnswersEarly) {
            return Ok(Try::Answered(Box::new(result)));
        }
        let resolved = self.resolve(open.id).await;
        resolved.map_err(|e| open.undecided(e))?;
        let table = self.table(open.id).await?;
        match table.standing(&request.key) {
            Standing::Final { version: at } if at == version => Ok(Try::Answered(Box::new(result))),
            Standing::Final { version: at } => {
                let name = &open.table.name;
                let answer = stored_answer(open.log, name, &request.key.id, at).await?;
                Ok(Try::Answered(Box::new(answer)))
            }
            _ => Ok(Try::Lost),
        }
    }

    async fn execute(
        &self,
        open: &OpenTry<'_>,
        snapshot: Arc<TableSnapshot>,
        request: &BatchRequest,
        rebuild_index: bool,
    ) -> Result<Manifest> {
        let work = Work {
            root: open.log.root().clone(),
            location: open.table.location.clone(),
            resolved: resolved_spec(&open.table.name, &snapshot)?,
            snapshot,
            attempt: self.attempt_id(open.attempt),
            now_ms: self.parts.clock.now_ms(),
            sources: request.sources.clone(),
            rebuild_index,
            limits: self.options.limits.clone(),
            observer: request.observer.clone(),
        };
        let manifest = self.parts.workers.execute(work);
        request.cancellation.guard(manifest).await
    }

    /// Proposes `Prepare`; false when another commit was first.
    pub(super) async fn prepare(
        &self,
        open: &OpenTry<'_>,
        draft: &CommitDraft,
        time_ms: i64,
        progress: Progress,
    ) -> Result<bool> {
        let version = open.table.next_version();
        let bytes = self.stage(open.log, open.attempt, version, draft).await?;
        let part = PreparePart {
            table: open.id.clone(),
            attempt: open.attempt,
            expected: open.table.head,
            commit_digest: draft.digest,
            bytes,
            offsets: progress.offsets,
            watermark: progress.watermark,
            time_ms,
        };
        let entry = Prepare {
            parts: vec![part],
            proposed_ms: self.parts.clock.now_ms(),
        };
        if is_on(Mutant::PublishesFirst) {
            let _ = open.log.create_commit(version, draft.bytes.clone()).await;
        }
        let proposed = self.propose(Entry::Prepare(entry)).await;
        match proposed.map_err(|e| open.unknown(e))?.outcome {
            Outcome::Prepared(_) => Ok(true),
            Outcome::Refused(
                Refusal::HeadMoved { .. }
                | Refusal::PendingExists { .. }
                | Refusal::BatchFinal { .. },
            ) => Ok(false),
            Outcome::Refused(refusal) => Err(refusal.into_error(&open.table.name)),
            _ => Err(Error::internal("a commit was not prepared")),
        }
    }

    /// Closes an attempt that got no version and collects its files; one that is prepared stays.
    pub(super) async fn give_up(&self, open: &OpenTry<'_>) -> Result<()> {
        if is_on(Mutant::CleansUnknown) {
            self.delete_files(open.log, &BTreeSet::from([open.attempt]))
                .await?;
        }
        let entry = Abort {
            table: open.id.clone(),
            attempt: open.attempt,
            evidence: None,
        };
        self.propose(Entry::Abort(entry)).await?;
        // Files that stay are found again at the next opening.
        if let Err(error) = self.clean_up(open.id).await {
            tracing::warn!(table = open.table.name, %error, "files of an attempt were not removed");
        }
        Ok(())
    }

    /// The time of the next commit, which rises with every version whatever the clock does.
    pub(super) fn commit_time(&self, table: &TableState) -> i64 {
        let now = self.parts.clock.now_ms();
        if table.head.is_some() {
            now.max(table.head_time_ms + 1)
        } else {
            now
        }
    }
}

fn tell_committing(request: &BatchRequest, manifest: &Manifest) {
    if let Some(observer) = &request.observer {
        observer.observe(BatchProgress {
            phase: BatchPhase::Committing,
            events_read: manifest.counters.events,
            ..BatchProgress::default()
        });
    }
}

/// What a commit does to the table's progress.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) offsets: BTreeMap<String, OffsetRange>,
    pub(super) watermark: Option<Watermark>,
}

/// The spec that a version of a table stores.
pub(super) fn resolved_spec(table: &str, snapshot: &TableSnapshot) -> Result<ResolvedSpec> {
    let text = snapshot.domains.get(SPEC_DOMAIN).ok_or_else(|| {
        Error::corrupt(format!(
            "table {table}: version {} holds no spec",
            snapshot.version
        ))
    })?;
    serde_json::from_str(text)
        .map_err(|e| Error::corrupt(format!("table {table}: the stored spec")).with_source(e))
}

fn refused(standing: Standing, table: &str) -> Error {
    match standing.require_new() {
        Err(refusal) => refusal.into_error(table),
        Ok(()) => Error::internal("a new batch was refused"),
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

fn watermark(value: &Value) -> Option<Watermark> {
    (!value.is_null()).then(|| Watermark {
        json: value.to_string(),
        order: Vec::new(),
    })
}

/// Next offsets of a batch: those that were sent, and those found in records.
fn next_offsets(
    found: &BTreeMap<String, i64>,
    sent: &BTreeMap<String, OffsetRange>,
) -> BTreeMap<String, i64> {
    let mut offsets = found.clone();
    offsets.extend(
        sent.iter()
            .map(|(partition, range)| (partition.clone(), range.to)),
    );
    offsets
}

/// The offsets that are above the table's: a replayed file never takes an offset back.
fn risen(table: &TableState, offsets: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    let rises = |partition: &String, next: &i64| {
        table
            .offsets
            .get(partition)
            .is_none_or(|known| next > known)
    };
    offsets
        .iter()
        .filter(|(partition, next)| rises(partition, next))
        .map(|(partition, next)| (partition.clone(), *next))
        .collect()
}

fn ranges(
    risen: &BTreeMap<String, i64>,
    sent: &BTreeMap<String, OffsetRange>,
) -> BTreeMap<String, OffsetRange> {
    let found = risen.iter().map(|(partition, next)| {
        (
            partition.clone(),
            OffsetRange {
                from: None,
                to: *next,
            },
        )
    });
    let mut ranges: BTreeMap<_, _> = found.collect();
    ranges.extend(
        sent.iter()
            .map(|(partition, range)| (partition.clone(), *range)),
    );
    ranges
}

//! The exact bytes of a commit.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::{AttemptId, BatchResult, Digest, Error, Result, TableVersion};
use tidegate_delta::actions::{Action, CommitInfo, Txn, parse_commit, to_bytes};
use tidegate_delta::names;

use super::{answer, marks};
use crate::metadata::{BatchKey, BatchMark, CommitKind, ProducerMark, TableId, TableState};

/// Who writes the commits.
const ENGINE_INFO: &str = concat!("Tidegate/", env!("CARGO_PKG_VERSION"));

/// What a commit is made of.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) id: &'a TableId,
    pub(super) table: &'a TableState,
    pub(super) attempt: AttemptId,
    pub(super) kind: CommitKind,
    pub(super) batches: &'a [BatchKey],
    /// What history shows.
    pub(super) operation: &'static str,
    pub(super) result: Option<&'a BatchResult>,
    /// Next offsets by `source/partition`.
    pub(super) offsets: &'a BTreeMap<String, i64>,
    pub(super) actions: Vec<Action>,
    /// In-commit timestamp, milliseconds.
    pub(super) time_ms: i64,
}

/// Bytes of a commit with their digest.
#[derive(Clone, Debug)]
pub(super) struct CommitDraft {
    pub(super) bytes: Bytes,
    pub(super) digest: Digest,
}

impl CommitDraft {
    fn of(actions: &[Action]) -> Result<Self> {
        let bytes = to_bytes(actions)?;
        Ok(Self {
            digest: Digest::of(&bytes),
            bytes,
        })
    }
}

impl Draft<'_> {
    /// Builds the commit for the version after the table's head.
    pub(super) fn build(self) -> Result<CommitDraft> {
        let version = self.table.next_version();
        let mut actions = vec![Action::CommitInfo(self.commit_info())];
        for (partition, next) in self.offsets {
            actions.push(Action::Txn(Txn {
                app_id: format!("{}/{partition}", self.id),
                version: *next,
                last_updated: Some(self.time_ms),
            }));
        }
        let new: Vec<_> = self
            .batches
            .iter()
            .map(|batch| BatchMark {
                id: batch.id.clone(),
                input_digest: batch.input_digest,
                version,
                time_ms: self.time_ms,
            })
            .collect();
        actions.extend(marks::mark_actions(self.table, &new)?);
        if self.batches.iter().any(|batch| batch.sequence.is_some()) {
            let mut producers = self.table.producers.clone();
            for sequence in self
                .batches
                .iter()
                .filter_map(|batch| batch.sequence.as_ref())
            {
                let mark = ProducerMark {
                    producer_epoch: sequence.producer_epoch,
                    number: sequence.number,
                };
                producers.insert(sequence.source.clone(), mark);
            }
            actions.push(marks::producers_action(producers)?);
        }
        actions.extend(self.actions);
        CommitDraft::of(&actions)
    }

    fn commit_info(&self) -> CommitInfo {
        let added = self
            .actions
            .iter()
            .filter(|action| matches!(action, Action::Add(_)))
            .count();
        let removed = self
            .actions
            .iter()
            .filter(|action| matches!(action, Action::Remove(_)))
            .count();
        let mut info = CommitInfo {
            in_commit_timestamp: Some(self.time_ms),
            timestamp: Some(self.time_ms),
            operation: Some(self.operation.to_owned()),
            engine_info: Some(ENGINE_INFO.to_owned()),
            txn_id: Some(self.attempt.to_string()),
            ..CommitInfo::default()
        };
        if let Some(result) = self.result {
            let counters = &result.counters;
            let metrics = [
                ("numTargetRowsInserted", counters.inserted),
                ("numTargetRowsUpdated", counters.updated),
                ("numTargetRowsDeleted", counters.deleted),
                ("numSourceRows", counters.events),
                ("numTargetFilesAdded", added as u64),
                ("numTargetFilesRemoved", removed as u64),
                ("numOutputBytes", counters.bytes_written),
            ];
            info.operation_metrics = metrics
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count.to_string()))
                .collect();
            let ids: Vec<_> = self.batches.iter().map(|batch| &batch.id).collect();
            info.operation_parameters
                .insert("batches".into(), json!(ids).to_string());
        }
        if let Some(head) = self.table.head {
            info.other.insert("readVersion".into(), json!(head));
        }
        info.other
            .insert("isolationLevel".into(), Value::from("Serializable"));
        info.other
            .insert("isBlindAppend".into(), Value::from(false));
        let own = answer::own_field(self.kind, self.batches, self.result, (added, removed));
        answer::put(&mut info, own);
        info
    }
}

/// The bytes of a prepared commit for another version: everything that names the version moves with it.
pub(super) fn rebased(
    bytes: &[u8],
    from: TableVersion,
    to: TableVersion,
    time_ms: i64,
) -> Result<CommitDraft> {
    let mut actions = parse_commit(&names::commit(from), bytes)?;
    for action in &mut actions {
        match action {
            Action::CommitInfo(info) => {
                info.in_commit_timestamp = Some(time_ms);
                info.timestamp = Some(time_ms);
                info.other.insert("readVersion".into(), json!(from));
                answer::move_result(info, to);
            }
            Action::Domain(_) if is_on(Mutant::MarksKeepVersion) => {}
            Action::Domain(domain) => marks::move_marks(domain, from.0, to.0, time_ms)?,
            _ => {}
        }
    }
    CommitDraft::of(&actions)
}

/// A commit that changes nothing and only takes a slot away from a commit whose bytes are lost.
///
/// It names no transaction, so that everybody takes it for what it is: harmless and foreign.
pub(super) fn fence(attempt: AttemptId, time_ms: i64) -> Result<CommitDraft> {
    let mut info = CommitInfo {
        in_commit_timestamp: Some(time_ms),
        timestamp: Some(time_ms),
        operation: Some("FENCE".to_owned()),
        engine_info: Some(ENGINE_INFO.to_owned()),
        ..CommitInfo::default()
    };
    info.operation_parameters
        .insert("attempt".into(), attempt.to_string());
    CommitDraft::of(&[Action::CommitInfo(info)])
}

/// The in-commit timestamp of a commit's bytes, milliseconds.
pub(super) fn time_of(info: Option<&CommitInfo>) -> Result<i64> {
    info.and_then(|info| info.in_commit_timestamp.or(info.timestamp))
        .ok_or_else(|| Error::corrupt("a commit has no time"))
}

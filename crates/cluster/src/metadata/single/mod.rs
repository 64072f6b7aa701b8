//! A log with a single member, on redb: what embedded mode runs on.
//!
//! The log index of an entry is the number of its append. Every append is synced before it is applied;
//! proposals that wait for the sync of another one share the next. The state is written now and then in the
//! transaction that drops the log entries before it, so that opening replays a bounded suffix.
//!
//! A failed write is the end of this member: what the disk holds is then unknown, so nothing is retried and
//! every later proposal fails. Opening again reads what is really there.

mod backend;
mod frame;
mod lock;
mod log;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use async_trait::async_trait;
use tidegate_change::{Code, Error, Random, Result, WriterId};
use tidegate_delta::store::StepHook;

use super::{Entry, State, apply};
use crate::consensus::{Applied, Consensus};
use log::RaftLog;

pub use lock::DirectoryLock;

/// How to open a [`SingleMember`].
#[derive(Clone, Debug)]
pub struct SingleMemberOptions {
    /// Wait while another process holds the directory.
    pub wait_lock: bool,
    /// Called around every durable step.
    pub step_hook: Option<Arc<dyn StepHook>>,
    /// Where the writer id comes from.
    pub random: Arc<dyn Random>,
    /// Entries after which the state is written and the log dropped.
    pub snapshot_entries: u64,
}

impl SingleMemberOptions {
    /// The usual options.
    #[must_use]
    pub fn new(random: Arc<dyn Random>) -> Self {
        Self {
            wait_lock: false,
            step_hook: None,
            random,
            snapshot_entries: 128,
        }
    }
}

/// A durable log with one member.
#[derive(Debug)]
pub struct SingleMember {
    writer: WriterId,
    directory: PathBuf,
    queue: Mutex<Vec<Arc<Proposal>>>,
    log: Mutex<Writer>,
    state: RwLock<Arc<State>>,
    _lock: DirectoryLock,
}

#[derive(Debug)]
struct Writer {
    log: RaftLog,
    /// Why this member writes no more.
    failure: Option<Failure>,
}

/// The failure of a write: what the disk said.
#[derive(Clone, Debug)]
struct Failure {
    code: Code,
    why: String,
}

#[derive(Debug)]
struct Proposal {
    entry: Entry,
    result: OnceLock<Result<Applied, Failure>>,
}

impl SingleMember {
    /// Opens the log of a directory, or makes it; holds the directory until it is dropped.
    ///
    /// # Errors
    /// `DIRECTORY_HELD` when another process has it, `CORRUPT` when what it holds contradicts its checksums,
    /// or an I/O error.
    pub fn open(directory: &Path, options: &SingleMemberOptions) -> Result<Self> {
        fs::create_dir_all(directory).map_err(|e| Error::io(directory.display(), e))?;
        let lock = DirectoryLock::acquire(directory, options.wait_lock)?;
        let (log, state) = RaftLog::open(directory, options)?;
        Ok(Self {
            writer: state.writer,
            directory: directory.to_owned(),
            queue: Mutex::default(),
            log: Mutex::new(Writer { log, failure: None }),
            state: RwLock::new(Arc::new(state)),
            _lock: lock,
        })
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn failed(&self, failure: &Failure) -> Error {
        let message = format!(
            "metadata log in {}: a write failed: {}",
            self.directory.display(),
            failure.why
        );
        Error::new(failure.code, message)
            .with_hint("start again, which reads what the disk really holds")
    }

    /// Appends everything that waits in one transaction, then applies it.
    fn drain(&self, writer: &mut Writer) {
        let proposals =
            std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        if proposals.is_empty() {
            return;
        }
        if writer.failure.is_none() {
            let entries: Vec<_> = proposals.iter().map(|proposal| &proposal.entry).collect();
            if let Err(error) = writer.log.append(&entries, &self.state()) {
                tracing::error!(%error, "the metadata log failed");
                let why = error.to_string();
                writer.failure = Some(Failure {
                    code: error.code(),
                    why,
                });
            }
        }
        if let Some(failure) = &writer.failure {
            for proposal in &proposals {
                let _ = proposal.result.set(Err(failure.clone()));
            }
            return;
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let state = Arc::make_mut(&mut state);
        for proposal in &proposals {
            let index = state.last_applied + 1;
            let outcome = apply(state, index, &proposal.entry);
            let _ = proposal.result.set(Ok(Applied { index, outcome }));
        }
    }
}

#[async_trait]
impl Consensus for SingleMember {
    fn writer(&self) -> WriterId {
        self.writer
    }

    async fn propose(&self, entry: Entry) -> Result<Applied> {
        let proposal = Arc::new(Proposal {
            entry,
            result: OnceLock::new(),
        });
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&proposal));
        let mut writer = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever held the log may have taken this proposal along.
        if proposal.result.get().is_none() {
            self.drain(&mut writer);
        }
        drop(writer);
        match proposal.result.get() {
            Some(Ok(applied)) => Ok(applied.clone()),
            Some(Err(failure)) => Err(self.failed(failure)),
            None => Err(Error::internal("a proposal was lost")),
        }
    }

    async fn read(&self) -> Result<Arc<State>> {
        Ok(self.state())
    }
}

#[cfg(test)]
mod tests;

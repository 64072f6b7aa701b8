//! The one writer of a file: it drains what waits into one transaction, which is group commit.
//!
//! What waits for the disk says so by its [`Done`]; marks that may lag ride along with the next transaction
//! that somebody waits for. After a failure everything fails: what the disk holds is then unknown.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use openraft::storage::IOFlushed;
use tidegate_change::{Error, Result};
use tokio::sync::oneshot;

use super::disk::{Disk, Write};
use super::failure::FailureCell;
use crate::metadata::replicated::types::Types;

/// Where writes are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// On a thread of the store.
    #[default]
    Thread,
    /// In the task that writes: for simulated time, which must not pass while a thread works.
    Inline,
}

/// Who hears that a write is durable.
pub(super) enum Done {
    /// openraft, and the cache of entries.
    Flushed(IOFlushed<Types>, Arc<AtomicBool>),
    /// A task.
    Reply(oneshot::Sender<io::Result<()>>),
    /// Nobody: the write may wait for the next one.
    Nobody,
}

/// A write that waits.
struct Job {
    write: Write,
    done: Done,
}

/// A handle of the writer.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    side: Mutex<Side>,
    failure: Arc<FailureCell>,
}

#[derive(Debug)]
enum Side {
    Thread(Sender<Job>, JoinHandle<()>),
    Inline(Box<Worker>),
    Closed,
}

impl Writer {
    /// Starts a writer.
    ///
    /// # Errors
    /// When the process has no thread left.
    pub(super) fn start(disk: Disk, failure: Arc<FailureCell>, mode: WriteMode) -> Result<Self> {
        let worker = Worker {
            disk,
            failure: Arc::clone(&failure),
            waiting: Vec::new(),
        };
        let side = match mode {
            WriteMode::Inline => Side::Inline(Box::new(worker)),
            WriteMode::Thread => {
                let (sender, receiver) = channel();
                let thread = std::thread::Builder::new()
                    .name("metadata-log".into())
                    .spawn(move || worker.drain(&receiver))
                    .map_err(|e| Error::io("the thread of the metadata log", e))?;
                Side::Thread(sender, thread)
            }
        };
        Ok(Self {
            shared: Arc::new(Shared {
                side: Mutex::new(side),
                failure,
            }),
        })
    }

    /// Hands a write over; the order of calls is the order of writes.
    pub(super) fn submit(&self, write: Write, done: Done) {
        let mut side = self.side();
        let job = Job { write, done };
        match &mut *side {
            Side::Thread(sender, _) => {
                if let Err(lost) = sender.send(job) {
                    lost.0.done.complete(&Err(self.closed()));
                }
            }
            Side::Inline(worker) => worker.take([job]),
            Side::Closed => job.done.complete(&Err(self.closed())),
        }
    }

    /// Makes a write durable.
    pub(super) async fn write(&self, write: Write) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        self.submit(write, Done::Reply(sender));
        match receiver.await {
            Ok(result) => result,
            Err(_) => Err(self.closed()),
        }
    }

    /// Finishes what waits and ends the thread.
    pub(super) fn close(&self) {
        let side = std::mem::replace(&mut *self.side(), Side::Closed);
        if let Side::Thread(sender, thread) = side {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!("the thread of the metadata log panicked");
            }
        }
    }

    fn side(&self) -> std::sync::MutexGuard<'_, Side> {
        self.shared
            .side
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn closed(&self) -> io::Error {
        let closed = || io::Error::other("the metadata log is closed");
        self.shared.failure.io_error().unwrap_or_else(closed)
    }
}

impl Done {
    fn complete(self, result: &io::Result<()>) {
        let result = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match self {
            Self::Flushed(flushed, is_durable) => {
                is_durable.store(result.is_ok(), Ordering::Release);
                flushed.io_completed(result);
            }
            Self::Reply(sender) => {
                // Whoever asked may have gone away.
                let _ = sender.send(result);
            }
            Self::Nobody => {}
        }
    }
}

/// What writes.
#[derive(Debug)]
struct Worker {
    disk: Disk,
    failure: Arc<FailureCell>,
    waiting: Vec<Job>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("write", &self.write)
            .finish_non_exhaustive()
    }
}

impl Worker {
    fn drain(mut self, receiver: &Receiver<Job>) {
        while let Ok(first) = receiver.recv() {
            self.take(std::iter::once(first).chain(receiver.try_iter()));
        }
    }

    /// Writes what is given and what waits in one transaction, if anybody waits for it.
    fn take(&mut self, jobs: impl IntoIterator<Item = Job>) {
        self.waiting.extend(jobs);
        let nobody = |job: &Job| matches!(job.done, Done::Nobody);
        if self.waiting.iter().all(nobody) {
            return;
        }
        let jobs = std::mem::take(&mut self.waiting);
        if self.failure.error().is_none() {
            let writes: Vec<_> = jobs.iter().map(|job| &job.write).collect();
            if let Err(error) = self.disk.execute(&writes) {
                self.failure.set(&error);
            }
        }
        let result = self.failure.io_error().map_or(Ok(()), Err);
        for job in jobs {
            job.done.complete(&result);
        }
    }
}

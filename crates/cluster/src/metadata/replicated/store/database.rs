//! The redb file: opened once, shared with readers, closed exactly when its owner says so.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use redb::{Builder, Database};
use tidegate_change::{Code, Error, Result};
use tidegate_delta::store::{StepHook, StepKind};

use super::backend::HookedFile;
use crate::catalog::step;

const LOG_FILE: &str = "raft.redb";
const NEW_LOG_FILE: &str = "raft.redb.new";
/// redb's page cache; the newest entries and the state are in memory anyway.
const CACHE_BYTES: usize = 4 << 20;

/// How to open the file.
#[derive(Clone, Debug)]
pub(super) struct FileOptions {
    /// Called around every durable step.
    pub(super) step_hook: Option<Arc<dyn StepHook>>,
    /// Whether to verify the checksum of every page, not only of what is read.
    pub(super) check_integrity: bool,
}

/// A database that many hold and one closes.
///
/// Dropping redb's database writes to the file, so it must not outlive the lock of the directory: it is
/// taken out by [`Self::close`], after which every access fails.
#[derive(Clone, Debug)]
pub(super) struct SharedDatabase {
    database: Arc<RwLock<Option<Database>>>,
    path: Arc<Path>,
}

impl SharedDatabase {
    /// Opens the file of a directory; none where there is no file.
    pub(super) fn open(directory: &Path, options: &FileOptions) -> Result<Option<Self>> {
        let path = directory.join(LOG_FILE);
        let file = match open_file(&path, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path.display(), error)),
        };
        Ok(Some(Self::build(file, path, options)?))
    }

    /// Makes a file under another name, lets `fill` write its first transaction, and only then names it,
    /// so that a crash leaves no file rather than half of one.
    pub(super) fn create(
        directory: &Path,
        options: &FileOptions,
        fill: impl FnOnce(&Database) -> std::result::Result<(), redb::Error>,
    ) -> Result<Self> {
        let (path, new) = (directory.join(LOG_FILE), directory.join(NEW_LOG_FILE));
        let file = open_file(&new, true).map_err(|e| Error::io(new.display(), e))?;
        let shared = Self::build(file, path.clone(), options)?;
        shared.with(fill)?;
        let hook = options.step_hook.as_ref();
        step(hook, StepKind::Rename, &path, 0, || fs::rename(&new, &path))
            .and_then(|()| {
                step(hook, StepKind::SyncDirectory, directory, 0, || {
                    File::open(directory)?.sync_all()
                })
            })
            .map_err(|e| Error::io(path.display(), e))?;
        Ok(shared)
    }

    fn build(file: File, path: PathBuf, options: &FileOptions) -> Result<Self> {
        let backend = HookedFile::new(file, path.clone(), options.step_hook.clone());
        let open = || {
            Builder::new()
                .set_cache_size(CACHE_BYTES)
                .set_check_integrity_on_open(options.check_integrity)
                .create_with_backend(backend)
        };
        let database = guarded(&path, || open().map_err(redb::Error::from))?;
        Ok(Self {
            database: Arc::new(RwLock::new(Some(database))),
            path: path.into(),
        })
    }

    /// Runs something on the database.
    ///
    /// # Errors
    /// The error of redb by what the caller can do, `CORRUPT` where redb panics over what it reads, and
    /// `IO` when the database is closed.
    pub(super) fn with<T>(
        &self,
        run: impl FnOnce(&Database) -> std::result::Result<T, redb::Error>,
    ) -> Result<T> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = database.as_ref() else {
            let message = format!("metadata log {}: is closed", self.path.display());
            return Err(Error::new(Code::Io, message));
        };
        guarded(&self.path, || run(database))
    }

    /// Closes the file; returns when nobody uses it any more.
    pub(super) fn close(&self) {
        let database = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // redb asserts on a file that fails it while it closes; what is durable does not depend on it.
        if catch_unwind(AssertUnwindSafe(|| drop(database))).is_err() {
            tracing::warn!(path = %self.path.display(), "the metadata log was not closed cleanly");
        }
    }
}

/// Runs redb, which asserts where a damaged file surprises it.
fn guarded<T>(path: &Path, run: impl FnOnce() -> std::result::Result<T, redb::Error>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|e| failed(path, e)),
        Err(_) => Err(Error::corrupt(format!(
            "metadata log {}: contradicts itself",
            path.display()
        ))),
    }
}

fn open_file(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(create)
        .open(path)
}

/// The error of a redb call, told by what the caller can do.
fn failed(path: &Path, error: redb::Error) -> Error {
    match error {
        redb::Error::Io(e) => Error::io(path.display(), e),
        redb::Error::Corrupted(what) => {
            Error::corrupt(format!("metadata log {}: {what}", path.display()))
        }
        other => Error::new(
            Code::Io,
            format!("metadata log {}: cannot be read or written", path.display()),
        )
        .with_source(other),
    }
}

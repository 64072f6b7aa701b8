//! The lock of a directory: writers take it, readers do without.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use tidegate_change::{Code, Error, Result};

/// Name of the lock's file.
const LOCK_FILE: &str = "lock";

/// An exclusive lock that ends with the process at the latest.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the lock of a directory.
    ///
    /// # Errors
    /// `DIRECTORY_HELD` when another process has it and `wait` is off, or an I/O error.
    pub fn acquire(directory: &Path, wait: bool) -> Result<Self> {
        let path = directory.join(LOCK_FILE);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| Error::io(path.display(), e))?;
        let held = || {
            let message = format!(
                "directory {} is held by another process",
                directory.display()
            );
            Error::new(Code::DirectoryHeld, message).with_hint("wait for it with --wait-lock")
        };
        if wait {
            file.lock().map_err(|e| Error::io(path.display(), e))?;
        } else {
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => held(),
                TryLockError::Error(e) => Error::io(path.display(), e),
            })?;
        }
        Ok(Self { _file: file })
    }
}

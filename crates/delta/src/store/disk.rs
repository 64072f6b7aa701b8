//! The steps themselves: each runs between the two calls of the hook.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::step::{Step, StepHook, StepKind};

/// Begins the name of every file that has no final name yet; hidden from every reader by its dot.
pub(super) const TEMPORARY_PREFIX: &str = ".tidegate-tmp-";

/// Tries for a free temporary name before giving up.
const NAME_TRIES: u32 = 64;

/// File operations with a hook around each durable step.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) hook: Option<Arc<dyn StepHook>>,
}

/// A file under its temporary name; removed on drop unless it got its final name.
#[derive(Debug)]
pub(super) struct Temporary {
    path: PathBuf,
    file: File,
    disk: Disk,
    is_placed: bool,
}

impl Disk {
    fn step<T>(
        &self,
        kind: StepKind,
        path: &Path,
        bytes: u64,
        run: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(hook) = &self.hook else { return run() };
        let step = Step { kind, path, bytes };
        hook.before(&step)?;
        let done = run()?;
        hook.after(&step)?;
        Ok(done)
    }

    /// Makes a directory with its parents, durably.
    pub(super) fn create_directories(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            self.create_directories(parent)?;
        }
        let made = self.step(StepKind::CreateDirectory, path, 0, || fs::create_dir(path));
        match made {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e),
            Ok(()) => parent.map_or(Ok(()), |parent| self.sync_directory(parent)),
        }
    }

    pub(super) fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.step(StepKind::SyncDirectory, path, 0, || {
            File::open(path)?.sync_all()
        })
    }

    pub(super) fn delete(&self, path: &Path) -> io::Result<()> {
        self.step(StepKind::Delete, path, 0, || fs::remove_file(path))
    }

    /// A new file in the directory that the final name will be in, so that the name is one link away.
    pub(super) fn temporary(&self, beside: &Path) -> io::Result<Temporary> {
        let directory = beside.parent().unwrap_or_else(|| Path::new("."));
        for _ in 0..NAME_TRIES {
            let path = directory.join(temporary_name());
            let made = self.step(StepKind::CreateTemporary, &path, 0, || {
                OpenOptions::new().write(true).create_new(true).open(&path)
            });
            match made {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    self.create_directories(directory)?;
                }
                Err(e) => return Err(e),
                Ok(file) => {
                    return Ok(Temporary {
                        path,
                        file,
                        disk: self.clone(),
                        is_placed: false,
                    });
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "no free temporary name",
        ))
    }
}

impl Temporary {
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let disk = self.disk.clone();
        disk.step(StepKind::Append, &self.path, count, || {
            self.file.write_all(bytes)
        })
    }

    /// Makes the bytes durable and gives the file its name: only a free one, or any.
    ///
    /// ORDER: the bytes are durable before the name exists, and the name before the call returns.
    pub(super) fn place(mut self, target: &Path, overwrite: bool) -> io::Result<fs::Metadata> {
        let disk = self.disk.clone();
        disk.step(StepKind::Sync, &self.path, 0, || self.file.sync_all())?;
        let metadata = self.file.metadata()?;
        if overwrite {
            disk.step(StepKind::Rename, target, 0, || {
                fs::rename(&self.path, target)
            })?;
            self.is_placed = true;
        } else {
            disk.step(StepKind::Link, target, 0, || {
                fs::hard_link(&self.path, target)
            })?;
            self.is_placed = true;
            disk.delete(&self.path)?;
        }
        disk.sync_directory(target.parent().unwrap_or_else(|| Path::new(".")))?;
        Ok(metadata)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_placed {
            // What stays behind is found by `LocalStore::remove_temporaries`.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A name that no other process and no earlier call gives, by chance and by counting.
fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{TEMPORARY_PREFIX}{:016x}-{count}", hasher.finish())
}

//! The file below redb, with a hook around every durable step.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use redb::StorageBackend;
use tidegate_delta::store::{Step, StepHook, StepKind};

/// One file; locking is the directory lock's.
#[derive(Debug)]
pub(super) struct HookedFile {
    file: File,
    path: PathBuf,
    hook: Option<Arc<dyn StepHook>>,
}

impl HookedFile {
    pub(super) fn new(file: File, path: PathBuf, hook: Option<Arc<dyn StepHook>>) -> Self {
        Self { file, path, hook }
    }

    fn step(
        &self,
        kind: StepKind,
        bytes: usize,
        run: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(hook) = &self.hook else { return run() };
        let step = Step {
            kind,
            path: &self.path,
            bytes: bytes as u64,
        };
        hook.before(&step)?;
        run()?;
        hook.after(&step)
    }
}

impl StorageBackend for HookedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step(StepKind::Append, 0, || self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(StepKind::Sync, 0, || self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step(StepKind::Append, data.len(), || {
            self.file.write_all_at(data, offset)
        })
    }
}

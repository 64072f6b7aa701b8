//! Faults at the durable steps of a local directory: a hook that counts steps, ends the process at one
//! of them as `kill -9` does, or lets the disk fail from one of them on.

use std::io;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tidegate_delta::store::{Step, StepHook, StepKind};

/// Before or after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The step is not done.
    Before,
    /// The step is done, its outcome unseen.
    After,
}

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed before or after the step of that number, from 0.
    Kill(usize, Side),
    /// That step and all later ones fail; deleting still works, as it does on a full disk.
    FailFrom(usize, io::ErrorKind),
}

/// A step that a hook saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenStep {
    /// What it did.
    pub kind: StepKind,
    /// To which file or directory.
    pub path: String,
    /// Whether it was done; the disk may refuse it, as when a directory is still to be made.
    pub is_done: bool,
}

/// Counts steps and brings a fault about.
#[derive(Debug, Default)]
pub struct FaultHook {
    fault: Option<Fault>,
    steps: Mutex<Vec<SeenStep>>,
}

impl FaultHook {
    /// A hook that only counts.
    #[must_use]
    pub fn counting() -> Self {
        Self::default()
    }

    /// A hook that brings a fault about.
    #[must_use]
    pub fn with(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            steps: Mutex::default(),
        }
    }

    /// The steps seen so far.
    #[must_use]
    pub fn steps(&self) -> Vec<SeenStep> {
        self.steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl StepHook for FaultHook {
    fn before(&self, step: &Step<'_>) -> io::Result<()> {
        // The lock is held while the process ends, so that no other thread takes a step meanwhile.
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let number = steps.len();
        let path = step.path.to_string_lossy().into_owned();
        steps.push(SeenStep {
            kind: step.kind,
            path,
            is_done: false,
        });
        match self.fault {
            Some(Fault::Kill(at, Side::Before)) if at == number => kill_this_process(),
            Some(Fault::FailFrom(at, kind)) if number >= at && step.kind != StepKind::Delete => {
                Err(kind.into())
            }
            _ => Ok(()),
        }
    }

    fn after(&self, step: &Step<'_>) -> io::Result<()> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let same =
            |seen: &SeenStep| seen.kind == step.kind && seen.path == step.path.to_string_lossy();
        let last = steps.iter().rposition(same);
        if let Some(seen) = last.and_then(|last| steps.get_mut(last)) {
            seen.is_done = true;
        }
        match self.fault {
            Some(Fault::Kill(at, Side::After)) if Some(at) == last => kill_this_process(),
            _ => Ok(()),
        }
    }
}

/// Ends the process as `kill -9` does: no destructor runs and no buffer is flushed.
fn kill_this_process() -> ! {
    let killed = Command::new("kill")
        .args(["-9", &std::process::id().to_string()])
        .status();
    drop(killed);
    std::process::abort()
}

//! The property: for every history the product does what the model does. Runs many seeds; a failure is
//! shrunk and told with the command that runs it again.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::drivers::embedded::EmbeddedDriver;
use crate::drivers::merge::MergeDriver;
use crate::drivers::{Agreement, Driver, check};
use crate::histories::{random_history, shrink};
use crate::scenario::Scenario;

/// Checks spent on making one failure small.
const SHRINK_TRIES: usize = 600;
/// What drivers leave to chance is the same for all histories, so that a shrunk one still fails.
const DRIVER_SEED: u64 = 7;

/// How histories are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// `tidegate_merge` alone.
    Merge,
    /// Everything in one process, from files to rows and feed.
    Embedded,
    /// The same with so little memory that events go to files.
    Spilling,
}

impl Path {
    /// The path's name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Embedded => "embedded",
            Self::Spilling => "spilling",
        }
    }

    /// The path of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Merge, Self::Embedded, Self::Spilling]
            .into_iter()
            .find(|path| path.as_str() == name)
    }

    fn driver(self, history: &Scenario) -> Result<Box<dyn Driver>, String> {
        match self {
            Self::Merge => Ok(Box::new(MergeDriver::new(history, DRIVER_SEED)?)),
            Self::Embedded => Ok(Box::new(EmbeddedDriver::new(history, DRIVER_SEED, None)?)),
            Self::Spilling => {
                let memory = little_memory(history);
                let driver = EmbeddedDriver::new(history, DRIVER_SEED, Some(memory))?;
                Ok(Box::new(driver))
            }
        }
    }
}

/// Bytes of memory of a history's batches: none for some, for others so much that part of a batch fits.
/// They follow from the name, which shrinking keeps.
fn little_memory(history: &Scenario) -> u64 {
    let choices = [0, 20_000, 60_000, 200_000];
    let name: usize = history.id.bytes().map(usize::from).sum();
    choices.get(name % choices.len()).copied().unwrap_or(0)
}

/// Runs one history.
///
/// # Errors
/// The first difference between model and product, a panic included.
pub fn run(path: Path, history: &Scenario) -> Result<Agreement, String> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        check(history, &mut *path.driver(history)?)
    }));
    checked.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// A history on which model and product differ.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The history, made small.
    pub history: Scenario,
    /// What differs on it.
    pub difference: String,
}

/// Runs one seed.
///
/// # Errors
/// The shrunk failure.
pub fn run_seed(path: Path, seed: u64) -> Result<Agreement, Box<Failure>> {
    let history = random_history(seed);
    let difference = match run(path, &history) {
        Ok(agreement) => return Ok(agreement),
        Err(difference) => difference,
    };
    let history = shrink(&history, SHRINK_TRIES, |history| {
        run(path, history).is_err()
    });
    let difference = run(path, &history).err().unwrap_or(difference);
    Err(Box::new(Failure {
        seed,
        history,
        difference,
    }))
}

/// The first of some seeds on which model and product differ, and what differs; nothing is shrunk.
#[must_use]
pub fn first_difference(path: Path, seeds: Range<u64>) -> Option<(u64, String)> {
    seeds
        .into_iter()
        .find_map(|seed| Some((seed, run(path, &random_history(seed)).err()?)))
}

/// What many seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Where model and product differ, in the order of the seeds.
    pub failures: Vec<Failure>,
    /// Histories that could only be compared up to a batch whose outcome the rules leave open.
    pub open: u64,
}

/// Runs many seeds on all cores and stops after some failures.
#[must_use]
pub fn run_seeds(path: Path, seeds: Range<u64>, failures_max: usize) -> Survey {
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new(Survey::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || lock(&found).failures.len() >= failures_max {
                        return;
                    }
                    match run_seed(path, seed) {
                        Ok(Agreement::Whole) => {}
                        Ok(Agreement::UpToOpenRules) => lock(&found).open += 1,
                        Err(failure) => lock(&found).failures.push(*failure),
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.failures.sort_by_key(|failure| failure.seed);
    found
}

fn lock(found: &Mutex<Survey>) -> MutexGuard<'_, Survey> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Failure {
    /// The failure in words, with the commands that run it again.
    #[must_use]
    pub fn report(&self, path: Path) -> String {
        let history = serde_json::to_string(&self.history).unwrap_or_default();
        let (seed, path, difference) = (self.seed, path.as_str(), &self.difference);
        format!(
            "model and product differ for seed {seed}: {difference}\n\
             shrunk history:\n{history}\n\
             run it again: cargo run -p tidegate-simulation --example histories -- --path {path} --seed {seed}\n\
             or save the shrunk history and: … --example histories -- --path {path} --file FILE\n"
        )
    }
}

//! Which runs make up the index of a table version, and which of them a commit merges.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tidegate_change::{AttemptId, Error, Random, Result};

use crate::format::footer::Footer;

/// Most runs of an index; a commit that would have more merges some.
pub const RUNS_MAX: usize = 8;

/// The oldest run holds most keys: newer ones must reach this fraction of it before it is rewritten.
const OLDEST_RATIO: u64 = 2;

const FORMAT: u32 = 1;
/// Where runs lie below the table's root.
const DIRECTORY: &str = "_tidegate/index";

/// The index of one table version, as the commit stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexManifest {
    format: u32,
    /// Seed of the table's index hashes.
    #[serde(with = "hex_seed")]
    seed: u64,
    /// The runs, oldest first.
    pub runs: Vec<RunDescriptor>,
}

/// A run, with what a reader checks it by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunDescriptor {
    /// Where it lies, relative to the table's root.
    pub path: String,
    /// Length of the object.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Entries that point to rows.
    pub live: u64,
    /// Entries that point to tombstones; the rest are gone keys.
    pub tombstones: u64,
    /// How often its oldest entries were merged.
    pub level: u32,
    /// Least stored hash.
    #[serde(with = "hex_hash")]
    pub first: u128,
    /// Greatest stored hash.
    #[serde(with = "hex_hash")]
    pub last: u128,
}

impl IndexManifest {
    /// The index of an empty table, with a seed that nobody can foresee.
    pub fn new(random: &dyn Random) -> Self {
        Self::with_seed(random.next_u64())
    }

    /// The index of an empty table with a given seed.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self {
            format: FORMAT,
            seed,
            runs: Vec::new(),
        }
    }

    /// The same index without a run: every key is absent.
    #[must_use]
    pub fn cleared(&self) -> Self {
        Self::with_seed(self.seed)
    }

    /// The seed to hash keys with: `IndexHash::of(canonical, seed)`.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Entries of all runs, shadowed ones counted.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.runs.iter().map(|run| run.entries).sum()
    }

    /// Bytes of all runs.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    /// The text that a commit stores.
    ///
    /// # Errors
    /// `INTERNAL` when it cannot be written as JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::internal("index manifest cannot be written").with_source(e))
    }

    /// Reads the text of a commit.
    ///
    /// # Errors
    /// `CORRUPT` when it is no manifest of this format.
    pub fn from_json(text: &str) -> Result<Self> {
        let manifest: Self = serde_json::from_str(text)
            .map_err(|e| Error::corrupt("index manifest cannot be read").with_source(e))?;
        if manifest.format != FORMAT {
            return Err(Error::corrupt("index manifest has an unknown format"));
        }
        Ok(manifest)
    }
}

impl RunDescriptor {
    pub(crate) fn new(path: String, footer: &Footer, bytes: u64, level: u32) -> Self {
        Self {
            path,
            bytes,
            entries: footer.entries,
            live: footer.live,
            tombstones: footer.tombstones,
            level,
            first: footer.first,
            last: footer.last,
        }
    }

    /// Whether the run's own footer says the same.
    pub(crate) fn agrees_with(&self, footer: &Footer) -> bool {
        let counts = (footer.entries, footer.live, footer.tombstones);
        (self.entries, self.live, self.tombstones) == counts
            && (self.first, self.last) == (footer.first, footer.last)
    }
}

/// Names the runs that an attempt writes.
#[derive(Clone, Debug)]
pub struct RunNames {
    attempt: AttemptId,
    next: u32,
}

impl RunNames {
    /// Names `_tidegate/index/<writer>-<attempt>-<n>.run`, with n from 0.
    #[must_use]
    pub fn new(attempt: AttemptId) -> Self {
        Self { attempt, next: 0 }
    }

    /// A name that was not given before, relative to the table's root.
    pub fn next_path(&mut self) -> String {
        let path = format!("{DIRECTORY}/{}-{}.run", self.attempt, self.next);
        self.next += 1;
        path
    }
}

/// Which runs to merge, given their sizes from the oldest to the one that a commit adds; None while they
/// are few.
///
/// Always the newest ones, so that age stays the order of the list: as few as leave an older neighbour that
/// is at least as large as their sum. With k runs an entry is rewritten about (k! · n)^(1/k) times in n
/// commits of one size.
pub(crate) fn runs_to_merge(sizes: &[u64]) -> Option<Range<usize>> {
    if sizes.len() <= RUNS_MAX {
        return None;
    }
    let mut sum = 0;
    for (position, size) in sizes.iter().enumerate().rev() {
        sum += size;
        let Some(before) = position.checked_sub(1) else {
            break;
        };
        let older = sizes.get(before).copied().unwrap_or(0);
        let enough = if before == 0 {
            sum.saturating_mul(OLDEST_RATIO)
        } else {
            sum
        };
        if position + 1 < sizes.len() && older >= enough {
            return Some(position..sizes.len());
        }
    }
    Some(0..sizes.len())
}

mod hex_seed {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(seed: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{seed:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}

mod hex_hash {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(hash: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{hash:024x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_survive_json() {
        let mut manifest = IndexManifest::with_seed(u64::MAX - 1);
        manifest.runs.push(RunDescriptor {
            path: "_tidegate/index/00000001-7-0.run".into(),
            bytes: 4096,
            entries: 10,
            live: 7,
            tombstones: 2,
            level: 1,
            first: 5,
            last: u128::MAX >> 32,
        });
        let text = manifest.to_json().unwrap();
        assert_eq!(IndexManifest::from_json(&text).unwrap(), manifest);
        assert!(IndexManifest::from_json("{}").is_err());
    }

    #[test]
    fn few_runs_are_left_alone() {
        assert_eq!(runs_to_merge(&[1; RUNS_MAX]), None);
    }

    #[test]
    fn a_large_old_run_is_not_rewritten_for_small_ones() {
        assert_eq!(
            runs_to_merge(&[10_000_000, 10, 10, 10, 10, 10, 10, 10, 10]),
            Some(1..9)
        );
        assert_eq!(
            runs_to_merge(&[10_000_000, 80, 70, 60, 50, 40, 30, 20, 10]),
            Some(7..9)
        );
        assert_eq!(runs_to_merge(&[15, 1, 1, 1, 1, 1, 1, 1, 9]), Some(0..9));
    }

    #[test]
    fn equal_commits_are_rewritten_a_few_times() {
        let mut sizes = vec![10_000];
        let mut rewritten = 0;
        for _ in 0..1000 {
            sizes.push(10);
            if let Some(range) = runs_to_merge(&sizes) {
                let sum: u64 = sizes.drain(range).sum();
                rewritten += sum;
                sizes.push(sum);
            }
            assert!(sizes.len() <= RUNS_MAX);
        }
        // Ten thousand entries came; with the one rewriting of the oldest run each costs less than eight.
        assert!(
            rewritten < 80_000,
            "{rewritten} entries rewritten, {sizes:?}"
        );
    }
}

//! A table that is only a map from keys to places, and an index beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use tidegate_change::{AttemptId, WriterId};
use tidegate_index::{
    Entry, FileKind, FileRef, Index, IndexHash, IndexManifest, KeyRows, Location, Presence, Result,
    RunNames, RunWriter, Spill,
};

pub(crate) const SEED: u64 = 0x5eed;

/// Numbers that look random and are the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

pub(crate) fn hash(key: u64) -> IndexHash {
    IndexHash::of(&key.to_le_bytes(), SEED)
}

pub(crate) fn names(attempt: u64) -> RunNames {
    RunNames::new(AttemptId {
        writer: WriterId(7),
        index: attempt,
    })
}

pub(crate) fn present(_: &FileRef) -> Presence {
    Presence::Present
}

pub(crate) fn spill(entries: usize) -> Spill {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    Spill {
        store,
        prefix: Path::from("spill"),
        memory_bytes: entries * 32,
    }
}

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) store: Arc<InMemory>,
    pub(crate) index: Index,
    /// Where each key is: file and row.
    pub(crate) keys: BTreeMap<u64, (FileRef, u32)>,
    pub(crate) dropped: BTreeSet<FileRef>,
    pub(crate) attempt: u64,
    /// Changes that a commit holds in memory; None for all.
    pub(crate) held: Option<usize>,
}

impl Model {
    pub(crate) fn new() -> Self {
        let store = Arc::new(InMemory::new());
        let object_store: Arc<dyn ObjectStore> = Arc::<InMemory>::clone(&store);
        let manifest = IndexManifest::with_seed(SEED);
        let index = Index::new(object_store, Path::from("tables/orders"), manifest);
        Self {
            store,
            index,
            keys: BTreeMap::new(),
            dropped: BTreeSet::new(),
            attempt: 0,
            held: None,
        }
    }

    pub(crate) fn presence(&self) -> impl Fn(&FileRef) -> Presence + Sync + use<> {
        let dropped = self.dropped.clone();
        move |file| {
            if dropped.contains(file) {
                Presence::Dropped
            } else {
                Presence::Present
            }
        }
    }

    /// One commit: new places (None: gone) for some keys.
    pub(crate) async fn commit(
        &mut self,
        changes: BTreeMap<u64, Option<(FileRef, u32)>>,
    ) -> Result<()> {
        let mut writer = match self.held {
            Some(entries) => RunWriter::with_spill(spill(entries)),
            None => RunWriter::new(),
        };
        for (key, place) in &changes {
            let entry = match place {
                Some((file, row)) => {
                    let ordinal = writer.file(file);
                    match file.kind {
                        FileKind::Data => Entry::Live {
                            file: ordinal,
                            row: *row,
                        },
                        FileKind::State => Entry::Tombstone {
                            file: ordinal,
                            row: *row,
                        },
                    }
                }
                None => Entry::Gone,
            };
            writer.push(hash(*key), entry)?;
            writer.relieve().await?;
        }
        assert_eq!(writer.len(), changes.len());
        self.attempt += 1;
        let presence = self.presence();
        let manifest = self
            .index
            .commit(writer, &mut names(self.attempt), &presence)
            .await?;
        self.advance(manifest);
        for (key, place) in changes {
            match place {
                Some(place) => self.keys.insert(key, place),
                None => self.keys.remove(&key),
            };
        }
        Ok(())
    }

    /// A commit of random changes, in files of its own.
    pub(crate) async fn commit_randomly(&mut self, numbers: &mut Numbers, keys: u64) -> Result<()> {
        let version = self.attempt;
        let data: Vec<_> = (0..2)
            .map(|n| FileRef::data(format!("0-{version}-{n}.parquet")))
            .collect();
        let state = FileRef::state(format!("_tidegate/state/{version}.parquet"));
        let mut changes = BTreeMap::new();
        for row in 0..1 + numbers.below(600) {
            let row = u32::try_from(row).unwrap();
            let place = match numbers.below(10) {
                0 => None,
                1 | 2 => Some((state.clone(), row)),
                n => Some((data[usize::try_from(n % 2).unwrap()].clone(), row)),
            };
            changes.insert(numbers.below(keys), place);
        }
        self.commit(changes).await
    }

    /// Drops a file with its keys, as a truncate does.
    pub(crate) fn drop_file(&mut self, file: &FileRef) {
        self.dropped.insert(file.clone());
        self.keys.retain(|_, (of, _)| of != file);
    }

    pub(crate) fn advance(&mut self, manifest: IndexManifest) {
        let text = manifest.to_json().unwrap();
        self.index = self
            .index
            .with_manifest(IndexManifest::from_json(&text).unwrap());
    }

    /// Asks for these keys and compares with the map.
    pub(crate) async fn check(&self, keys: &[u64]) -> Result<()> {
        let hashes: Vec<_> = keys.iter().map(|key| hash(*key)).collect();
        let located = self.index.locate(&hashes, &self.presence()).await?;
        assert_eq!(located.locations.len(), keys.len());
        for (key, location) in keys.iter().zip(&located.locations) {
            let file = |n: u32| located.files[usize::try_from(n).unwrap()].clone();
            let found = match *location {
                Location::Absent => None,
                Location::Live { file: n, row } => Some((FileKind::Data, file(n), row)),
                Location::Tombstone { file: n, row } => Some((FileKind::State, file(n), row)),
            };
            let expected = self
                .keys
                .get(key)
                .map(|(file, row)| (file.kind, file.clone(), *row));
            assert_eq!(found, expected, "key {key}");
        }
        Ok(())
    }

    /// What the table would yield: its places by file, state files in the order of their commits.
    pub(crate) fn rows(&self) -> Vec<KeyRows> {
        let mut files: BTreeMap<&FileRef, KeyRows> = BTreeMap::new();
        for (key, (file, row)) in &self.keys {
            let rows = files.entry(file).or_insert_with(|| KeyRows {
                file: file.clone(),
                rows: Vec::new(),
                hashes: Vec::new(),
            });
            rows.rows.push(*row);
            rows.hashes.push(hash(*key));
        }
        files.into_values().collect()
    }
}

pub(crate) fn stream_of(rows: Vec<KeyRows>) -> impl stream::Stream<Item = Result<KeyRows>> {
    stream::iter(rows.into_iter().map(Ok))
}

//! The files of a snapshot, shared between versions.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use crate::actions::AddFile;

/// Parts of the map; a commit copies only those that it touches.
const PARTS: usize = 256;

type Part = BTreeMap<Arc<str>, Arc<AddFile>>;

/// Live files by path. A copy is cheap, and a change to it copies a small part of the map only, so that
/// the next version of a table of many files costs what changed.
#[derive(Clone, Debug)]
pub struct FileMap {
    parts: Vec<Arc<Part>>,
    count: usize,
}

impl Default for FileMap {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Arc::default()).collect(),
            count: 0,
        }
    }
}

impl FileMap {
    /// The file with that path, as the log writes it.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Arc<AddFile>> {
        self.parts.get(slot(path))?.get(path)
    }

    /// Whether the file is live.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.get(path).is_some()
    }

    /// How many files live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no file lives.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The files, in an order that depends on nothing but their paths.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<AddFile>> {
        self.parts.iter().flat_map(|part| part.values())
    }

    pub(crate) fn insert(&mut self, add: Arc<AddFile>) {
        if let Some(part) = self.parts.get_mut(slot(&add.path)) {
            let path = Arc::from(add.path.as_str());
            if Arc::make_mut(part).insert(path, add).is_none() {
                self.count += 1;
            }
        }
    }

    pub(crate) fn remove(&mut self, path: &str) -> Option<Arc<AddFile>> {
        let part = self.parts.get_mut(slot(path))?;
        if !part.contains_key(path) {
            return None;
        }
        let removed = Arc::make_mut(part).remove(path);
        self.count -= usize::from(removed.is_some());
        removed
    }
}

fn slot(path: &str) -> usize {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(path);
    usize::try_from(hash % 256).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_the_original_loses() {
        let mut map = FileMap::default();
        for n in 0..1000 {
            map.insert(Arc::new(AddFile {
                path: format!("f{n}"),
                ..AddFile::default()
            }));
        }
        let copy = map.clone();
        assert!(map.remove("f7").is_some());
        assert!(map.remove("f7").is_none());
        assert_eq!((map.len(), copy.len()), (999, 1000));
        assert!(copy.contains("f7") && !map.contains("f7"));
        assert_eq!(copy.iter().count(), 1000);
    }
}

//! Which files and rows differ between two versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_change::Result;
use tidegate_delta::actions::AddFile;
use tidegate_delta::dv::{self, DeletionVector};
use tidegate_delta::{TableRoot, TableSnapshot};

use super::unreadable;

/// A file whose deletion vector changed.
#[derive(Clone, Debug)]
pub(super) struct Revised {
    pub(super) before: Arc<AddFile>,
    pub(super) after: Arc<AddFile>,
}

/// Files of two versions that differ.
#[derive(Clone, Debug, Default)]
pub(super) struct FileDiff {
    /// Files of the later version alone.
    pub(super) added: Vec<Arc<AddFile>>,
    /// Files of the earlier version alone.
    pub(super) removed: Vec<Arc<AddFile>>,
    /// Files of both whose dead rows differ.
    pub(super) revised: Vec<Revised>,
}

fn vector_id(file: &AddFile) -> Option<String> {
    file.deletion_vector.as_ref().map(|own| own.unique_id())
}

impl FileDiff {
    pub(super) fn of(before: &TableSnapshot, after: &TableSnapshot) -> Self {
        let mut diff = Self::default();
        for file in after.files.iter() {
            match before.files.get(&file.path) {
                None => diff.added.push(Arc::clone(file)),
                Some(own) if vector_id(own) != vector_id(file) => diff.revised.push(Revised {
                    before: Arc::clone(own),
                    after: Arc::clone(file),
                }),
                Some(_) => {}
            }
        }
        let gone = |file: &&Arc<AddFile>| !after.files.contains(&file.path);
        diff.removed = before.files.iter().filter(gone).cloned().collect();
        diff
    }

    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.revised.is_empty()
    }

    /// Whether files were added and nothing else.
    pub(super) fn is_append(&self) -> bool {
        self.removed.is_empty() && self.revised.is_empty()
    }
}

/// What became of the rows of one file of the earlier version.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) file: Arc<AddFile>,
    /// Rows that lived before and do not live at their place any more.
    pub(super) dead: DeletionVector,
    /// Rows that were dead before and live again, such as a restore brings back.
    pub(super) risen: DeletionVector,
    /// All that is dead once the risen rows are written elsewhere.
    all: DeletionVector,
}

/// [`Death`]s by path.
#[derive(Debug)]
pub(super) struct Deaths(BTreeMap<Arc<str>, Death>);

impl Deaths {
    /// # Errors
    /// `FOREIGN_REWRITE` when a vector is gone or damaged; failures of storage.
    pub(super) async fn of(root: &TableRoot, diff: &FileDiff) -> Result<Self> {
        let mut deaths = BTreeMap::new();
        let read = async |file: &AddFile| {
            let vector = dv::of_file(root, file).await;
            vector.map_err(|e| unreadable("a deletion vector cannot be read", e))
        };
        for file in &diff.removed {
            let before = read(file).await?;
            let rows = u32::try_from(file.num_records()?).unwrap_or(u32::MAX);
            let all = DeletionVector::from_positions(0..rows);
            let death = Death {
                file: Arc::clone(file),
                dead: all.difference(&before),
                risen: DeletionVector::default(),
                all,
            };
            deaths.insert(file.path.as_str().into(), death);
        }
        for revised in &diff.revised {
            let (before, after) = (read(&revised.before).await?, read(&revised.after).await?);
            let mut all = before.clone();
            all.merge(&after);
            let death = Death {
                file: Arc::clone(&revised.before),
                dead: after.difference(&before),
                risen: before.difference(&after),
                all,
            };
            deaths.insert(revised.before.path.as_str().into(), death);
        }
        Ok(Self(deaths))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Death)> {
        self.0.iter()
    }

    pub(super) fn get(&self, path: &str) -> Option<&Death> {
        self.0.get(path)
    }

    /// The vector of a revised file that stays; None where no row of it does.
    ///
    /// # Errors
    /// `CORRUPT` for a file without statistics.
    pub(super) fn remains(&self, file: &AddFile) -> Result<Option<DeletionVector>> {
        let rows = file.num_records()?;
        let death = self.0.get(file.path.as_str());
        Ok(death
            .map(|death| death.all.clone())
            .filter(|all| all.len() < rows))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_change::TableVersion;
    use tidegate_delta::actions::{Action, DeletionVectorDescriptor, parse_commit};

    use super::*;

    fn add(path: &str, vector: Option<&str>) -> Action {
        Action::Add(AddFile {
            path: path.into(),
            deletion_vector: vector.map(|name| DeletionVectorDescriptor {
                storage_type: "u".into(),
                path_or_inline_dv: name.into(),
                offset: Some(1),
                size_in_bytes: 1,
                cardinality: 1,
            }),
            ..AddFile::default()
        })
    }

    #[test]
    fn files_differ_by_path_and_vector() {
        let head = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"id":"t","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}"#;
        let first = parse_commit("0.json", head.as_bytes()).unwrap();
        let first = TableSnapshot::first(&first).unwrap();
        let own = [
            add("kept", None),
            add("revised", Some("a")),
            add("gone", None),
        ];
        let before = first.advance(TableVersion(1), &own).unwrap();
        let Action::Add(gone) = add("gone", None) else {
            panic!("an add")
        };
        let Action::Add(revised) = add("revised", Some("a")) else {
            panic!("an add")
        };
        let foreign = [
            Action::Remove(gone.to_remove(1, true)),
            Action::Remove(revised.to_remove(1, true)),
            add("revised", Some("b")),
            add("new", None),
        ];
        let after = before.advance(TableVersion(2), &foreign).unwrap();
        let diff = FileDiff::of(&before, &after);
        let paths = |files: &[Arc<AddFile>]| -> Vec<String> {
            files.iter().map(|file| file.path.clone()).collect()
        };
        assert_eq!(paths(&diff.added), ["new"]);
        assert_eq!(paths(&diff.removed), ["gone"]);
        assert_eq!(diff.revised.len(), 1);
        assert!(!diff.is_append() && !diff.is_empty());
        assert!(FileDiff::of(&after, &after).is_empty());
        assert!(FileDiff::of(&first, &before).is_append());
    }
}

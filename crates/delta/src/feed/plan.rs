//! Which rows of which files a commit changed, told by its actions.

use std::collections::BTreeMap;

use tidegate_change::{Error, Result};

use crate::actions::{Action, AddFile, CdcFile, RemoveFile};
use crate::dv;
use crate::log::TableCommit;
use crate::table::TableRoot;

/// What happened to the rows of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitKind {
    /// They appeared.
    Insert,
    /// They disappeared.
    Delete,
}

/// Rows of one file that all met the same.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) file: AddFile,
    pub(super) kind: UnitKind,
    /// The rows by position; None for all that the file's vector leaves.
    pub(super) positions: Option<Vec<u32>>,
}

impl Unit {
    /// All live rows of a file as inserts.
    pub(super) fn inserts(file: AddFile) -> Self {
        Self {
            file,
            kind: UnitKind::Insert,
            positions: None,
        }
    }

    /// How many rows, at least; files without statistics count as one.
    pub(super) fn rows(&self) -> u64 {
        match &self.positions {
            Some(positions) => u64::try_from(positions.len()).unwrap_or(u64::MAX),
            None => {
                let rows = self.file.num_records().unwrap_or(1);
                rows.saturating_sub(self.file.deleted_count())
            }
        }
    }
}

/// Where the changes of a commit stand.
#[derive(Debug)]
pub(super) enum Plan {
    /// In change files, and nowhere else (R-C8).
    Written(Vec<CdcFile>),
    /// In files that came and went, and in their vectors.
    Inferred(Vec<Unit>),
}

impl Plan {
    pub(super) async fn of(root: &TableRoot, commit: &TableCommit) -> Result<Self> {
        let mut written = Vec::new();
        let mut files = BTreeMap::<&str, (Option<&RemoveFile>, Option<&AddFile>)>::new();
        for action in &commit.actions {
            match action {
                Action::Cdc(cdc) => written.push(cdc.clone()),
                Action::Add(add) if add.data_change => {
                    files.entry(&add.path).or_default().1 = Some(add);
                }
                Action::Remove(remove) if remove.data_change => {
                    files.entry(&remove.path).or_default().0 = Some(remove);
                }
                _ => {}
            }
        }
        if !written.is_empty() {
            return Ok(Self::Written(written));
        }
        let mut units = Vec::new();
        for pair in files.into_values() {
            match pair {
                (None, Some(add)) => units.push(Unit::inserts(add.clone())),
                (Some(remove), None) => units.push(Unit {
                    file: remove.to_add(),
                    kind: UnitKind::Delete,
                    positions: None,
                }),
                (Some(remove), Some(add)) => units.extend(vector_change(root, remove, add).await?),
                (None, None) => {}
            }
        }
        Ok(Self::Inferred(units))
    }
}

/// The rows in which the two vectors of a file differ.
async fn vector_change(
    root: &TableRoot,
    remove: &RemoveFile,
    add: &AddFile,
) -> Result<impl Iterator<Item = Unit>> {
    let before = dv::of_file(root, &remove.to_add()).await?;
    let after = dv::of_file(root, add).await?;
    let unit = |kind, rows: dv::DeletionVector| -> Result<Option<Unit>> {
        let positions = rows.iter().map(|row| {
            u32::try_from(row).map_err(|_| {
                Error::corrupt(format!(
                    "file {}: a deletion vector names row {row}",
                    add.path
                ))
            })
        });
        let positions = positions.collect::<Result<Vec<u32>>>()?;
        Ok((!positions.is_empty()).then(|| Unit {
            file: add.clone(),
            kind,
            positions: Some(positions),
        }))
    };
    let deleted = unit(UnitKind::Delete, after.difference(&before))?;
    let restored = unit(UnitKind::Insert, before.difference(&after))?;
    Ok(deleted.into_iter().chain(restored))
}

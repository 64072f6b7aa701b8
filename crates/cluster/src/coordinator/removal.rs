//! The objects of a dropped table: those that are the table's go, all others stay.

use std::collections::BTreeSet;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_delta::actions::{Action, AddFile, DeletionVectorDescriptor};
use tidegate_delta::{DeltaLog, names, path};

/// Digits of a version in the names of the log's files.
const VERSION_DIGITS: usize = 20;

/// When an object goes. Files that only the log tells of go before it, so that a removal that was
/// interrupted still finds them; then the log, after which the rest is no table to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    NamedByLog,
    Log,
    Own,
}

/// Deletes the objects of a dropped table: its log, what the log names, and what Tidegate wrote for it.
///
/// # Errors
/// What the store says; what is left is found by another call.
pub(super) async fn delete_table(log: &DeltaLog) -> Result<()> {
    let root = log.root();
    let failed = |e: object_store::Error| {
        Error::new(Code::Io, format!("{}: cannot be deleted", root.path())).with_source(e)
    };
    let named = named_files(log).await;
    let objects = root.store().list(Some(root.path()));
    let keys: Vec<_> = objects
        .map_ok(|object| object.location)
        .try_collect()
        .await
        .map_err(failed)?;
    let mut staged: Vec<(Stage, Path)> = keys
        .into_iter()
        .filter_map(|key| Some((stage_of(below(root.path(), &key)?, &named)?, key)))
        .collect();
    // The newest commits first: what is left of a log is never taken for a whole one.
    staged.sort_by(|(a, left), (b, right)| (a, right).cmp(&(b, left)));
    for (_, key) in staged {
        match root.store().delete(&key).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(())
}

fn below<'a>(root: &Path, key: &'a Path) -> Option<&'a str> {
    let rest = key.as_ref().strip_prefix(root.as_ref())?;
    Some(rest.trim_start_matches('/'))
}

fn stage_of(path: &str, named: &BTreeSet<String>) -> Option<Stage> {
    let within = |directory: &str| path.strip_prefix(directory)?.strip_prefix('/');
    if let Some(name) = within(names::LOG_DIRECTORY) {
        return is_of_log(name).then_some(Stage::Log);
    }
    if within(names::PRIVATE_DIRECTORY).is_some() || names::attempt_of(path).is_some() {
        return Some(Stage::Own);
    }
    named.contains(path).then_some(Stage::NamedByLog)
}

/// Whether a name below the log's directory is one of the Delta protocol: a version's files, the hint,
/// their checksums (which begin with a dot), or what lies in a directory of the protocol.
fn is_of_log(name: &str) -> bool {
    if let Some((directory, _)) = name.split_once('/') {
        return ["_sidecars", "_staged_commits", "_commits"].contains(&directory);
    }
    let name = name.strip_prefix('.').unwrap_or(name);
    let is_version = name.split_once('.').is_some_and(|(version, _)| {
        version.len() == VERSION_DIGITS && version.bytes().all(|b| b.is_ascii_digit())
    });
    is_version || name.starts_with("_last_checkpoint")
}

/// Files that the log names, as far as it can be read: a damaged log must not keep its table from going.
async fn named_files(log: &DeltaLog) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    match log.snapshot(None).await {
        Ok(snapshot) => {
            snapshot.files.iter().for_each(|add| note(&mut named, add));
            let removed = snapshot.tombstones.values();
            removed.for_each(|remove| note(&mut named, &remove.to_add()));
        }
        Err(error) => tracing::warn!(%error, "the newest version of a dropped table is not read"),
    }
    let range = log.commit_range().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the log of a dropped table is not listed");
        None
    });
    let Some((first, last)) = range else {
        return named;
    };
    for version in (first.0..=last.0).map(TableVersion) {
        match log.read_commit_if_there(version).await {
            Ok(None) => {}
            Ok(Some(commit)) => commit
                .actions
                .iter()
                .for_each(|a| note_action(&mut named, a)),
            Err(error) => tracing::warn!(%error, "a commit of a dropped table is not read"),
        }
    }
    named
}

fn note_action(named: &mut BTreeSet<String>, action: &Action) {
    match action {
        Action::Add(add) => note(named, add),
        Action::Remove(remove) => note(named, &remove.to_add()),
        Action::Cdc(cdc) => named.extend(path::decode(&cdc.path).ok()),
        _ => {}
    }
}

fn note(named: &mut BTreeSet<String>, file: &AddFile) {
    named.extend(file.relative_path().ok());
    let vector = file.deletion_vector.as_ref();
    named.extend(vector.and_then(DeletionVectorDescriptor::relative_path));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_the_table_s_goes() {
        let named = BTreeSet::from(["part-1.parquet".to_owned()]);
        let cases = [
            ("_delta_log/00000000000000000001.json", Some(Stage::Log)),
            (
                "_delta_log/.00000000000000000001.json.crc",
                Some(Stage::Log),
            ),
            ("_delta_log/_last_checkpoint", Some(Stage::Log)),
            ("_delta_log/notes.txt", None),
            ("_tidegate/index/00000001-7-0.run", Some(Stage::Own)),
            ("c=1/l0-00000001-7-0.parquet", Some(Stage::Own)),
            ("part-1.parquet", Some(Stage::NamedByLog)),
            ("part-2.parquet", None),
            ("important.txt", None),
        ];
        for (path, stage) in cases {
            assert_eq!(stage_of(path, &named), stage, "{path}");
        }
    }
}

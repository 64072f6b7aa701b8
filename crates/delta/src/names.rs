//! Names of the files of a table: every one says which attempt wrote it, so that garbage collection
//! needs no other record.

use tidegate_change::{AttemptId, TableVersion, WriterId};

/// Directory of the log.
pub const LOG_DIRECTORY: &str = "_delta_log";
/// Directory of change data.
pub const CHANGE_DIRECTORY: &str = "_change_data";
/// Directory of what is Tidegate's own.
pub const PRIVATE_DIRECTORY: &str = "_tidegate";
/// Directory of commits that are prepared, or about to be.
pub const STAGED_DIRECTORY: &str = "_tidegate/staged";

/// How far a data file is in the life of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileLevel {
    /// As a batch wrote it.
    Fresh,
    /// Merged once.
    Merged,
    /// One bucket and one range of keys.
    Base,
}

impl FileLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "l0",
            Self::Merged => "l1",
            Self::Base => "l2",
        }
    }
}

/// Name of a data file: `<level>-<writer>-<attempt>-<n>.parquet`.
#[must_use]
pub fn data_file(level: FileLevel, attempt: AttemptId, n: u32) -> String {
    format!("{}-{attempt}-{n}.parquet", level.as_str())
}

/// Name of a change data file, inside its partition directory.
#[must_use]
pub fn change_file(attempt: AttemptId, n: u32) -> String {
    format!("cdc-{attempt}-{n}.parquet")
}

/// Path of a staged commit.
#[must_use]
pub fn staged_commit(attempt: AttemptId, version: TableVersion) -> String {
    format!("{STAGED_DIRECTORY}/{attempt}/{version}.json")
}

/// Path of a hidden state file.
#[must_use]
pub fn state_file(attempt: AttemptId, n: u32) -> String {
    format!("{PRIVATE_DIRECTORY}/state/{attempt}-{n}.parquet")
}

/// Path of an index run.
#[must_use]
pub fn index_run(attempt: AttemptId, n: u32) -> String {
    format!("{PRIVATE_DIRECTORY}/index/{attempt}-{n}.run")
}

/// Path of a file of rejects.
#[must_use]
pub fn rejects_file(attempt: AttemptId, n: u32) -> String {
    format!("{PRIVATE_DIRECTORY}/rejects/{attempt}-{n}.parquet")
}

/// Path of a commit in the log.
#[must_use]
pub fn commit(version: TableVersion) -> String {
    format!("{LOG_DIRECTORY}/{:020}.json", version.0)
}

/// Path of a checkpoint of one part.
#[must_use]
pub fn checkpoint(version: TableVersion) -> String {
    format!("{LOG_DIRECTORY}/{:020}.checkpoint.parquet", version.0)
}

/// The attempt that wrote a file of the table, by its path; None for files that are not Tidegate's.
#[must_use]
pub fn attempt_of(path: &str) -> Option<AttemptId> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    if let Some(uuid) = name.strip_prefix("deletion_vector_") {
        let uuid = uuid::Uuid::parse_str(uuid.strip_suffix(".bin")?).ok()?;
        return crate::dv::attempt_of(uuid).map(|(attempt, _)| attempt);
    }
    if directory.starts_with(PRIVATE_DIRECTORY) && name.ends_with(".json") {
        return parse_attempt(directory.rsplit_once('/')?.1);
    }
    let stem = name
        .strip_suffix(".parquet")
        .or_else(|| name.strip_suffix(".run"))?;
    let numbered = stem.rsplit_once('-')?.0;
    let attempt = match directory.starts_with(PRIVATE_DIRECTORY) {
        true => numbered,
        false => {
            numbered
                .split_once('-')
                .filter(|(kind, _)| ["l0", "l1", "l2", "cdc"].contains(kind))?
                .1
        }
    };
    parse_attempt(attempt)
}

fn parse_attempt(text: &str) -> Option<AttemptId> {
    let (writer, index) = text.split_once('-')?;
    if writer.len() != 8 {
        return None;
    }
    let writer = WriterId(u32::from_str_radix(writer, 16).ok()?);
    Some(AttemptId {
        writer,
        index: index.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_tells_its_attempt() {
        let attempt = AttemptId {
            writer: WriterId(0xab),
            index: 12,
        };
        let vector = crate::dv::file_name(crate::dv::file_uuid(attempt, 3).unwrap());
        let names = [
            format!("c=1/{}", data_file(FileLevel::Fresh, attempt, 0)),
            format!("_change_data/c=1/{}", change_file(attempt, 1)),
            staged_commit(attempt, TableVersion(4)),
            state_file(attempt, 2),
            index_run(attempt, 2),
            rejects_file(attempt, 2),
            vector,
        ];
        for name in names {
            assert_eq!(attempt_of(&name), Some(attempt), "{name}");
        }
        assert_eq!(attempt_of("part-00000-abc.c000.snappy.parquet"), None);
        assert_eq!(
            attempt_of("deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"),
            None
        );
    }
}

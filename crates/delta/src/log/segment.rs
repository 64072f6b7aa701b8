//! Which files of the log make up a version.

use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use tidegate_change::{Code, Error, Result, TableVersion};

use super::checkpoint;
use crate::error::storage;
use crate::names;
use crate::table::TableRoot;

/// The commits and checkpoints of the log, ascending.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) commits: Vec<TableVersion>,
    /// Checkpoints whose parts are all there, with the parts' paths.
    pub(super) checkpoints: Vec<(TableVersion, Vec<String>)>,
}

impl Listing {
    /// The newest version that the files make up.
    pub(super) fn latest(&self) -> Option<TableVersion> {
        let checkpoint = self.checkpoints.last().map(|(version, _)| *version);
        self.commits.last().copied().max(checkpoint)
    }
}

/// The checkpoint and the commits behind it that make up a version.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) checkpoint: Option<(TableVersion, Vec<String>)>,
    pub(super) commits: Vec<TableVersion>,
}

#[derive(Debug, PartialEq, Eq)]
enum LogFile {
    Commit(TableVersion),
    Checkpoint {
        version: TableVersion,
        part: usize,
        parts: usize,
    },
}

/// Lists the log from a version on.
pub(super) async fn list(root: &TableRoot, from: Option<TableVersion>) -> Result<Listing> {
    let prefix = root.location(names::LOG_DIRECTORY)?;
    // Everything about the version sorts behind its bare number, which names no file.
    let offset = root.location(&format!(
        "{}/{:020}",
        names::LOG_DIRECTORY,
        from.unwrap_or_default().0
    ))?;
    let objects = root.store().list_with_offset(Some(&prefix), &offset);
    let mut names: Vec<String> = objects
        .try_filter_map(|object| {
            let name = direct_child(&prefix, &object.location);
            async move { Ok(name) }
        })
        .try_collect()
        .await
        .map_err(|e| storage(&prefix, e))?;
    names.sort();
    let mut listing = Listing::default();
    let mut parts_seen: Vec<(TableVersion, usize, Vec<String>)> = Vec::new();
    for name in names {
        match parse(&name) {
            None => {}
            Some(LogFile::Commit(version)) => listing.commits.push(version),
            Some(LogFile::Checkpoint {
                version,
                part,
                parts,
            }) => {
                let path = format!("{}/{name}", names::LOG_DIRECTORY);
                match parts_seen
                    .last_mut()
                    .filter(|(v, count, _)| (*v, *count) == (version, parts))
                {
                    Some((_, _, paths)) => paths.push(path),
                    None if part == 1 => parts_seen.push((version, parts, vec![path])),
                    None => {}
                }
            }
        }
    }
    let complete = parts_seen
        .into_iter()
        .filter(|(_, parts, paths)| paths.len() == *parts);
    listing.checkpoints = complete
        .map(|(version, _, paths)| (version, paths))
        .collect();
    Ok(listing)
}

fn direct_child(prefix: &Path, location: &Path) -> Option<String> {
    let rest = location
        .as_ref()
        .strip_prefix(prefix.as_ref())?
        .strip_prefix('/')?;
    (!rest.contains('/')).then(|| rest.to_owned())
}

fn parse(name: &str) -> Option<LogFile> {
    let (version, rest) = name.split_once('.')?;
    if version.len() != 20 {
        return None;
    }
    let version = TableVersion(version.parse().ok()?);
    if rest == "json" {
        return Some(LogFile::Commit(version));
    }
    let rest = rest.strip_prefix("checkpoint.")?.strip_suffix("parquet")?;
    if rest.is_empty() {
        return Some(LogFile::Checkpoint {
            version,
            part: 1,
            parts: 1,
        });
    }
    let (part, parts) = rest.strip_suffix('.')?.split_once('.')?;
    if part.len() != 10 || parts.len() != 10 {
        return None;
    }
    Some(LogFile::Checkpoint {
        version,
        part: part.parse().ok()?,
        parts: parts.parse().ok()?,
    })
}

impl Segment {
    /// The files of a version, or of the newest.
    pub(super) async fn find(root: &TableRoot, version: Option<TableVersion>) -> Result<Self> {
        let hint = checkpoint::read_hint(root)
            .await?
            .map(|hint| TableVersion(hint.version));
        let hint = hint.filter(|hint| version.is_none_or(|version| *hint <= version));
        if hint.is_some()
            && let Ok(segment) = Self::choose(root, list(root, hint).await?, version)
        {
            return Ok(segment);
        }
        Self::choose(root, list(root, None).await?, version)
    }

    fn choose(root: &TableRoot, listing: Listing, version: Option<TableVersion>) -> Result<Self> {
        let Some(latest) = listing.latest() else {
            let message = format!("location {}: no table", root.path());
            return Err(Error::new(Code::TableNotFound, message));
        };
        let wanted = version.unwrap_or(latest);
        if wanted > latest {
            let message = format!("version {wanted}: not there, the newest is {latest}");
            return Err(Error::new(Code::InvalidVersion, message));
        }
        let checkpoint = listing
            .checkpoints
            .into_iter()
            .rfind(|(version, _)| *version <= wanted);
        let first = checkpoint
            .as_ref()
            .map_or(TableVersion(0), |(version, _)| version.next());
        let commits: Vec<_> = listing
            .commits
            .iter()
            .copied()
            .filter(|v| (first..=wanted).contains(v))
            .collect();
        let expected = (first.0..=wanted.0).map(TableVersion);
        if let Some(missing) = expected
            .into_iter()
            .find(|v| commits.binary_search(v).is_err())
        {
            // The log is cleaned from its old end: what lies below every commit left is expired.
            let is_expired = checkpoint.is_none()
                && listing
                    .commits
                    .first()
                    .is_none_or(|oldest| missing < *oldest);
            let code = if is_expired {
                Code::Expired
            } else {
                Code::Corrupt
            };
            let message = format!("version {wanted}: commit {missing} is not in the log");
            return Err(Error::new(code, message));
        }
        Ok(Self {
            checkpoint,
            commits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_log_are_told_apart() {
        let version = TableVersion(12);
        assert_eq!(
            parse("00000000000000000012.json"),
            Some(LogFile::Commit(version))
        );
        assert_eq!(
            parse("00000000000000000012.checkpoint.parquet"),
            Some(LogFile::Checkpoint {
                version,
                part: 1,
                parts: 1
            })
        );
        assert_eq!(
            parse("00000000000000000012.checkpoint.0000000002.0000000003.parquet"),
            Some(LogFile::Checkpoint {
                version,
                part: 2,
                parts: 3
            })
        );
        for other in [
            "_last_checkpoint",
            "00000000000000000012.crc",
            "00000000000000000012.00000000000000000014.compacted.json",
            "00000000000000000012.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
            ".00000000000000000012.json.tmp",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}

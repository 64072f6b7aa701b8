//! Sources that nodes open themselves: `file://` addresses below configured directories.

use std::path::{Path, PathBuf};

use tidegate_apply::work::{SourceFile, SourceInput};
use tidegate_change::{Code, Error, Result};
use tidegate_decode::FileFormat;

use crate::source::{SourceSet, expand};

/// An address with the format of its files; told by content and name without it.
pub(crate) type Address = (String, Option<FileFormat>);

impl SourceSet {
    /// The files of the addresses, in their order; directories in name order.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what is no address, `UNSUPPORTED` for a store that is not configured,
    /// `PERMISSION_DENIED` for a place outside the directories, `NOT_FOUND`.
    pub(crate) fn of_addresses(addresses: &[Address], directories: &[PathBuf]) -> Result<Self> {
        let mut set = Self::default();
        for (url, format) in addresses {
            let path = path_of(url)?;
            let path = confined(url, &path, directories)?;
            for (name, path) in expand(&path.to_string_lossy())? {
                // A link below the directory may lead elsewhere.
                let path = confined(url, &path, directories)?;
                set.files.push(SourceFile {
                    name,
                    input: SourceInput::Shared(path),
                    format: *format,
                });
            }
        }
        if set.files.is_empty() {
            let message = "a batch has at least one source";
            return Err(Error::new(Code::InvalidArgument, message));
        }
        Ok(set)
    }
}

fn path_of(url: &str) -> Result<PathBuf> {
    let Some((scheme, rest)) = url.split_once("://") else {
        let message = format!("source {url}: is no address");
        return Err(Error::new(Code::InvalidArgument, message)
            .with_hint("a local path is sent up by the client, by Flight DoPut"));
    };
    if scheme != "file" {
        let message = format!("source {url}: store {scheme} is not configured");
        return Err(Error::new(Code::Unsupported, message));
    }
    if !rest.starts_with('/') || rest.contains(['%', '*', '?']) {
        let message = format!("source {url}: is no file:///path without escapes and patterns");
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(PathBuf::from(rest))
}

/// The path without links, if it lies below a directory.
fn confined(url: &str, path: &Path, directories: &[PathBuf]) -> Result<PathBuf> {
    let refused = || {
        let message = format!("source {url}: lies outside the directories of sources");
        Error::new(Code::PermissionDenied, message)
            .with_hint("name its directory in sources.directories of the node's configuration")
    };
    // Where a path is outside, nothing is said of what is there.
    let real = path
        .canonicalize()
        .map_err(|e| match is_below(path, directories) {
            true => Error::io(format!("source {url}"), e),
            false => refused(),
        })?;
    let is_inside = directories
        .iter()
        .filter_map(|directory| directory.canonicalize().ok())
        .any(|directory| real.starts_with(directory));
    if is_inside { Ok(real) } else { Err(refused()) }
}

fn is_below(path: &Path, directories: &[PathBuf]) -> bool {
    let climbs = path
        .components()
        .any(|part| part == std::path::Component::ParentDir);
    !climbs
        && directories
            .iter()
            .any(|directory| path.starts_with(directory))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn collected(url: &str, directory: &Path) -> Result<Vec<String>> {
        let set = SourceSet::of_addresses(&[(url.to_owned(), None)], &[directory.to_owned()])?;
        Ok(set.files.iter().map(|file| file.name.clone()).collect())
    }

    #[test]
    fn only_files_below_the_directories_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("in");
        fs::create_dir_all(inside.join("day")).unwrap();
        for name in ["in/a.jsonl", "in/day/b.jsonl", "secret"] {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        let url = |below: &str| format!("file://{}/{below}", dir.path().display());
        assert_eq!(collected(&url("in/a.jsonl"), &inside).unwrap(), ["a.jsonl"]);
        assert_eq!(
            collected(&url("in/"), &inside).unwrap(),
            ["a.jsonl", "day/b.jsonl"]
        );
        std::os::unix::fs::symlink(dir.path().join("secret"), inside.join("link")).unwrap();
        let denied = ["secret", "in/../secret", "in/link", "in/", "absent"];
        for below in denied {
            let error = collected(&url(below), &inside).unwrap_err();
            assert_eq!(error.code(), Code::PermissionDenied, "{below}");
        }
        assert_eq!(
            collected(&url("in/absent"), &inside).unwrap_err().code(),
            Code::NotFound
        );
        let refused = [
            ("s3://bucket/a", Code::Unsupported),
            ("a.jsonl", Code::InvalidArgument),
            ("file://%2e%2e/a", Code::InvalidArgument),
        ];
        for (url, code) in refused {
            assert_eq!(collected(url, &inside).unwrap_err().code(), code, "{url}");
        }
    }
}

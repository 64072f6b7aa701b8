//! Sources that nodes open themselves: `file://` addresses below configured directories, objects below
//! configured prefixes.

use std::path::{Path, PathBuf};

use tidegate_apply::{SourceFile, SourceInput};
use tidegate_change::{Code, Error, Result};
use tidegate_decode::FileFormat;

use crate::config::Sources;
use crate::source::{SourceSet, expand};
use crate::spool::Spool;
use crate::stores::{Address, RemoteStores};

/// An address with the format of its files; told by content and name without it.
pub(crate) type Source = (String, Option<FileFormat>);

/// Places that may be named, and what reaches them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) stores: &'a RemoteStores,
    pub(crate) spool: &'a Spool,
}

impl Places<'_> {
    /// The address, if it lies below a configured prefix.
    fn confined(&self, url: &str) -> Result<Address> {
        let address = Address::parse(url)?;
        for prefix in &self.sources.prefixes {
            let prefix = Address::parse(prefix)?;
            if prefix.holds(&address) {
                return Ok(address);
            }
        }
        let message = format!("source {address}: lies outside the prefixes of sources");
        Err(Error::new(Code::PermissionDenied, message)
            .with_hint("name its bucket or prefix in sources.prefixes of the node's configuration"))
    }
}

impl SourceSet {
    /// The files of the addresses, in their order; directories in name order.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what is no address, `UNSUPPORTED` for a store that is not configured,
    /// `PERMISSION_DENIED` for a place outside the directories, `NOT_FOUND`.
    pub(crate) async fn of_addresses(addresses: &[Source], places: &Places<'_>) -> Result<Self> {
        let mut set = Self::default();
        let directories = &places.sources.directories;
        for (url, format) in addresses {
            if Address::is_one(url) {
                let address = places.confined(url)?;
                set.fetch(&address, *format, places.spool, places.stores)
                    .await?;
                continue;
            }
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
        let sources = Sources {
            directories: vec![directory.to_owned()],
            prefixes: vec!["s3://bucket/in".to_owned()],
        };
        let places = Places {
            sources: &sources,
            stores: &RemoteStores::default(),
            spool: &Spool::new(directory.join(".spool"), 1 << 20),
        };
        let asked = [(url.to_owned(), None)];
        let set = futures::executor::block_on(SourceSet::of_addresses(&asked, &places))?;
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
            ("ftp://bucket/a", Code::Unsupported),
            ("s3://bucket/a", Code::PermissionDenied),
            ("s3://bucket/in/../a", Code::InvalidLocation),
            ("s3://bucket/in2/a", Code::PermissionDenied),
            ("a.jsonl", Code::InvalidArgument),
            ("file://%2e%2e/a", Code::InvalidArgument),
        ];
        for (url, code) in refused {
            assert_eq!(collected(url, &inside).unwrap_err().code(), code, "{url}");
        }
    }
}

//! The lake of a directory: where tables may lie, and nowhere else.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use object_store::path::Path as StorePath;
use tidegate_change::{Code, Error, Result};
use tidegate_cluster::Stores;
use tidegate_delta::TableRoot;
use tidegate_delta::store::{LocalStore, StepHook};

/// Name of the lake's directory.
const LAKE_DIRECTORY: &str = "lake";

/// The tables' root below a local directory.
#[derive(Clone, Debug)]
pub struct Lake {
    root: PathBuf,
    /// Whether other processes write into it too.
    is_shared: bool,
    store: LocalStore,
    shared: Arc<LocalStore>,
}

impl Lake {
    /// The lake of a directory, which need not exist yet.
    ///
    /// # Errors
    /// When the directory's path cannot be told.
    pub fn new(directory: &Path, hook: Option<Arc<dyn StepHook>>) -> Result<Self> {
        Self::at(&directory.join(LAKE_DIRECTORY), hook)
    }

    /// A lake that lies there.
    ///
    /// # Errors
    /// When the directory's path cannot be told.
    pub fn at(root: &Path, hook: Option<Arc<dyn StepHook>>) -> Result<Self> {
        let root = std::path::absolute(root).map_err(|e| Error::io(root.display(), e))?;
        let store = LocalStore::new(root.clone()).with_hook(hook);
        Ok(Self {
            root,
            is_shared: false,
            shared: Arc::new(store.clone()),
            store,
        })
    }

    /// The same lake, into which other processes write too.
    #[must_use]
    pub fn shared(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }

    /// The directory of the tables.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The form of a location that is stored: a path below the root.
    ///
    /// # Errors
    /// `INVALID_LOCATION` for a place outside the root, `UNSUPPORTED` for a store that is not configured.
    pub fn confine(&self, location: &str) -> Result<String> {
        let refused = |why: &str| {
            let message = format!("location {location}: {why}");
            Error::new(Code::InvalidLocation, message)
                .with_hint(format!("tables lie below {}", self.root.display()))
        };
        let path = self.path_of(location)?;
        let below = match path.is_absolute() {
            true => path
                .strip_prefix(&self.root)
                .map_err(|_| refused("lies outside the lake"))?,
            false => path.as_path(),
        };
        let mut parts = Vec::new();
        for component in below.components() {
            match component {
                Component::Normal(name) => {
                    let name = name.to_str().ok_or_else(|| refused("is no text"))?;
                    parts.push(check_part(name).map_err(&refused)?);
                }
                Component::CurDir => {}
                _ => return Err(refused("leaves the lake")),
            }
        }
        if parts.is_empty() {
            return Err(refused("is the lake itself"));
        }
        self.check_links(&parts).map_err(|why| refused(&why))?;
        Ok(parts.join("/"))
    }

    /// The location as users see it.
    #[must_use]
    pub fn shown(&self, location: &str) -> String {
        self.root.join(location).display().to_string()
    }

    fn path_of(&self, location: &str) -> Result<PathBuf> {
        let Some((scheme, rest)) = location.split_once("://") else {
            return Ok(PathBuf::from(location));
        };
        if scheme == "file" {
            if rest.contains('%') {
                let message = format!("location {location}: escapes are not taken");
                return Err(Error::new(Code::InvalidLocation, message));
            }
            return Ok(PathBuf::from(rest));
        }
        let message = format!("location {location}: store {scheme} is not configured");
        Err(Error::new(Code::Unsupported, message))
    }

    /// No part of the path that exists may be a symbolic link, which could lead anywhere.
    fn check_links(&self, parts: &[&str]) -> std::result::Result<(), String> {
        let mut path = self.root.clone();
        for part in parts {
            path.push(part);
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_symlink() => {
                    return Err("passes through a symbolic link".into());
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(_) => return Err("cannot be looked up".into()),
            }
        }
        Ok(())
    }
}

/// A part of a location that means the same to every store and every reader.
fn check_part(name: &str) -> std::result::Result<&str, &'static str> {
    if name.contains('%') {
        return Err("holds an escape");
    }
    if name.starts_with('.') {
        return Err("holds a hidden directory");
    }
    if name
        .chars()
        .any(|c| c.is_control() || "\\:*?\"<>|#{}^[]`~".contains(c))
    {
        return Err("holds a character that not every store takes");
    }
    Ok(name)
}

impl Stores for Lake {
    fn open(&self, location: &str) -> Result<TableRoot> {
        let confined = self.confine(location)?;
        let path = StorePath::parse(&confined).map_err(|e| {
            Error::new(
                Code::InvalidLocation,
                format!("location {location}: is no path"),
            )
            .with_source(e)
        })?;
        Ok(TableRoot::new(Arc::clone(&self.shared) as _, path))
    }

    fn remove_temporaries(&self, location: &str) -> Result<u64> {
        // They may be what another process is writing at this moment.
        if self.is_shared {
            return Ok(0);
        }
        let root = self.open(location)?;
        self.store.remove_temporaries(root.path()).map_err(|e| {
            Error::new(Code::Io, format!("location {location}: cannot be swept")).with_source(e)
        })
    }

    fn remove_empty_directories(&self, location: &str) -> Result<()> {
        let root = self.open(location)?;
        let removed = self.store.remove_empty_directories(root.path());
        removed.map_err(|e| {
            let message = format!("location {location}: an empty directory cannot be removed");
            Error::new(Code::Io, message).with_source(e)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_outside_the_lake_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let lake = Lake::new(dir.path(), None).unwrap();
        fs::create_dir_all(dir.path().join("lake")).unwrap();
        std::os::unix::fs::symlink("/tmp", dir.path().join("lake/link")).unwrap();
        let inside = lake.root().join("a/b").display().to_string();
        for good in ["a", "a/b", "./a", &inside, &format!("file://{inside}")] {
            assert!(lake.confine(good).is_ok(), "{good}");
        }
        let outside = [
            "..",
            "a/../../b",
            "/etc",
            "%2e%2e/b",
            "a/%2E",
            "",
            ".",
            "link/x",
            "file:///etc",
            "file://%2e%2e",
            ".hidden",
            "a\\..\\b",
        ];
        for bad in outside {
            assert_eq!(
                lake.confine(bad).unwrap_err().code(),
                Code::InvalidLocation,
                "{bad}"
            );
        }
        assert_eq!(
            lake.confine("s3://bucket/a").unwrap_err().code(),
            Code::Unsupported
        );
    }
}

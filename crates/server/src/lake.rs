//! The lake of a directory: where tables may lie, and nowhere else.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path as StorePath;
use tidegate_change::{Code, Error, Random, Result};
use tidegate_cluster::Stores;
use tidegate_delta::TableRoot;
use tidegate_delta::store::{LocalStore, StepHook, probe};

use crate::stores::{Address, RemoteStores};

/// Name of the lake's directory.
const LAKE_DIRECTORY: &str = "lake";
/// Name of the file that holds the address of a lake in an object store.
const ADDRESS_FILE: &str = "lake.address";

/// The tables' root: a local directory, or a prefix of a bucket.
#[derive(Clone, Debug)]
pub struct Lake {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Local {
        root: PathBuf,
        /// Whether other processes write into it too.
        is_shared: bool,
        store: LocalStore,
        shared: Arc<LocalStore>,
    },
    Remote {
        address: Address,
        store: Arc<dyn ObjectStore>,
        /// Whether the directory knew the lake when it was opened.
        is_known: bool,
    },
}

impl Lake {
    /// The local lake of a directory, which need not exist yet.
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
        let place = Place::Local {
            root,
            is_shared: false,
            shared: Arc::new(store.clone()),
            store,
        };
        Ok(Self { place })
    }

    /// The same lake, into which other processes write too.
    #[must_use]
    pub fn shared(mut self) -> Self {
        if let Place::Local { is_shared, .. } = &mut self.place {
            *is_shared = true;
        }
        self
    }

    /// The lake that a directory has: the one in a store that it began with, else the given address or
    /// directory, else its own directory.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another address than the one that the directory began with, `INVALID_LOCATION`
    /// for what is no address, or what the disk says.
    pub fn of(
        directory: &Path,
        address: Option<&str>,
        stores: &RemoteStores,
        hook: Option<Arc<dyn StepHook>>,
    ) -> Result<Self> {
        let known = known_address(directory)?;
        let named = address.filter(|text| !text.is_empty());
        let asked = match named {
            Some(text) if text.contains("://") => Some(Address::parse(text)?),
            // The root is a directory.
            Some(root) if known.is_none() => return Self::at(Path::new(root), hook),
            _ => None,
        };
        let other = |lake: &str| {
            let message = format!(
                "directory {}: its tables lie in {lake}",
                directory.display()
            );
            Error::new(Code::InvalidArgument, message)
                .with_hint("use another directory for another lake")
        };
        let (address, is_known) = match (known, asked) {
            (Some(known), asked)
                if named.is_some()
                    && !asked.as_ref().is_some_and(|asked| asked.is_same(&known)) =>
            {
                return Err(other(&known.to_string()));
            }
            (Some(known), _) => (known, true),
            (None, Some(_)) if directory.join(LAKE_DIRECTORY).is_dir() => {
                return Err(other("its own lake"));
            }
            (None, Some(asked)) => (asked, false),
            (None, None) => return Self::new(directory, hook),
        };
        let place = Place::Remote {
            store: stores.open(&address)?,
            address,
            is_known,
        };
        Ok(Self { place })
    }

    /// Makes sure that commits are safe in the lake, and that the directory remembers it: at the first use
    /// of a lake in an object store, and whenever `always` says so.
    ///
    /// # Errors
    /// `UNSAFE_STORE` for a store that ignores conditions, or what store and disk say.
    pub async fn take(&self, directory: &Path, random: &dyn Random, always: bool) -> Result<()> {
        let Place::Remote {
            address,
            store,
            is_known,
        } = &self.place
        else {
            return Ok(());
        };
        if !is_known || always {
            probe(store.as_ref(), address.path(), random).await?;
        }
        if *is_known {
            return Ok(());
        }
        let (path, new) = (
            directory.join(ADDRESS_FILE),
            directory.join(format!("{ADDRESS_FILE}.new")),
        );
        let failed = |e| Error::io(path.display(), e);
        fs::write(&new, format!("{address}\n")).map_err(failed)?;
        fs::File::open(&new)
            .and_then(|file| file.sync_all())
            .map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)?;
        fs::File::open(directory)
            .and_then(|file| file.sync_all())
            .map_err(failed)
    }

    /// The form of a location that is stored: a path below the root.
    ///
    /// # Errors
    /// `INVALID_LOCATION` for a place outside the root, `UNSUPPORTED` for a store that is not configured.
    pub fn confine(&self, location: &str) -> Result<String> {
        let refused = |why: &str| {
            let message = format!("location {location}: {why}");
            Error::new(Code::InvalidLocation, message)
                .with_hint(format!("tables lie below {}", self.shown_root()))
        };
        let path = self.path_of(location)?;
        let below = match (&self.place, path.is_absolute()) {
            (Place::Local { root, .. }, true) => path
                .strip_prefix(root)
                .map_err(|_| refused("lies outside the lake"))?,
            (Place::Remote { .. }, true) => return Err(refused("lies outside the lake")),
            (_, false) => path.as_path(),
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
        if let Place::Local { root, .. } = &self.place {
            check_links(root, &parts).map_err(|why| refused(&why))?;
        }
        Ok(parts.join("/"))
    }

    /// The location as users see it.
    #[must_use]
    pub fn shown(&self, location: &str) -> String {
        match &self.place {
            Place::Local { root, .. } => root.join(location).display().to_string(),
            Place::Remote { address, .. } => format!("{address}/{location}"),
        }
    }

    /// The root as users see it.
    #[must_use]
    pub fn shown_root(&self) -> String {
        match &self.place {
            Place::Local { root, .. } => root.display().to_string(),
            Place::Remote { address, .. } => address.to_string(),
        }
    }

    fn path_of(&self, location: &str) -> Result<PathBuf> {
        let Some((scheme, rest)) = location.split_once("://") else {
            return Ok(PathBuf::from(location));
        };
        if let Place::Remote { address, .. } = &self.place {
            let asked = Address::parse(location)?;
            return match address.below(&asked) {
                Some(below) => Ok(PathBuf::from(below)),
                None => {
                    let message = format!("location {asked}: lies outside the lake");
                    Err(Error::new(Code::InvalidLocation, message)
                        .with_hint(format!("tables lie below {address}")))
                }
            };
        }
        if scheme == "file" {
            if rest.contains('%') {
                let message = format!("location {location}: escapes are not taken");
                return Err(Error::new(Code::InvalidLocation, message));
            }
            return Ok(PathBuf::from(rest));
        }
        let message = format!("location {location}: store {scheme} is not configured");
        Err(Error::new(Code::Unsupported, message)
            .with_hint("a directory has one lake, given by --lake when it is first used"))
    }
}

/// The address of the lake that a directory began with.
fn known_address(directory: &Path) -> Result<Option<Address>> {
    let path = directory.join(ADDRESS_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Address::parse(text.trim())
            .map(Some)
            .map_err(|e| Error::corrupt(path.display().to_string()).with_source(e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(path.display(), e)),
    }
}

/// No part of the path that exists may be a symbolic link, which could lead anywhere.
fn check_links(root: &Path, parts: &[&str]) -> std::result::Result<(), String> {
    let mut path = root.to_owned();
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
        let invalid = |e: object_store::path::Error| {
            let message = format!("location {location}: is no path");
            Error::new(Code::InvalidLocation, message).with_source(e)
        };
        match &self.place {
            Place::Local { shared, .. } => {
                let path = StorePath::parse(&confined).map_err(invalid)?;
                Ok(TableRoot::new(Arc::clone(shared) as _, path))
            }
            Place::Remote { address, store, .. } => {
                let below = StorePath::parse(&confined).map_err(invalid)?;
                let mut path = address.path().clone();
                path.extend(below.parts());
                Ok(TableRoot::new(Arc::clone(store), path))
            }
        }
    }

    fn remove_temporaries(&self, location: &str) -> Result<u64> {
        // They may be what another process is writing at this moment.
        let Place::Local {
            store,
            is_shared: false,
            ..
        } = &self.place
        else {
            return Ok(0);
        };
        let root = self.open(location)?;
        store.remove_temporaries(root.path()).map_err(|e| {
            Error::new(Code::Io, format!("location {location}: cannot be swept")).with_source(e)
        })
    }

    fn remove_empty_directories(&self, location: &str) -> Result<()> {
        let Place::Local { store, .. } = &self.place else {
            return Ok(());
        };
        let root = self.open(location)?;
        let removed = store.remove_empty_directories(root.path());
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
        let inside = format!("{}/a/b", lake.shown_root());
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

    fn remote(directory: &Path, address: &str) -> Result<Lake> {
        let stores = RemoteStores::default();
        Lake::of(directory, Some(address), &stores, None)
    }

    #[test]
    fn a_lake_in_a_bucket_holds_what_lies_below_its_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let lake = remote(dir.path(), "s3://bucket/lake").unwrap();
        for (location, path) in [
            ("a/b", "lake/a/b"),
            ("s3://bucket/lake/a", "lake/a"),
            ("./a", "lake/a"),
        ] {
            assert_eq!(lake.open(location).unwrap().path().as_ref(), path);
        }
        for bad in [
            "..",
            "/a",
            "s3://bucket/a",
            "s3://bucket/lake2/a",
            "s3://other/lake/a",
            "s3://bucket/lake/../a",
            "s3://bucket/lake/%2e%2e/a",
            "s3://bucket/lake",
            "%2e%2e/b",
        ] {
            let code = lake.open(bad).unwrap_err().code();
            assert_eq!(code, Code::InvalidLocation, "{bad}");
        }
        assert_eq!(lake.shown("a"), "s3://bucket/lake/a");
    }

    #[test]
    fn a_directory_keeps_the_lake_that_it_began_with() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("lake.address"), "s3://bucket/lake\n").unwrap();
        assert!(remote(dir.path(), "s3://bucket/lake/").is_ok());
        let error = remote(dir.path(), "s3://bucket/other").unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        let local = tempfile::tempdir().unwrap();
        fs::create_dir(local.path().join("lake")).unwrap();
        let error = remote(local.path(), "s3://bucket/lake").unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
}

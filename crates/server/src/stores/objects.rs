//! Objects that a batch reads: brought to this machine first, so that a batch that is tried again reads the
//! same bytes.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::{Code, Error, Result};
use tidegate_delta::error::storage;

use super::{Address, RemoteStores};
use crate::spool::SpoolDirectory;

/// Brings the objects of an address: one, or all below a prefix in name order. Returns the names that errors
/// and `_source_file` show, with the files.
///
/// # Errors
/// `NOT_FOUND` for an address that names no object, or what store and disk say.
pub(crate) async fn fetch(
    stores: &RemoteStores,
    address: &Address,
    spool: &mut SpoolDirectory,
    first: usize,
) -> Result<Vec<(String, PathBuf)>> {
    let store = stores.open(address)?;
    let objects = named(store.as_ref(), address).await?;
    let mut files = Vec::with_capacity(objects.len());
    for (n, (name, location)) in objects.into_iter().enumerate() {
        let path = spool.path().join(format!("object-{}", first + n));
        bring(store.as_ref(), &location, &path, spool).await?;
        files.push((name, path));
    }
    Ok(files)
}

/// The objects of an address with their names.
async fn named(store: &dyn ObjectStore, address: &Address) -> Result<Vec<(String, StorePath)>> {
    if !address.is_prefix() {
        match store.head(address.path()).await {
            Ok(_) => {
                let name = address.path().filename().unwrap_or_default().to_owned();
                return Ok(vec![(name, address.path().clone())]);
            }
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(storage(address, error)),
        }
    }
    let listed: Vec<_> = store
        .list(Some(address.path()))
        .try_collect()
        .await
        .map_err(|e| storage(address, e))?;
    let mut objects: Vec<_> = listed
        .into_iter()
        .filter_map(|object| {
            let parts = object.location.prefix_match(address.path())?;
            let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
            let is_hidden = parts.iter().any(|part| part.starts_with('.'));
            (!is_hidden && !parts.is_empty()).then(|| (parts.join("/"), object.location))
        })
        .collect();
    objects.sort();
    if objects.is_empty() {
        let message = format!("source {address}: names no object");
        return Err(Error::new(Code::NotFound, message));
    }
    Ok(objects)
}

async fn bring(
    store: &dyn ObjectStore,
    location: &StorePath,
    path: &Path,
    spool: &mut SpoolDirectory,
) -> Result<()> {
    let failed = |e| Error::io(path.display(), e);
    let result = store.get(location).await;
    let mut body = result.map_err(|e| storage(location, e))?.into_stream();
    let mut file = File::create(path).map_err(failed)?;
    while let Some(bytes) = body.next().await {
        let bytes = bytes.map_err(|e| storage(location, e))?;
        spool.reserve(bytes.len() as u64)?;
        file.write_all(&bytes).map_err(failed)?;
    }
    Ok(())
}

//! Whether a store creates atomically, which the commit protocol rests on (assumption A2).

use futures::future::join_all;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tidegate_change::{Code, Error, Random, Result};

use crate::error::storage;

/// Creates that race for one name.
const CONCURRENT_CREATES: u32 = 16;

/// Refuses a store in which concurrent creates of one object have not exactly one winner.
///
/// # Errors
/// `UNSAFE_STORE` when creates are not atomic; the store's own failure when it cannot be asked.
pub async fn probe(store: &dyn ObjectStore, root: &Path, random: &dyn Random) -> Result<()> {
    let name = format!("probe-{:016x}", random.next_u64());
    let location = root.clone().join("_tidegate").join(name);
    let creates = (0..CONCURRENT_CREATES).map(|n| {
        let payload = PutPayload::from(n.to_string());
        store.put_opts(&location, payload, PutMode::Create.into())
    });
    let outcomes = join_all(creates).await;
    let again = store
        .put_opts(&location, PutPayload::from("again"), PutMode::Create.into())
        .await;
    let winners = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let stray = outcomes
        .into_iter()
        .filter_map(|outcome| outcome.err())
        .find(|e| !is_refusal(e));
    let cleaned = store.delete(&location).await;
    if winners == 0
        && let Some(error) = stray
    {
        return Err(storage(&location, error));
    }
    if winners != 1 || again.is_ok() {
        let message =
            format!("store of {root}: {winners} of {CONCURRENT_CREATES} creates of one object won");
        return Err(Error::new(Code::UnsafeStore, message)
            .with_hint("use a store that honours conditional creates (If-None-Match)"));
    }
    cleaned.map_err(|error| storage(&location, error))
}

/// S3 answers a lost race with a conflict that surfaces as either of these.
fn is_refusal(error: &object_store::Error) -> bool {
    matches!(
        error,
        object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }
    )
}

//! Damaged bytes are found, never answered from.

use std::sync::Arc;

use crate::support::{Model, Numbers, hash, present, spill, stream_of};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::Code;
use tidegate_index::{FileRef, Index};

/// A model of one run, its object's path and bytes.
async fn one_run(keys: u32) -> (Model, Path, Vec<u8>) {
    let mut model = Model::new();
    let file = FileRef::data("a.parquet");
    let places = (0..keys).map(|n| (u64::from(n), Some((file.clone(), n))));
    model.commit(places.collect()).await.unwrap();
    let path = Path::from(format!(
        "tables/orders/{}",
        model.index.manifest().runs[0].path
    ));
    let bytes = model
        .store
        .get(&path)
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap()
        .to_vec();
    (model, path, bytes)
}

/// The model with other bytes in place of its run.
async fn with_bytes(model: &Model, path: &Path, bytes: Vec<u8>) -> Model {
    let mut damaged = model.clone();
    damaged.store.put(path, bytes.into()).await.unwrap();
    let store: Arc<dyn ObjectStore> = Arc::<InMemory>::clone(&damaged.store);
    let manifest = model.index.manifest().clone();
    damaged.index = Index::new(store, Path::from("tables/orders"), manifest);
    damaged
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_found_or_harmless() {
    let (model, path, bytes) = one_run(1_500).await;
    let all: Vec<_> = (0..1_600).map(hash).collect();
    for position in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1 << (position % 8);
        let damaged = with_bytes(&model, &path, damaged).await;
        let located = damaged.index.locate(&all, &present).await;
        // The magic at the very start is for people and `file`; everything else is covered by checksums.
        if position < 8 {
            continue;
        }
        let error = located.unwrap_err();
        assert_eq!(error.code(), Code::Corrupt, "byte {position}");
        assert!(tidegate_index::is_damage(&error), "byte {position}");
    }
}

#[tokio::test]
async fn damage_is_never_a_wrong_answer_for_single_keys() {
    let (model, path, bytes) = one_run(90_000).await;
    let mut numbers = Numbers(11);
    let mut found = 0;
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        for _ in 0..300 {
            let position = numbers.below(u64::try_from(bytes.len()).unwrap());
            damaged[usize::try_from(position).unwrap()] ^= 0x55;
        }
        // The end holds the tables that every look-up reads; keep it right to reach blocks and pages.
        let tail = bytes.len() - 200;
        damaged[tail..].copy_from_slice(&bytes[tail..]);
        let damaged = with_bytes(&model, &path, damaged).await;
        let key = numbers.below(95_000);
        match damaged.check(&[key]).await {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.code(), Code::Corrupt);
                found += 1;
            }
        }
    }
    assert!(found > 0);
}

#[tokio::test]
async fn a_short_or_missing_run_is_found() {
    let (model, path, bytes) = one_run(1_500).await;
    for length in [0, 1, 50, bytes.len() / 2, bytes.len() - 1] {
        let short = with_bytes(&model, &path, bytes[..length].to_vec()).await;
        let error = short.index.locate(&[hash(1)], &present).await.unwrap_err();
        assert!(
            tidegate_index::is_damage(&error),
            "{length} bytes: {error:?}"
        );
    }
    let missing = with_bytes(&model, &path, bytes.clone()).await;
    missing.store.delete(&path).await.unwrap();
    let error = missing
        .index
        .locate(&[hash(1)], &present)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.hint().unwrap().contains("rebuild"));
    assert!(tidegate_index::is_damage(&error));
}

#[tokio::test]
async fn another_run_in_its_place_is_found() {
    let (model, path, _) = one_run(1_500).await;
    let (_, _, other) = one_run(1_501).await;
    let swapped = with_bytes(&model, &path, other).await;
    let error = swapped
        .index
        .locate(&[hash(1)], &present)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Corrupt);
}

#[tokio::test]
async fn merging_and_verifying_find_damage_too() {
    let (model, path, bytes) = one_run(1_500).await;
    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    let damaged = with_bytes(&model, &path, damaged).await;
    let error = damaged
        .index
        .compact(&mut crate::support::names(9), &present)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Corrupt);
    let rows = stream_of(model.rows());
    let error = tidegate_index::verify(&damaged.index, rows, spill(10_000), &present)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Corrupt);
}

//! Random sequences of commits against a map, with merges, rebuilds and comparisons.

use std::collections::BTreeMap;

use crate::support::{Model, Numbers, hash, names, present, spill, stream_of};
use tidegate_change::Code;
use tidegate_index::{Entry, FileRef, KeyRows, RUNS_MAX, RunWriter, rebuild, verify};

#[tokio::test]
async fn random_commits_agree_with_a_map() {
    for seed in 0..12 {
        let mut numbers = Numbers(seed);
        let mut model = Model::new();
        // Every other index is written by commits that put most of their changes aside.
        model.held = (seed % 2 == 1).then_some(20);
        let keys = 50 + numbers.below(5_000);
        for version in 0..60 {
            model.commit_randomly(&mut numbers, keys).await.unwrap();
            assert!(model.index.manifest().runs.len() <= RUNS_MAX);
            if numbers.below(20) == 0 {
                let manifest = model
                    .index
                    .compact(&mut names(10_000 + version), &present)
                    .await;
                model.advance(manifest.unwrap());
                assert!(model.index.manifest().runs.len() <= 1);
            }
            if numbers.below(6) == 0 {
                let few: Vec<u64> = (0..4).map(|_| numbers.below(keys + 100)).collect();
                model.check(&few).await.unwrap();
            }
            if numbers.below(15) == 0 {
                let all: Vec<u64> = (0..keys + 100).rev().collect();
                model.check(&all).await.unwrap();
            }
        }
        let report = verify(
            &model.index,
            stream_of(model.rows()),
            spill(2_000),
            &present,
        )
        .await
        .unwrap();
        assert!(report.agrees(), "{report:?}");
        let keys = u64::try_from(model.keys.len()).unwrap();
        assert_eq!(report.live + report.tombstones, keys);
    }
}

#[tokio::test]
async fn many_small_commits_keep_runs_few() {
    let mut model = Model::new();
    for version in 0..300u32 {
        let file = FileRef::data(format!("{version}.parquet"));
        let keys = (0..5).map(|n| (u64::from(version * 3 + n), Some((file.clone(), n))));
        model.commit(keys.collect()).await.unwrap();
        assert!(model.index.manifest().runs.len() <= RUNS_MAX);
    }
    model.check(&(0..1000).collect::<Vec<_>>()).await.unwrap();
}

#[tokio::test]
async fn a_rebuilt_index_is_the_same() {
    for spilled_entries in [1_024, 5_000, 1_000_000] {
        let mut numbers = Numbers(99);
        let mut model = Model::new();
        for _ in 0..150 {
            model.commit_randomly(&mut numbers, 40_000).await.unwrap();
        }
        let rows = stream_of(model.rows());
        let spill_to = spill(spilled_entries);
        let manifest = rebuild(&model.index, rows, spill_to.clone(), &mut names(5_000))
            .await
            .unwrap();
        assert_eq!(manifest.runs.len(), 1);
        assert_eq!(manifest.entries(), u64::try_from(model.keys.len()).unwrap());
        model.advance(manifest);
        model.check(&(0..40_100).collect::<Vec<_>>()).await.unwrap();
        let left: Vec<_> = futures::TryStreamExt::try_collect(spill_to.store.list(None))
            .await
            .unwrap();
        assert!(left.is_empty(), "spilled runs are removed: {left:?}");
        model.commit_randomly(&mut numbers, 40_000).await.unwrap();
        model.check(&(0..40_100).collect::<Vec<_>>()).await.unwrap();
    }
}

#[tokio::test]
async fn two_live_rows_of_a_key_are_corrupt() {
    let model = Model::new();
    for entries in [1_024, 100_000] {
        let rows = |name: &str| KeyRows {
            file: FileRef::data(name),
            rows: (0..3_000).collect(),
            hashes: (0..3_000).map(hash).collect(),
        };
        let mut second = rows("b.parquet");
        second.rows.truncate(1);
        second.hashes.truncate(1);
        let rows = stream_of(vec![rows("a.parquet"), second]);
        let error = rebuild(&model.index, rows, spill(entries), &mut names(1))
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::Corrupt);
        assert!(
            error
                .to_string()
                .contains("a.parquet row 0 and b.parquet row 0"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn rows_beat_tombstones_and_later_tombstones_earlier_ones() {
    let mut model = Model::new();
    let one = |file: FileRef, row, key| KeyRows {
        file,
        rows: vec![row],
        hashes: vec![hash(key)],
    };
    let rows = vec![
        one(FileRef::data("a.parquet"), 5, 1),
        one(FileRef::state("s1.parquet"), 6, 1),
        one(FileRef::state("s1.parquet"), 7, 2),
        one(FileRef::state("s2.parquet"), 8, 2),
    ];
    let manifest = rebuild(&model.index, stream_of(rows), spill(10), &mut names(1))
        .await
        .unwrap();
    model.advance(manifest);
    model.keys.insert(1, (FileRef::data("a.parquet"), 5));
    model.keys.insert(2, (FileRef::state("s2.parquet"), 8));
    model.check(&[1, 2, 3]).await.unwrap();
}

#[tokio::test]
async fn verify_finds_every_kind_of_disagreement() {
    let mut model = Model::new();
    let file = FileRef::data("a.parquet");
    let places = (0..10).map(|n| (u64::from(n), Some((file.clone(), n))));
    model.commit(places.collect()).await.unwrap();
    let mut table = model.clone();
    table.keys.remove(&3);
    table.keys.insert(4, (file.clone(), 99));
    table.keys.insert(50, (file.clone(), 50));
    let report = verify(&model.index, stream_of(table.rows()), spill(10), &present)
        .await
        .unwrap();
    assert_eq!(report.difference_count, 3);
    let shapes: Vec<_> = report
        .differences
        .iter()
        .map(|d| {
            (
                d.table.as_ref().map(|p| p.row),
                d.index.as_ref().map(|p| p.row),
            )
        })
        .collect();
    for shape in [(None, Some(3)), (Some(99), Some(4)), (Some(50), None)] {
        assert!(shapes.contains(&shape), "{shapes:?}");
    }
}

#[tokio::test]
async fn keys_of_dropped_files_are_absent_and_leave_the_index() {
    let mut model = Model::new();
    let (a, b) = (FileRef::data("a.parquet"), FileRef::data("b.parquet"));
    let place = |file: &FileRef, range: std::ops::Range<u32>| -> BTreeMap<_, _> {
        range
            .map(|n| (u64::from(n), Some((file.clone(), n))))
            .collect()
    };
    model.commit(place(&a, 0..100)).await.unwrap();
    model.commit(place(&b, 50..150)).await.unwrap();
    model.drop_file(&a);
    let all: Vec<u64> = (0..200).collect();
    model.check(&all).await.unwrap();
    let manifest = model
        .index
        .compact(&mut names(77), &model.presence())
        .await
        .unwrap();
    assert_eq!(manifest.entries(), 100);
    model.advance(manifest);
    model.check(&all).await.unwrap();
}

#[tokio::test]
async fn an_unknown_file_is_corrupt_and_not_absent() {
    let mut model = Model::new();
    let file = FileRef::data("a.parquet");
    model.commit([(1, Some((file, 0)))].into()).await.unwrap();
    let missing = |_: &FileRef| tidegate_index::Presence::Missing;
    let error = model.index.locate(&[hash(1)], &missing).await.unwrap_err();
    assert_eq!(error.code(), Code::Corrupt);
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn an_empty_index_knows_nothing() {
    let model = Model::new();
    model.check(&[1, 2, 3]).await.unwrap();
    model.check(&[]).await.unwrap();
    let report = verify(&model.index, stream_of(vec![]), spill(10), &present)
        .await
        .unwrap();
    assert!(report.agrees());
}

#[tokio::test]
async fn large_runs_answer_few_and_many_keys() {
    let mut model = Model::new();
    let file = FileRef::data("a.parquet");
    let places = (0..200_000u32).map(|n| (u64::from(n), Some((file.clone(), n))));
    model.commit(places.collect()).await.unwrap();
    let mut numbers = Numbers(3);
    for count in [1, 7, 50, 300, 5_000] {
        let keys: Vec<u64> = (0..count).map(|_| numbers.below(250_000)).collect();
        model.check(&keys).await.unwrap();
    }
    model.check(&[5, 5, 5, 300_000, 300_000]).await.unwrap();
}

#[tokio::test]
async fn two_changes_of_one_key_in_a_commit_are_refused() {
    let model = Model::new();
    for between in [0, 100] {
        let mut writer = RunWriter::with_spill(spill(30));
        for key in [1].into_iter().chain(2..2 + between).chain([1]) {
            writer.push(hash(key), Entry::Gone).unwrap();
            writer.relieve().await.unwrap();
        }
        let committed = model.index.commit(writer, &mut names(1), &present).await;
        assert_eq!(committed.unwrap_err().code(), Code::Internal, "{between}");
    }
}

#[tokio::test]
async fn changes_beyond_memory_are_put_aside_and_make_one_run() {
    let mut model = Model::new();
    let aside = spill(100);
    let mut writer = RunWriter::with_spill(aside.clone());
    let file = writer.file(&FileRef::data("a.parquet"));
    for row in 0..60_000u32 {
        let entry = Entry::Live { file, row };
        writer.push(hash(u64::from(row)), entry).unwrap();
        writer.relieve().await.unwrap();
    }
    let kept: Vec<_> = futures::TryStreamExt::try_collect(aside.store.list(None))
        .await
        .unwrap();
    assert!((1..60).contains(&kept.len()), "{} runs aside", kept.len());
    let manifest = model
        .index
        .commit(writer, &mut names(1), &present)
        .await
        .unwrap();
    assert_eq!((manifest.runs.len(), manifest.entries()), (1, 60_000));
    model.advance(manifest);
    model.keys = (0..60_000u32)
        .map(|row| (u64::from(row), (FileRef::data("a.parquet"), row)))
        .collect();
    model.check(&(0..61_000).collect::<Vec<_>>()).await.unwrap();
}

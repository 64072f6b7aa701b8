use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use tidegate_delta::feed::COMMIT_VERSION;

use super::*;
use crate::fixture::Table;

fn from(version: i64) -> FeedBounds {
    FeedBounds {
        start_version: Some(version),
        ..FeedBounds::default()
    }
}

/// Number of changes by commit version.
async fn versions(mut rows: Rows) -> Vec<(i64, usize)> {
    let mut found: Vec<(i64, usize)> = Vec::new();
    while let Some(batch) = rows.next_batch().await.unwrap() {
        let column = batch
            .column_by_name(COMMIT_VERSION)
            .unwrap()
            .as_primitive::<Int64Type>();
        match found.last_mut() {
            Some((version, count)) if *version == column.value(0) => *count += batch.num_rows(),
            _ => found.push((column.value(0), batch.num_rows())),
        }
    }
    found
}

#[tokio::test]
async fn a_range_is_read_again_with_the_same_rows() {
    let table = Table::new().await;
    for _ in 0..2 {
        let rows = changes(&table.log, &from(1)).await.unwrap();
        assert_eq!(versions(rows).await, [(1, 3), (2, 3)]);
    }
    let one = FeedBounds {
        end_version: Some(1),
        ..from(0)
    };
    assert_eq!(
        versions(changes(&table.log, &one).await.unwrap()).await,
        [(1, 3)]
    );
    let empty = FeedBounds {
        end_version: Some(0),
        ..from(0)
    };
    assert_eq!(
        versions(changes(&table.log, &empty).await.unwrap()).await,
        []
    );
}

#[tokio::test]
async fn bounds_that_ask_for_what_is_not_there_are_refused() {
    let table = Table::new().await;
    let both = FeedBounds {
        start_timestamp_ms: Some(0),
        ..from(0)
    };
    let backwards = FeedBounds {
        end_version: Some(1),
        ..from(2)
    };
    let beyond = FeedBounds {
        end_version: Some(9),
        ..from(1)
    };
    for (bounds, code) in [
        (FeedBounds::default(), Code::NoStart),
        (both, Code::InvalidVersion),
        (from(-1), Code::InvalidVersion),
        (backwards, Code::InvalidRange),
        (from(9), Code::StartAfterLatest),
        (beyond, Code::EndAfterLatest),
    ] {
        assert_eq!(
            changes(&table.log, &bounds).await.unwrap_err().code(),
            code,
            "{bounds:?}"
        );
    }
    let allowed = FeedBounds {
        allow_out_of_range: true,
        ..beyond
    };
    assert_eq!(
        versions(changes(&table.log, &allowed).await.unwrap()).await,
        [(1, 3), (2, 3)]
    );
    let allowed = FeedBounds {
        allow_out_of_range: true,
        ..from(9)
    };
    assert_eq!(
        versions(changes(&table.log, &allowed).await.unwrap()).await,
        []
    );
}

#[tokio::test]
async fn a_stream_starts_with_the_table_and_goes_on_after_its_checkpoint() {
    let table = Table::new().await;
    let streamed = stream_changes(&table.log, ChangesStart::Table, false)
        .await
        .unwrap();
    assert_eq!(streamed.until, Some(TableVersion(2)));
    assert_eq!(versions(streamed.rows).await, [(2, 6)]);

    let after = |version| ChangesStart::After(TableVersion(version));
    let streamed = stream_changes(&table.log, after(1), false).await.unwrap();
    assert_eq!(versions(streamed.rows).await, [(2, 3)]);
    let streamed = stream_changes(&table.log, after(2), false).await.unwrap();
    assert_eq!(
        (versions(streamed.rows).await, streamed.until),
        (vec![], None)
    );
    table.add(3, &[5]).await;
    let streamed = stream_changes(&table.log, after(2), false).await.unwrap();
    assert_eq!(streamed.until, Some(TableVersion(3)));
    assert_eq!(versions(streamed.rows).await, [(3, 1)]);
}

#[tokio::test]
async fn a_start_beyond_the_newest_version_waits_where_that_is_allowed() {
    let table = Table::new().await;
    for start in [
        ChangesStart::From(from(7)),
        ChangesStart::After(TableVersion(7)),
    ] {
        let refused = stream_changes(&table.log, start, false).await.unwrap_err();
        assert_eq!(refused.code(), Code::StartAfterLatest);
        let waiting = stream_changes(&table.log, start, true).await.unwrap();
        assert_eq!(waiting.until, None);
    }
}

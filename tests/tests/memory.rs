//! Batches that are many times larger than their memory make the table, the feed and the counts that a
//! plain fold of the events makes.

use anyhow::{Result, ensure};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tidegate_tests::embedded::InProcess;
use tidegate_tests::harness::{EventFile, FeedRequest, Harness};
use tidegate_tests::keyed_events::{
    Event, SPEC, Table, apply_feed, check_counts, events, fold, table_of,
};

/// Memory of a batch, bytes: a small part of what its events take.
const MEMORY_BYTES: u64 = 1 << 20;
/// Events of a batch.
const EVENTS: u64 = 60_000;
#[test]
fn batches_beyond_their_memory_make_the_same_table_feed_and_counts() -> Result<()> {
    let tidegate = InProcess::with_memory(MEMORY_BYTES)?;
    tidegate.create(SPEC)?;
    let mut random = StdRng::seed_from_u64(5);
    let (mut all, mut folded, mut keyless) = (Vec::new(), Table::new(), 0);
    for batch in 0..3 {
        // Later batches repeat some of the events before.
        let mut own = events(&mut random, 1 + batch * EVENTS, EVENTS);
        own.extend(all.iter().step_by(17).cloned());
        let lines: Vec<String> = own.iter().map(Event::json).collect();
        let file = EventFile::json_lines("events.jsonl", lines.iter().map(String::as_str));
        let result = tidegate.apply("t", &format!("batch-{batch}"), &[file])?;
        let before = fold(&all);
        keyless += own.iter().filter(|event| event.id.is_none()).count();
        all.extend(own.iter().cloned());
        let (expected, found) = (fold(&all), table_of(&tidegate.read("t", None)?)?);
        let rows = (found.len(), expected.len());
        ensure!(
            found == expected,
            "batch {batch}: another table: rows {rows:?}"
        );
        check_counts(&result, &before, &expected, &own)?;
        let version = i64::try_from(batch + 1)?;
        let request = FeedRequest::Range {
            from: Some(version),
            to: Some(version),
            allow_out_of_range: false,
        };
        apply_feed(&mut folded, &tidegate.changes("t", request)?)?;
        ensure!(
            folded == expected,
            "the feed of version {version} leads elsewhere"
        );
    }
    let rejects = tidegate.rejects("t")?.len();
    ensure!(
        rejects == keyless && keyless > 5_000,
        "{rejects} rejects of {keyless}"
    );
    Ok(())
}

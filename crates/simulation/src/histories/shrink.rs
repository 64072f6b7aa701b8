//! Makes a failing history small: batches, events and fields go as long as it still fails.

use serde_json::Value as Json;

use crate::scenario::{FileFormat, Scenario};

/// The smallest history found within `tries` checks on which `fails` still holds.
pub fn shrink(
    scenario: &Scenario,
    mut tries: usize,
    mut fails: impl FnMut(&Scenario) -> bool,
) -> Scenario {
    let mut best = scenario.clone();
    loop {
        let mut smaller = false;
        for candidate in candidates(&best) {
            if tries == 0 {
                return best;
            }
            tries -= 1;
            if fails(&candidate) {
                best = candidate;
                smaller = true;
                break;
            }
        }
        if !smaller {
            return best;
        }
    }
}

/// Histories one step smaller, the largest steps first.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut candidates = Vec::new();
    let mut keep = |change: &dyn Fn(&mut Scenario) -> bool| {
        let mut candidate = scenario.clone();
        if change(&mut candidate) {
            candidates.push(candidate);
        }
    };
    for batch in (0..scenario.batches.len()).rev() {
        keep(&|s| {
            s.batches.remove(batch);
            true
        });
    }
    for (i, batch) in scenario.batches.iter().enumerate() {
        for half in [
            0..batch.events.len() / 2,
            batch.events.len() / 2..batch.events.len(),
        ] {
            keep(&|s| half.len() > 1 && s.batches[i].events.drain(half.clone()).count() > 0);
        }
    }
    for (i, batch) in scenario.batches.iter().enumerate() {
        for event in (0..batch.events.len()).rev() {
            keep(&|s| {
                s.batches[i].events.remove(event);
                true
            });
        }
    }
    for i in 0..scenario.batches.len() {
        keep(&|s| std::mem::replace(&mut s.batches[i].files, 1) > 1);
        keep(&|s| std::mem::take(&mut s.batches[i].format) != FileFormat::default());
    }
    simpler_spec(&mut keep);
    for (i, batch) in scenario.batches.iter().enumerate() {
        for (e, event) in batch.events.iter().enumerate() {
            for name in event.keys().filter(|name| name.starts_with(['v', 'w'])) {
                keep(&|s| {
                    let old = s.batches[i].events[e].insert(name.clone(), Json::Null);
                    old.is_some_and(|old| !old.is_null())
                });
            }
        }
    }
    candidates
}

fn simpler_spec(keep: &mut impl FnMut(&dyn Fn(&mut Scenario) -> bool)) {
    keep(&|s| s.spec.buckets.replace(1) != Some(1));
    keep(&|s| !std::mem::take(&mut s.spec.partition_by).is_empty());
    keep(&|s| s.spec.feed.take().is_some());
    keep(&|s| s.spec.on_invalid.take().is_some());
    keep(&|s| s.spec.tombstone_retention_s.take().is_some());
    for name in ["v0", "v1", "v2", "v3", "v4"] {
        keep(&|s| drop_column(s, name));
    }
}

/// Takes a payload column out of the table and of all events, where nothing in the spec names it.
fn drop_column(scenario: &mut Scenario, name: &str) -> bool {
    let spec = &mut scenario.spec;
    let named = |list: &Option<Vec<String>>| list.iter().flatten().any(|n| n == name);
    let in_lists = named(&spec.columns)
        || named(&spec.except)
        || spec.partition_by.iter().any(|n| n == name)
        || serde_json::to_string(&spec.ignore_null_updates).is_ok_and(|text| text.contains(name));
    if in_lists || spec.columns_to_update.is_some() || spec.types.remove(name).is_none() {
        return false;
    }
    spec.source_columns.retain(|column| column != name);
    if let Some(declared) = &mut spec.declared {
        *declared -= 1;
    }
    for batch in &mut scenario.batches {
        for event in &mut batch.events {
            event.remove(name);
        }
    }
    true
}

//! Owners are even, stay where they can, and the leader's view of workers follows what it hears.

use super::*;

fn workers(nodes: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
    nodes.into_iter().map(NodeId).collect()
}

fn table(number: u32) -> TableId {
    TableId(format!("table-{number}"))
}

fn range(first: u32, end: u32) -> Vec<Range<u32>> {
    std::iter::once(first..end).collect()
}

/// The owner of each bucket.
fn by_bucket(owned: &BTreeMap<NodeId, Vec<Range<u32>>>, buckets: u32) -> Vec<NodeId> {
    let owner = |bucket: u32| {
        let mut own = owned
            .iter()
            .filter(|(_, ranges)| ranges.iter().any(|range| range.contains(&bucket)));
        let (node, _) = own.next().expect("every bucket has an owner");
        assert!(own.next().is_none(), "bucket {bucket} has two owners");
        *node
    };
    (0..buckets).map(owner).collect()
}

fn placed(incarnation: u64) -> PlacedWorker {
    PlacedWorker {
        endpoint: "http://w".into(),
        incarnation,
        is_draining: false,
    }
}

#[test]
fn every_bucket_has_one_owner_and_owners_are_even() {
    for buckets in [1, 2, 4, 16, 64, 256, 4096] {
        for count in [1, 2, 3, 4, 7] {
            let owned = owners(&table(0), buckets, &range(0, buckets), &workers(0..count));
            let by_bucket = by_bucket(&owned, buckets);
            let slots = buckets.min(SLOTS_MAX) as usize;
            let full = slots.div_ceil(usize::try_from(count).unwrap()) * (buckets as usize / slots);
            for node in workers(0..count) {
                let held = by_bucket.iter().filter(|owner| **owner == node).count();
                assert!(held <= full, "{held} of {buckets} on one of {count}");
            }
        }
    }
    assert!(owners(&table(0), 16, &range(0, 16), &workers([])).is_empty());
}

#[test]
fn tables_of_one_bucket_are_spread() {
    let nodes = workers(0..4);
    let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
    for number in 0..400 {
        for owner in owners(&table(number), 1, &range(0, 1), &nodes).into_keys() {
            *counts.entry(owner).or_default() += 1;
        }
    }
    assert_eq!(counts.values().sum::<u32>(), 400);
    assert!(
        counts.values().all(|count| (60..140).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn few_buckets_move_when_a_worker_goes() {
    let all = owners(&table(1), 64, &range(0, 64), &workers(0..4));
    let before = by_bucket(&all, 64);
    let after = by_bucket(&owners(&table(1), 64, &range(0, 64), &workers(0..3)), 64);
    let lost = before.iter().filter(|owner| **owner == NodeId(3)).count();
    let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!(moved <= lost + 16, "{moved} moved where {lost} were lost");
    // In the middle of a batch only what was lost gets new owners.
    let ranges = &all[&NodeId(3)];
    let again = owners(&table(1), 64, ranges, &workers(0..3));
    let count = |ranges: &Vec<Range<u32>>| ranges.iter().map(|range| range.len()).sum::<usize>();
    assert_eq!(again.values().map(count).sum::<usize>(), count(ranges));
}

#[test]
fn a_worker_that_drains_gets_nothing_and_is_still_there() {
    let mut placement = Placement::default();
    placement.workers.insert(NodeId(1), placed(1));
    placement.workers.insert(NodeId(2), placed(1));
    placement.workers.get_mut(&NodeId(1)).unwrap().is_draining = true;
    let owned = placement.owners(&table(0), 16);
    assert_eq!(owned.keys().collect::<Vec<_>>(), [&NodeId(2)]);
    let seat = |incarnation| Seat {
        node: NodeId(1),
        incarnation,
        endpoint: String::new(),
    };
    assert!(placement.holds(&seat(1)));
    assert!(!placement.holds(&seat(2)), "another process");
}

fn beat(node: u64, incarnation: u64) -> Beat {
    Beat {
        node: NodeId(node),
        incarnation,
        endpoint: "http://w".into(),
        is_draining: false,
    }
}

#[test]
fn a_silent_worker_goes_and_one_that_speaks_comes() {
    let mut registry = Registry::new(100);
    let mut placement = Placement::default();
    assert_eq!(registry.wanted(&placement, 0), None);
    registry.hear(beat(1, 7), 10);
    placement.workers = registry.wanted(&placement, 10).unwrap();
    assert_eq!(placement.workers[&NodeId(1)].incarnation, 7);
    assert_eq!(registry.wanted(&placement, 110), None);
    assert_eq!(registry.wanted(&placement, 111), Some(BTreeMap::new()));
    registry.hear(beat(1, 7), 200);
    assert_eq!(registry.wanted(&placement, 300), None, "it came back");
}

#[test]
fn a_new_leader_waits_for_the_workers_of_the_old_one() {
    let mut registry = Registry::new(100);
    let mut placement = Placement::default();
    placement.workers.insert(NodeId(1), placed(7));
    assert_eq!(registry.wanted(&placement, 1_000), None);
    assert_eq!(registry.wanted(&placement, 1_100), None);
    assert_eq!(registry.wanted(&placement, 1_101), Some(BTreeMap::new()));
    registry.step_down();
    assert_eq!(registry.wanted(&placement, 2_000), None, "it leads anew");
}

#[test]
fn a_drain_ends_with_the_process_that_was_drained() {
    let mut registry = Registry::new(100);
    let mut placement = Placement::default();
    placement.workers.insert(NodeId(1), placed(7));
    placement.workers.get_mut(&NodeId(1)).unwrap().is_draining = true;
    registry.hear(beat(1, 7), 0);
    assert_eq!(registry.wanted(&placement, 0), None);
    registry.hear(beat(1, 8), 1);
    let wanted = registry.wanted(&placement, 1).unwrap();
    assert_eq!(wanted[&NodeId(1)], placed(8));
}

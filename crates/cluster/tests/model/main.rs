//! Explicit-state model of the commit protocol (commit protocol 2.9).
//!
//! Breadth-first search over everything that coordinators, stores, foreign writers and garbage collection may
//! do, with the product's own state machine inside: every entry goes through `metadata::apply`. The rules must
//! be searched to the end without a violation, and each known shortcut must be refuted.
//!
//! `TIDEGATE_MODEL=large cargo --config 'profile.dev.package.tidegate-cluster.opt-level=3' test
//! -p tidegate-cluster --test model` searches the large configurations too.

#[cfg(test)]
mod actions;
#[cfg(test)]
mod world;

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use world::{Limits, Mutant, World};

/// What a search found.
#[derive(Debug)]
struct Report {
    states: usize,
    transitions: usize,
    /// The broken invariant and the steps to it.
    violation: Option<(String, Vec<String>)>,
}

/// Two hashes of a world: one alone would collide among millions.
fn fingerprint(world: &World) -> u128 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let low = hasher.hash_one(world);
    let high = hasher.hash_one((0x5eed_u64, world));
    (u128::from(high) << 64) | u128::from(low)
}

fn search(limits: &Limits, mutant: Option<Mutant>) -> Report {
    let start = World::new(limits);
    let mut seen: HashSet<u128> = HashSet::from([fingerprint(&start)]);
    // Each world remembers the step that led to it, to tell how a violation came about.
    let mut trail: Vec<(usize, String)> = vec![(0, "start".into())];
    let mut queue = VecDeque::from([(0_usize, start)]);
    let mut transitions = 0;
    while let Some((from, world)) = queue.pop_front() {
        for (step, next) in world.successors(limits, mutant) {
            transitions += 1;
            if !seen.insert(fingerprint(&next)) {
                continue;
            }
            trail.push((from, step));
            let here = trail.len() - 1;
            if let Some(broken) = next.broken_invariant() {
                let violation = Some((broken, steps_to(&trail, here)));
                return Report {
                    states: seen.len(),
                    transitions,
                    violation,
                };
            }
            queue.push_back((here, next));
        }
    }
    Report {
        states: seen.len(),
        transitions,
        violation: None,
    }
}

fn steps_to(trail: &[(usize, String)], mut at: usize) -> Vec<String> {
    let mut steps = Vec::new();
    while at != 0 {
        steps.push(trail[at].1.clone());
        at = trail[at].0;
    }
    steps.reverse();
    steps
}

fn require_safe(name: &str, limits: &Limits) {
    let report = search(limits, None);
    println!(
        "{name}: {} states, {} transitions",
        report.states, report.transitions
    );
    assert!(
        report.violation.is_none(),
        "{name}: {:#?}",
        report.violation
    );
}

#[test]
fn the_rules_hold_for_one_batch() {
    require_safe(
        "one batch",
        &Limits {
            batches: 1,
            attempts: 2,
            slots: 4,
            ..Limits::SMALL
        },
    );
}

#[test]
fn the_rules_hold_for_two_batches() {
    require_safe(
        "two batches",
        &Limits {
            batches: 2,
            attempts: 2,
            slots: 3,
            crashes: 1,
            ..Limits::SMALL
        },
    );
}

#[test]
fn the_rules_hold_when_staged_files_are_lost() {
    require_safe(
        "lost files",
        &Limits {
            losses: 1,
            crashes: 0,
            attempts: 2,
            ..Limits::SMALL
        },
    );
}

#[test]
fn the_rules_hold_beside_maintenance() {
    require_safe(
        "maintenance",
        &Limits {
            maintenance: true,
            crashes: 0,
            ..Limits::SMALL
        },
    );
}

#[test]
fn the_rules_hold_for_a_batch_over_two_tables() {
    let limits = Limits {
        tables: 2,
        attempts: 3,
        slots: 2,
        crashes: 0,
        ..Limits::SMALL
    };
    require_safe("two tables", &limits);
}

#[test]
fn the_large_configurations_hold() {
    if std::env::var("TIDEGATE_MODEL").as_deref() == Ok("large") {
        let large = Limits {
            crashes: 2,
            attempts: 3,
            slots: 4,
            ..Limits::SMALL
        };
        require_safe("large, one batch", &large);
        require_safe(
            "large, two batches",
            &Limits {
                batches: 2,
                crashes: 1,
                slots: 3,
                ..large
            },
        );
    }
}

#[test]
fn every_shortcut_is_refuted() {
    for mutant in Mutant::ALL {
        let limits = Limits {
            batches: 1,
            attempts: 2,
            slots: 3,
            crashes: 1,
            ..Limits::SMALL
        };
        let report = search(&limits, Some(mutant));
        let Some((broken, steps)) = report.violation else {
            panic!("{mutant:?} was not refuted in {} states", report.states);
        };
        println!(
            "{mutant:?}: {broken} after {} steps, {} states",
            steps.len(),
            report.states
        );
    }
}

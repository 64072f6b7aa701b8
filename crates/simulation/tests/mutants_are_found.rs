//! The property test is tested itself: every deliberate bug in merge, apply and index must be found.
//! One test of its own process, since a bug is on for the whole process.

use tidegate_change::mutants::{Mutant, turn_on};
use tidegate_simulation::property::{Path, first_difference};

/// Histories within which a bug must be found: no more than the gate runs.
const HISTORIES: u64 = 2_000;

#[test]
fn every_deliberate_bug_is_found() {
    let mut missed = Vec::new();
    for mutant in Mutant::OF_BATCHES {
        let path = match mutant {
            Mutant::DeleteWinsTie
            | Mutant::StoredWinsTie
            | Mutant::LeavesOutliveDeletes
            | Mutant::HorizonIsOpen => Path::Merge,
            _ => Path::Embedded,
        };
        turn_on(Some(mutant));
        let found = first_difference(path, 0..HISTORIES);
        turn_on(None);
        match found {
            Some((seed, _)) => println!("{mutant:?}: found by seed {seed}"),
            None => missed.push(mutant),
        }
    }
    assert!(
        missed.is_empty(),
        "not found in {HISTORIES} histories: {missed:?}"
    );
}

//! The simulation is tested itself: every deliberate bug of the commit path must be found.
//! One test of its own process, since a bug is on for the whole process.

use tidegate_change::mutants::{Mutant, turn_on};
use tidegate_simulation::commits::run;

/// Histories within which a bug must be found.
const HISTORIES: u64 = 600;

#[test]
fn every_deliberate_bug_of_the_commit_path_is_found() {
    let mut missed = Vec::new();
    for mutant in Mutant::OF_COMMITS {
        turn_on(Some(mutant));
        let found = (0..HISTORIES).find_map(|seed| run(seed).err());
        turn_on(None);
        match found {
            Some(violation) => {
                let (seed, what) = (violation.seed, violation.what);
                println!("{mutant:?}: found by seed {seed}: {what}");
            }
            None => missed.push(mutant),
        }
    }
    assert!(
        missed.is_empty(),
        "not found in {HISTORIES} histories: {missed:?}"
    );
}

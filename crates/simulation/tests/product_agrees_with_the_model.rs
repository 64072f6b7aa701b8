//! The property, for the gate: 2,000 random histories through merge alone and through the whole embedded
//! path, and some with so little memory that events go to files. The example `histories` runs as many more
//! as one likes.

use tidegate_simulation::property::{Path, run_seeds};

const HISTORIES: u64 = 2_000;

/// Histories with little memory, which take longer.
const SPILLING_HISTORIES: u64 = 600;

fn agrees(path: Path, histories: u64) {
    let survey = run_seeds(path, 0..histories, 3);
    let reports: Vec<String> = survey
        .failures
        .iter()
        .map(|failure| failure.report(path))
        .collect();
    assert!(reports.is_empty(), "{}", reports.join("\n"));
    let (open, most) = (survey.open, histories / 100);
    assert!(
        open <= most,
        "{open} histories end where the rules leave the outcome open"
    );
}

#[test]
fn merge_agrees_with_the_model() {
    agrees(Path::Merge, HISTORIES);
}

#[test]
fn the_embedded_path_agrees_with_the_model() {
    agrees(Path::Embedded, HISTORIES);
}

#[test]
fn the_embedded_path_agrees_with_the_model_in_little_memory() {
    agrees(Path::Spilling, SPILLING_HISTORIES);
}

//! The property, for the gate: 2,000 random histories through merge alone and through the whole embedded
//! path. The example `histories` runs as many more as one likes.

use tidegate_simulation::property::{Path, run_seeds};

const HISTORIES: u64 = 2_000;

fn agrees(path: Path) {
    let failures = run_seeds(path, 0..HISTORIES, 3);
    let reports: Vec<String> = failures
        .iter()
        .map(|failure| failure.report(path))
        .collect();
    assert!(failures.is_empty(), "{}", reports.join("\n"));
}

#[test]
fn merge_agrees_with_the_model() {
    agrees(Path::Merge);
}

#[test]
fn the_embedded_path_agrees_with_the_model() {
    agrees(Path::Embedded);
}

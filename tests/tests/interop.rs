//! The other readers see what Tidegate sees: every version, the feed, and no hidden column.

use std::process::Command;

use anyhow::{Result, ensure};
use tidegate_tests::binary::Binary;
use tidegate_tests::case;
use tidegate_tests::workspace;

/// Runs `interop/check.py` on all tables of a directory.
fn check_readers(tidegate: &Binary) -> Result<()> {
    let output = Command::new(workspace::python()?)
        .arg(workspace::tests_dir("interop/check.py"))
        .arg(workspace::binary()?)
        .arg(tidegate.local())
        .output()?;
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let problems = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the readers differ:\n{problems}");
    Ok(())
}

#[test]
fn other_readers_see_equal_rows_and_changes_of_the_cases() -> Result<()> {
    let tidegate = Binary::new()?;
    for case in case::discover(&workspace::tests_dir("cases"))? {
        // What a case expects is checked elsewhere; here its table is wanted.
        if !case.expects_refusal() {
            case.run(&tidegate)?;
        }
    }
    check_readers(&tidegate)
}

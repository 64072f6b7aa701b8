//! The other readers see what Tidegate sees: every version, the feed, and no hidden column. The tables of
//! the captures are compared where they are made.

use anyhow::Result;
use tidegate_tests::binary::Binary;
use tidegate_tests::case;
use tidegate_tests::readers;
use tidegate_tests::workspace;

#[test]
fn other_readers_see_equal_rows_and_changes_of_the_cases() -> Result<()> {
    let tidegate = Binary::new()?;
    for case in case::discover(&workspace::tests_dir("cases"))? {
        // What a case expects is checked elsewhere; here its table is wanted.
        if !case.expects_refusal() {
            case.run(&tidegate)?;
        }
    }
    readers::check_python(tidegate.local())?;
    readers::check_kernel(tidegate.local())
}

//! What the tests of the whole product share: the scenario cases, the captures with their truth, the
//! comparison of typed values, and the ways to drive Tidegate.
//!
//! - [`workspace`]: where things lie: the repository, the binary, the Python with the other readers.
//! - [`rust_source`]: just enough of Rust's syntax to check the style of the sources.
//! - [`harness`]: what a test asks of Tidegate; [`binary`] answers it by the command line, [`embedded`] in
//!   this process, [`served`] by the command line against a node.
//! - [`grid`]: workers on ports of this machine, and what may happen to them.
//! - [`cluster`]: nodes as real processes that a test may kill; [`ledger`]: a stream of batches through that.
//! - [`case`]: the scenario cases of `tests/cases`.
//! - [`keyed_events`]: random events of one table, and what a plain fold makes of them.
//! - [`value`]: JSON values in a canonical, typed form, so that rows compare as bags.
//! - [`readers`]: other readers of Delta tables against Tidegate; [`kernel`] is one of them.
//! - [`foreign`]: other writers of a table: delta_kernel, and one of valid commit files.
//! - [`s3`]: object stores to test against.
//! - [`csv`], [`postgres`]: the dumps of a source database.
//! - [`capture`], [`difference`]: recorded change streams, and where a stream truly lacks something.

pub mod binary;
pub mod capture;
pub mod case;
pub mod cluster;
pub mod csv;
pub mod difference;
pub mod embedded;
pub mod foreign;
pub mod grid;
pub mod harness;
pub mod kernel;
pub mod keyed_events;
pub mod ledger;
pub mod postgres;
pub mod readers;
pub mod rust_source;
pub mod s3;
pub mod served;
pub mod value;
pub mod workspace;

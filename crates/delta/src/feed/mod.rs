//! The changes of a range of versions.

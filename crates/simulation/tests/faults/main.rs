//! Faults at every durable step of an apply: crashes, full disks, directories that refuse writes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod crashes;
mod disks;
mod lost_index;
mod table;

//! Faults at every durable step of an apply: crashes, full disks, directories that refuse writes.

mod crashes;
mod disks;
mod table;

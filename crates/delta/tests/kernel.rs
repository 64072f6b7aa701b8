//! Tables that this crate writes, read by delta_kernel and by this crate, version by version.

#[cfg(test)]
mod support;

#[cfg(test)]
#[path = "readers/kernel.rs"]
mod readers;

//! Tables that this crate writes over its public API, read back by it and by delta_kernel.

#[cfg(test)]
mod feed;
#[cfg(test)]
mod kernel;
#[cfg(test)]
mod support;

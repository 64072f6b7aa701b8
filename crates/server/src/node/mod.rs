//! A node: the services of one process on one port.
//!
//! - `serving`: what all services work with.
//! - `listener`: connections, a bounded number of them.
//! - `router`: the services with their limits.
//! - `lifecycle`: start, and a stop that lets running work end.

mod lifecycle;
mod listener;
mod router;
mod serving;
#[cfg(test)]
pub(crate) mod tests;

pub use lifecycle::{Node, NodeEnd};
pub(crate) use serving::Serving;

//! The coordinator against stores that lie and processes that end.

mod adoption;
mod crashes;
mod races;
mod support;

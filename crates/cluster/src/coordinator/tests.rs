//! The coordinator against stores that lie and processes that end.

mod adoption;
mod crashes;
mod lost_answers;
mod races;
mod support;
mod take_over;

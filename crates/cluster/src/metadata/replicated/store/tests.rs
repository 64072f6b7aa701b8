//! The store survives every crash with all that it acknowledged, and believes no damaged file.

mod crashes;
mod damage;
mod groups_writes;
mod suite;
mod support;

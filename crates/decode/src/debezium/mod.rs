//! Debezium's change events as JSON lines: bare values or dumped Kafka records, with schema or without.
//!
//! - `record`: one line to its parts, in one scan; `source_block` is the envelope's `source`.
//! - `schema`: Connect schemas, parsed once; `types`: their types; `typed`: how values decode.
//! - `decoder`: what a record is, and the events that it makes; `key_change`: which two belong together;
//!   `image`: rows and keys by column.
//! - `envelope`: metadata columns.
//! - `position`: sequences from source positions (R-T6); `placeholder`: unavailable values (R-K6).

mod decoder;
mod envelope;
mod image;
mod key_change;
mod placeholder;
mod position;
mod record;
mod schema;
mod source_block;
mod typed;
mod types;

pub(crate) use decoder::decode_lines;
pub(crate) use placeholder::Placeholder;
pub(crate) use position::{OtherKind, Position, Positions};
pub(crate) use typed::append_typed;
pub(crate) use types::SourceType;

//! What tells the rows of an append table apart: where the source says that a record stands, and what it
//! says there (R-K7). A record that is delivered again, in another batch or order, has the same bytes.
//!
//! - [`position_keys`]: the bytes of a part's events, one key an event;
//! - `content`: the digest of an event's values.
//!
//! The bytes compare as positions do and are stable for ever, since they lie in data files: one byte for
//! the kind of place, the place, and 8 big-endian bytes of the digest. Places are
//!
//! 1. a file: its name, the number of the record;
//! 2. a topic: its name, the partition, the offset;
//! 3. a position of the source's own log: its members without `rank`.
//!
//! Text is UTF-8 with 0x00 as 0x00 0xFF, ended by 0x00 0x01; integers are 8 big-endian bytes with the sign
//! bit flipped; a member of a log position is 0x00 where it is NULL, else 0x01 before its value.
//!
//! A log position wins where an event has one: it survives a connector that starts again and sends what it
//! has sent, under new offsets. Rows of an initial copy share one log position and take their place in the
//! topic, else in the file. The digest stands in every key because no place is one record's for ever: a
//! file name or a topic comes again, and PostgreSQL logs many rows of one `COPY` at one position.

mod content;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, StructArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};

use self::content::Contents;
use crate::mutants::{Mutant, is_on};
use crate::source::{Origin, SourceBatch, SourceOperation};
use crate::{Error, Result};

/// Type of the keys.
pub const POSITION_TYPE: DataType = DataType::Binary;

/// Member of a log position that ranks copies below streamed rows, which no place needs.
const RANK: &str = "rank";

/// Kinds of places, in their order.
const FILE: u8 = 1;
const TOPIC: u8 = 2;
const LOG: u8 = 3;

/// The keys of a part's events; `is_content` picks the source columns whose values tell records apart.
///
/// Columns that the envelope fills are none: they may differ from one delivery to the next.
///
/// # Errors
/// `UNSUPPORTED` for a column of a type that Delta does not have, `INTERNAL` for a position of unknown form.
pub fn position_keys(batch: &SourceBatch, is_content: impl Fn(&str) -> bool) -> Result<ArrayRef> {
    let contents = Contents::new(batch, is_content)?;
    let logged = batch.position.as_ref().map(LogPositions::new).transpose()?;
    let mut keys = BinaryBuilder::new();
    let (mut key, mut scratch) = (Vec::new(), Vec::new());
    for (row, operation) in batch.operations.iter().enumerate() {
        key.clear();
        let logged = logged
            .as_ref()
            .filter(|logged| *operation != SourceOperation::Copy && logged.is_known(row));
        match logged {
            Some(logged) => logged.write(row, &mut key),
            None => write_place(&batch.origin, row, &mut key)?,
        }
        let mut digest = contents.digest(row, &mut scratch);
        if is_on(Mutant::PlaceAlone) {
            digest = 0;
        }
        if is_on(Mutant::ValuesAlone) {
            key.clear();
        }
        key.extend_from_slice(&digest.to_be_bytes());
        keys.append_value(&key);
    }
    Ok(Arc::new(keys.finish()))
}

/// The place in the topic, or in the file where the record carries none.
fn write_place(origin: &Origin, row: usize, key: &mut Vec<u8>) -> Result<()> {
    fn of<T>(values: &Option<Vec<Option<T>>>, row: usize) -> Option<&T> {
        values.as_ref()?.get(row)?.as_ref()
    }
    if let Some(offset) = of(&origin.offsets, row) {
        key.push(TOPIC);
        write_text(of(&origin.topics, row).map_or("", |topic| topic), key);
        write_integer(of(&origin.partitions, row).copied().unwrap_or(0), key);
        write_integer(*offset, key);
        return Ok(());
    }
    let number = origin.rows.get(row).copied();
    let number = number.and_then(|number| i64::try_from(number).ok());
    let number = number.ok_or_else(|| Error::internal("an event has no place in its file"))?;
    key.push(FILE);
    write_text(&origin.file, key);
    write_integer(number, key);
    Ok(())
}

fn write_text(text: &str, key: &mut Vec<u8>) {
    for byte in text.bytes() {
        key.push(byte);
        if byte == 0 {
            key.push(0xff);
        }
    }
    key.extend_from_slice(&[0, 1]);
}

fn write_integer(value: i64, key: &mut Vec<u8>) {
    let [first, rest @ ..] = value.to_be_bytes();
    key.push(first ^ 0x80);
    key.extend_from_slice(&rest);
}

/// The log positions of a part.
struct LogPositions<'a> {
    positions: &'a StructArray,
    members: Vec<Member<'a>>,
}

enum Member<'a> {
    Long(&'a arrow::array::Int64Array),
    Integer(&'a arrow::array::Int32Array),
    Text(&'a arrow::array::StringArray),
}

impl<'a> LogPositions<'a> {
    fn new(positions: &'a ArrayRef) -> Result<Self> {
        let unknown = || Error::internal("a position of the source has a member of no known type");
        let positions = positions.as_struct_opt().ok_or_else(unknown)?;
        let members = positions
            .fields()
            .iter()
            .zip(positions.columns())
            .filter(|(field, _)| field.name() != RANK)
            .map(|(_, column)| {
                let long = column.as_primitive_opt::<Int64Type>().map(Member::Long);
                let integer = || column.as_primitive_opt::<Int32Type>().map(Member::Integer);
                let text = || column.as_string_opt::<i32>().map(Member::Text);
                long.or_else(integer).or_else(text).ok_or_else(unknown)
            })
            .collect::<Result<_>>()?;
        Ok(Self { positions, members })
    }

    fn is_known(&self, row: usize) -> bool {
        self.positions.is_valid(row) && self.members.iter().any(|member| member.is_valid(row))
    }

    fn write(&self, row: usize, key: &mut Vec<u8>) {
        key.push(LOG);
        for member in &self.members {
            key.push(u8::from(member.is_valid(row)));
            if member.is_valid(row) {
                match member {
                    Member::Long(values) => write_integer(values.value(row), key),
                    Member::Integer(values) => write_integer(values.value(row).into(), key),
                    Member::Text(values) => write_text(values.value(row), key),
                }
            }
        }
    }
}

impl Member<'_> {
    fn is_valid(&self, row: usize) -> bool {
        match self {
            Self::Long(values) => values.is_valid(row),
            Self::Integer(values) => values.is_valid(row),
            Self::Text(values) => values.is_valid(row),
        }
    }
}

#[cfg(test)]
mod tests;

//! Classified events, as columns in memory and as a record batch for files and wires.
//!
//! The record batch has one schema for a table layout, whatever columns a source carries, so that batches of
//! any sources go together: keys, `sequence`, `is_upsert`, `hash` (the key hash), `source` and `row` (where
//! the event came from), `old_key` (R-K6), then by payload column its `value` and whether it is `authored`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StructArray, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, UInt32Type, UInt64Type};
use tidegate_change::key::CanonicalKeys;
use tidegate_change::spec::TableLayout;
use tidegate_change::{Error, KeyHash, Result};
use tidegate_merge::{EventKind, PayloadColumn};

use crate::classify::Classified;

/// Events of a batch that were classified together or belong together. Every part has one entry per event.
#[derive(Clone, Debug)]
pub(crate) struct EventPart {
    /// Key columns in key order, floats normalised.
    pub keys: Vec<ArrayRef>,
    /// Key hashes.
    pub hashes: Vec<KeyHash>,
    /// Sequences.
    pub sequence: ArrayRef,
    /// Upsert or delete.
    pub kinds: Vec<EventKind>,
    /// Values by payload column of the table.
    pub payload: Vec<PayloadColumn>,
    /// Old keys of key changes (R-K6).
    pub old_keys: Option<StructArray>,
    /// Where the events came from.
    pub places: Places,
}

/// Sources and records of events.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Positions of the events' sources among those of the batch.
    pub sources: Sources,
    /// Record numbers in the sources, from 0.
    pub rows: Vec<u64>,
}

/// Sources of events.
#[derive(Clone, Debug)]
pub(crate) enum Sources {
    /// One for all.
    One(u32),
    /// One for each event.
    Each(Vec<u32>),
}

impl Places {
    /// The source and record of an event.
    pub(crate) fn get(&self, event: usize) -> Option<(u32, u64)> {
        let row = *self.rows.get(event)?;
        match &self.sources {
            Sources::One(source) => Some((*source, row)),
            Sources::Each(sources) => Some((*sources.get(event)?, row)),
        }
    }
}

impl EventPart {
    /// Takes the events out of a classified part of a source.
    ///
    /// # Errors
    /// `UNSUPPORTED` for keys that cannot be hashed.
    pub(crate) fn of(source: u32, classified: &mut Classified) -> Result<Self> {
        let hashes = match classified.kinds.is_empty() {
            true => Vec::new(),
            false => CanonicalKeys::encode(&classified.keys)?.key_hashes(),
        };
        Ok(Self {
            keys: std::mem::take(&mut classified.keys),
            hashes,
            sequence: Arc::clone(&classified.sequence),
            kinds: std::mem::take(&mut classified.kinds),
            payload: std::mem::take(&mut classified.payload),
            old_keys: classified.old_keys.take(),
            places: Places {
                sources: Sources::One(source),
                rows: std::mem::take(&mut classified.rows),
            },
        })
    }

    /// Number of events.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Bytes that the part takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let payload = self.payload.iter().filter_map(|p| p.values.as_ref());
        let arrays = self.keys.iter().chain([&self.sequence]).chain(payload);
        let arrays: usize = arrays.map(|array| array.get_array_memory_size()).sum();
        let old = self.old_keys.as_ref();
        let own = size_of::<KeyHash>() + size_of::<EventKind>() + size_of::<u64>();
        arrays + old.map_or(0, Array::get_array_memory_size) + self.len() * own
    }

    /// Whether the event changes its key and leaves a column open that the old key may fill (R-K6).
    pub(crate) fn lacks_values(&self, event: usize) -> bool {
        self.old_keys
            .as_ref()
            .is_some_and(|old| old.is_valid(event))
            && self.kinds.get(event) == Some(&EventKind::Upsert)
            && self
                .payload
                .iter()
                .any(|column| match (&column.values, &column.authored) {
                    (None, _) => true,
                    (Some(_), Some(authored)) => !authored.value(event),
                    (Some(_), None) => false,
                })
    }

    /// The events that change their key and leave a column open, ascending.
    pub(crate) fn lacking_events(&self) -> Vec<u32> {
        if self.old_keys.is_none() {
            return Vec::new();
        }
        let all = (0u32..).zip(0..self.len());
        all.filter(|(_, event)| self.lacks_values(*event))
            .map(|(row, _)| row)
            .collect()
    }

    /// Some of the events.
    ///
    /// # Errors
    /// `INTERNAL` for an event that is not there.
    pub(crate) fn take(&self, events: &[u32]) -> Result<Self> {
        let at = UInt32Array::from(events.to_vec());
        let gather = |array: &ArrayRef| {
            take(array, &at, None)
                .map_err(|e| Error::internal("events cannot be gathered").with_source(e))
        };
        let old_keys = match &self.old_keys {
            Some(old) => {
                let old: ArrayRef = Arc::new(old.clone());
                Some(gather(&old)?.as_struct().clone())
            }
            None => None,
        };
        let payload = self.payload.iter().map(|column| {
            Ok(PayloadColumn {
                values: column.values.as_ref().map(&gather).transpose()?,
                authored: column.authored.as_ref().map(|bits| {
                    events
                        .iter()
                        .map(|event| bits.value(*event as usize))
                        .collect()
                }),
            })
        });
        Ok(Self {
            keys: self.keys.iter().map(&gather).collect::<Result<_>>()?,
            hashes: picked(&self.hashes, events)?,
            sequence: gather(&self.sequence)?,
            kinds: picked(&self.kinds, events)?,
            payload: payload.collect::<Result<_>>()?,
            old_keys,
            places: Places {
                sources: match &self.places.sources {
                    Sources::One(source) => Sources::One(*source),
                    Sources::Each(sources) => Sources::Each(picked(sources, events)?),
                },
                rows: picked(&self.places.rows, events)?,
            },
        })
    }
}

fn picked<T: Copy>(values: &[T], at: &[u32]) -> Result<Vec<T>> {
    at.iter()
        .map(|at| values.get(*at as usize).copied())
        .collect::<Option<_>>()
        .ok_or_else(|| Error::internal("an event that is not there"))
}

/// The record batches of a table's events.
#[derive(Clone, Debug)]
pub(crate) struct EventSchema {
    schema: SchemaRef,
    keys: usize,
    payload: usize,
    old_key: Fields,
}

/// Columns between keys and payload.
const FIXED: usize = 6;

impl EventSchema {
    /// The schema for a layout whose sequence type is known.
    pub(crate) fn new(layout: &TableLayout) -> Self {
        let sequence = layout.sequence_type.clone().unwrap_or(DataType::Int64);
        let key_columns = layout.key_columns().enumerate();
        let mut fields: Vec<Field> = key_columns
            .map(|(at, key)| Field::new(format!("key.{at}"), key.data_type.clone(), false))
            .collect();
        let keys = fields.len();
        let old_key: Fields = layout
            .key_columns()
            .map(|key| Field::new(&key.name, key.data_type.clone(), true))
            .collect();
        fields.extend([
            Field::new("sequence", sequence, false),
            Field::new("is_upsert", DataType::Boolean, false),
            Field::new("hash", DataType::UInt64, false),
            Field::new("source", DataType::UInt32, false),
            Field::new("row", DataType::UInt64, false),
            Field::new("old_key", DataType::Struct(old_key.clone()), true),
        ]);
        let mut payload = 0;
        for column in layout.payload_columns() {
            let value = Field::new(format!("value.{payload}"), column.data_type.clone(), true);
            let authored = Field::new(format!("authored.{payload}"), DataType::Boolean, false);
            fields.extend([value, authored]);
            payload += 1;
        }
        Self {
            schema: Arc::new(Schema::new(fields)),
            keys,
            payload,
            old_key,
        }
    }

    /// The events as a record batch.
    ///
    /// # Errors
    /// `INTERNAL` when they are of another layout.
    pub(crate) fn to_batch(&self, part: &EventPart) -> Result<RecordBatch> {
        let len = part.len();
        let upserts = part.kinds.iter().map(|kind| *kind == EventKind::Upsert);
        let upserts: BooleanBuffer = upserts.collect();
        let sources = match &part.places.sources {
            Sources::One(source) => UInt32Array::from_value(*source, len),
            Sources::Each(sources) => UInt32Array::from(sources.clone()),
        };
        let mut columns = part.keys.clone();
        columns.extend([
            Arc::clone(&part.sequence),
            Arc::new(BooleanArray::new(upserts, None)) as ArrayRef,
            Arc::new(UInt64Array::from_iter_values(
                part.hashes.iter().map(|hash| hash.0),
            )),
            Arc::new(sources),
            Arc::new(UInt64Array::from(part.places.rows.clone())),
            self.old_keys(part)?,
        ]);
        for (at, column) in part.payload.iter().enumerate() {
            let place = self.keys + FIXED + 2 * at;
            let expected = self.schema.fields().get(place).ok_or_else(other_layout)?;
            let (values, authored) = match &column.values {
                None => (
                    new_null_array(expected.data_type(), len),
                    BooleanBuffer::new_unset(len),
                ),
                Some(values) => {
                    let all = || BooleanBuffer::new_set(len);
                    let authored = column.authored.clone().unwrap_or_else(all);
                    (Arc::clone(values), authored)
                }
            };
            columns.push(values);
            columns.push(Arc::new(BooleanArray::new(authored, None)));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|e| other_layout().with_source(e))
    }

    fn old_keys(&self, part: &EventPart) -> Result<ArrayRef> {
        let Some(old) = &part.old_keys else {
            let data_type = DataType::Struct(self.old_key.clone());
            return Ok(new_null_array(&data_type, part.len()));
        };
        let fields = self.old_key.clone();
        let array = StructArray::try_new(fields, old.columns().to_vec(), old.nulls().cloned());
        array
            .map(|array| Arc::new(array) as ArrayRef)
            .map_err(|e| other_layout().with_source(e))
    }

    /// The events of a record batch; `carried` says which payload columns some source of the batch carries
    /// (R-N5).
    ///
    /// # Errors
    /// `CORRUPT` when the record batch has another schema.
    pub(crate) fn to_part(&self, batch: &RecordBatch, carried: &[bool]) -> Result<EventPart> {
        let wrong = || Error::corrupt("events have another schema than their table's layout");
        if batch.schema_ref().fields() != self.schema.fields() {
            return Err(wrong());
        }
        let at = |place: usize| batch.columns().get(place).ok_or_else(wrong);
        let fixed = |place: usize| at(self.keys + place);
        let upserts = fixed(1)?.as_boolean();
        let kind = |is_upsert: bool| match is_upsert {
            true => EventKind::Upsert,
            false => EventKind::Delete,
        };
        let old = fixed(5)?.as_struct();
        let payload = (0..self.payload).map(|column| {
            if !carried.get(column).copied().unwrap_or_default() {
                return Ok(PayloadColumn::default());
            }
            let place = FIXED + 2 * column;
            let authored = fixed(place + 1)?.as_boolean().values().clone();
            Ok(PayloadColumn {
                values: Some(Arc::clone(fixed(place)?)),
                authored: (authored.count_set_bits() < authored.len()).then_some(authored),
            })
        });
        Ok(EventPart {
            keys: batch.columns().iter().take(self.keys).cloned().collect(),
            sequence: Arc::clone(fixed(0)?),
            kinds: upserts.values().iter().map(kind).collect(),
            hashes: fixed(2)?
                .as_primitive::<UInt64Type>()
                .values()
                .iter()
                .map(|hash| KeyHash(*hash))
                .collect(),
            payload: payload.collect::<Result<_>>()?,
            old_keys: (old.null_count() < old.len()).then(|| old.clone()),
            places: Places {
                sources: Sources::Each(fixed(3)?.as_primitive::<UInt32Type>().values().to_vec()),
                rows: fixed(4)?.as_primitive::<UInt64Type>().values().to_vec(),
            },
        })
    }
}

fn other_layout() -> Error {
    Error::internal("events disagree with the table's layout")
}

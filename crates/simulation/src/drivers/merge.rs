//! Drives `tidegate_merge` alone: a table of one row a key in memory, whose stored rows and tombstones
//! are what earlier calls wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Int64Type, Schema, SchemaRef};
use tidegate_change::sequence::{SequenceBytes, SequenceEncoder, normalize_floats};
use tidegate_change::spec::layout::ResolvedColumn;
use tidegate_change::spec::{ColumnSpec, ResolvedSpec, TableLayout};
use tidegate_change::{Code, Error, KeyBucket, hidden};
use tidegate_merge::{
    CHANGE_TYPE, EventKind, Events, FileBounds, MergeContext, MergeRules, Merged, PayloadColumn,
    Stored, StoredRef, group, resolve, truncate,
};

use super::arrow_rows::{to_array, value_at};
use super::{Driver, Observed};
use crate::dice::Dice;
use crate::oracle::{Change, ChangeType, Decoded, Kind, Oracle, Row};
use crate::scenario::{Batch, Scenario};
use crate::value::Value;

#[derive(Clone, Debug)]
enum StoredKey {
    Row {
        row: RecordBatch,
        bounds: FileBounds,
    },
    Tombstone {
        row: RecordBatch,
        arrived_ms: i64,
        sequence: Value,
    },
}

/// A table in memory.
#[derive(Debug)]
pub struct MergeDriver {
    history: Scenario,
    /// Reads events; its rows are not looked at.
    reader: Oracle,
    resolved: ResolvedSpec,
    columns_known: usize,
    keys: BTreeMap<Row, StoredKey>,
    /// Append tables: what tells rows apart, which the merge knows as bytes.
    positions: BTreeMap<Row, u64>,
    truncates: Vec<SequenceBytes>,
    horizon: Option<Value>,
    watermark: Option<Value>,
    /// The latest time of a batch.
    now_ms: i64,
    dice: Dice,
}

fn sentence(error: &Error) -> String {
    format!("{}: {error}", error.code())
}

impl MergeDriver {
    /// An empty table.
    ///
    /// # Errors
    /// The refusal of the spec.
    pub fn new(history: &Scenario, seed: u64) -> Result<Self, String> {
        let spec = history.table_spec("t").map_err(|e| sentence(&e))?;
        Ok(Self {
            reader: Oracle::new(history).map_err(|code| code.to_string())?,
            resolved: ResolvedSpec::declared(spec),
            columns_known: history.spec.declared_count(),
            history: history.clone(),
            keys: BTreeMap::new(),
            positions: BTreeMap::new(),
            truncates: Vec::new(),
            horizon: None,
            watermark: None,
            now_ms: i64::MIN,
            dice: Dice::new(seed),
        })
    }

    /// Adds the columns that this batch is the first to carry (R-E1).
    fn evolve(&mut self, batch: &Batch) {
        for name in self
            .history
            .spec
            .source_columns
            .iter()
            .skip(self.columns_known)
        {
            if batch.events.iter().any(|event| event.contains_key(name)) {
                self.resolved.schema_number += 1;
                self.columns_known += 1;
                let type_name = self.history.spec.types[name].clone();
                let name = name.clone();
                let column = ColumnSpec {
                    name,
                    type_name,
                    default: None,
                    encoding: None,
                    scale: None,
                };
                let since = self.resolved.schema_number;
                self.resolved.columns.push(ResolvedColumn { column, since });
            }
        }
    }

    /// Gives the events of an append table the one key column that the merge sees.
    fn number_positions(&mut self, events: &mut [Decoded]) {
        if !self.history.spec.append {
            return;
        }
        for event in events {
            let next = self.positions.len() as u64;
            let number = *self.positions.entry(event.key.clone()).or_insert(next);
            event.key = vec![Value::Bytes(number.to_be_bytes().to_vec())];
        }
    }

    /// Forgets tombstones that are too old (R-G2).
    fn purge(&mut self, now_ms: i64) {
        let Some(retention_ms) = self.resolved.spec.tombstone_retention.ms() else {
            return;
        };
        let late_applies = self.history.spec.late_after_gc.as_deref() == Some("apply");
        let mut purged = Vec::new();
        self.keys.retain(|_, stored| match stored {
            StoredKey::Tombstone {
                arrived_ms,
                sequence,
                ..
            } if now_ms - *arrived_ms > retention_ms => {
                purged.push(sequence.clone());
                false
            }
            _ => true,
        });
        if !late_applies {
            self.horizon = self.horizon.take().into_iter().chain(purged).max();
        }
    }

    fn context(
        &self,
        encoder: &SequenceEncoder,
        new: &[SequenceBytes],
        now_ms: i64,
    ) -> Result<MergeContext, Error> {
        let horizon = match &self.horizon {
            Some(value) => Some(encode(encoder, value)?),
            None => None,
        };
        Ok(MergeContext {
            truncates: self.truncates.clone(),
            new_truncates: new.to_vec(),
            horizon,
            now_ms,
        })
    }

    fn apply_valid(&mut self, events: &[Decoded], now_ms: i64) -> Result<Observed, Error> {
        let layout = self.resolved.layout()?;
        let sequence_type = layout.sequence_type.clone().unwrap_or(DataType::Int64);
        let encoder = SequenceEncoder::new(&sequence_type)?;
        let (truncates, keyed): (Vec<_>, Vec<_>) = events
            .iter()
            .partition(|event| event.kind == Kind::Truncate);
        let new_truncates = truncates
            .iter()
            .map(|event| encode(&encoder, &event.sequence))
            .collect::<Result<Vec<_>, _>>()?;
        let context = self.context(&encoder, &new_truncates, now_ms)?;
        let rules = MergeRules::new(&layout, &self.resolved.spec, context)?;
        let grouped = group(&rules, self.columns(&layout, &keyed))?;
        self.raise_watermark(&encoder, &grouped.max_sequence(&rules)?, &new_truncates)?;
        let named: Vec<Row> = (0..grouped.len())
            .map(|g| {
                grouped
                    .key_columns()
                    .iter()
                    .map(|c| value_at(c.as_ref(), g))
                    .collect()
            })
            .collect();
        let stored = self.lookup(&layout, &named, |g, bounds| {
            grouped.needs_stored(&rules, g, bounds)
        });
        let (refs, rows, tombstones) = stored?;
        let merged = resolve(
            &rules,
            &grouped,
            &Stored {
                refs: &refs,
                rows: &rows,
                tombstones: &tombstones,
            },
        )?;
        let mut observed = Observed {
            feed: rules.feed().then(Vec::new),
            ..Observed::default()
        };
        self.take(&layout, &named, &merged, &mut observed)?;
        if !new_truncates.is_empty() && self.history.spec.scd == 1 {
            let others: Vec<Row> = self
                .live()
                .filter(|key| !named.contains(key))
                .cloned()
                .collect();
            let (_, rows, _) = self.lookup(&layout, &others, |_, _| true)?;
            let merged = truncate(&rules, &rows)?;
            self.take(&layout, &others, &merged, &mut observed)?;
            self.truncates.extend(new_truncates);
        }
        Ok(observed)
    }

    fn live(&self) -> impl Iterator<Item = &Row> {
        self.keys
            .iter()
            .filter(|(_, s)| matches!(s, StoredKey::Row { .. }))
            .map(|(key, _)| key)
    }

    /// The events as columns.
    fn columns(&self, layout: &TableLayout, events: &[&Decoded]) -> Events {
        let keys = layout.key_columns().enumerate().map(|(i, column)| {
            let values: Vec<Value> = events.iter().map(|event| event.key[i].clone()).collect();
            normalize_floats(&to_array(&column.data_type, &values))
        });
        let sequence_type = layout.sequence_type.clone().unwrap_or(DataType::Int64);
        let has_sequence = self.history.spec.sequence_by.is_some();
        let sequence: Vec<Value> = events
            .iter()
            .map(|event| {
                if has_sequence {
                    event.sequence.clone()
                } else {
                    Value::Integer(0)
                }
            })
            .collect();
        let payload = layout.payload_columns().map(|column| {
            let cells = || {
                events
                    .iter()
                    .map(|event| event.cells[column.source].as_ref())
            };
            let carried = cells().any(|cell| cell.is_some());
            let authored = BooleanBuffer::from_iter(cells().map(|cell| cell.is_some()));
            let values: Vec<Value> = cells()
                .map(|cell| cell.cloned().unwrap_or(Value::Null))
                .collect();
            let all = authored.count_set_bits() == events.len();
            PayloadColumn {
                values: (carried || self.dice.percent(50))
                    .then(|| to_array(&column.data_type, &values)),
                authored: (!all || self.dice.percent(30)).then_some(authored),
            }
        });
        let buckets = self.history.spec.buckets.unwrap_or(16);
        Events {
            keys: keys.collect(),
            sequence: to_array(&sequence_type, &sequence),
            kinds: events
                .iter()
                .map(|e| {
                    if e.kind == Kind::Delete {
                        EventKind::Delete
                    } else {
                        EventKind::Upsert
                    }
                })
                .collect(),
            payload: payload.collect(),
            buckets: events
                .iter()
                .map(|event| bucket(&event.key, buckets))
                .collect(),
        }
    }

    fn raise_watermark(
        &mut self,
        encoder: &SequenceEncoder,
        greatest: &Option<SequenceBytes>,
        truncates: &[SequenceBytes],
    ) -> Result<(), Error> {
        for bytes in greatest.iter().chain(truncates) {
            let value = value_at(encoder.decode_bytes([Some(bytes)])?.as_ref(), 0);
            self.watermark = self.watermark.take().max(Some(value));
        }
        Ok(())
    }

    /// The stored state of some keys.
    fn lookup(
        &self,
        layout: &TableLayout,
        keys: &[Row],
        needs: impl Fn(usize, &FileBounds) -> bool,
    ) -> Result<(Vec<StoredRef>, RecordBatch, RecordBatch), Error> {
        let file_schema = layout.file_schema();
        let mut rows = Vec::new();
        let mut tombstones: Vec<RecordBatch> = Vec::new();
        let position = |parts: &Vec<RecordBatch>| u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let mut refs = Vec::new();
        for (g, key) in keys.iter().enumerate() {
            refs.push(match self.keys.get(key) {
                None => StoredRef::Absent,
                Some(StoredKey::Tombstone { row, .. }) => {
                    tombstones.push(row.clone());
                    StoredRef::Tombstone(position(&tombstones) - 1)
                }
                Some(StoredKey::Row { bounds, .. })
                    if !needs(g, bounds) && self.dice.percent(80) =>
                {
                    StoredRef::Unread
                }
                Some(StoredKey::Row { row, .. }) => {
                    rows.push(widened(row, &file_schema)?);
                    StoredRef::Row(position(&rows) - 1)
                }
            });
        }
        let rows = concat(&file_schema, &rows)?;
        let none = Arc::new(Schema::empty());
        let schema = tombstones.first().map_or(none, |first| first.schema());
        let tombstones = concat(&schema, &tombstones)?;
        Ok((refs, rows, tombstones))
    }

    /// Makes what merge wrote the stored state, and checks that it agrees with what was stored.
    fn take(
        &mut self,
        layout: &TableLayout,
        keys: &[Row],
        merged: &Merged,
        observed: &mut Observed,
    ) -> Result<(), Error> {
        let key_of = |group: u32| &keys[group as usize];
        for group in &merged.replaced {
            match self.keys.remove(key_of(*group)) {
                Some(StoredKey::Row { .. }) => {}
                other => {
                    return Err(Error::internal(format!(
                        "replaced a row that was {other:?}"
                    )));
                }
            }
        }
        for group in &merged.superseded_tombstones {
            match self.keys.remove(key_of(*group)) {
                Some(StoredKey::Tombstone { .. }) => {}
                other => return Err(Error::internal(format!("superseded what was {other:?}"))),
            }
        }
        for (i, group) in merged.row_groups.iter().enumerate() {
            let row = merged.rows.slice(i, 1);
            let stored = StoredKey::Row {
                row,
                bounds: merged.bounds.clone(),
            };
            if let Some(old) = self.keys.insert(key_of(*group).clone(), stored) {
                return Err(Error::internal(format!("a second state beside {old:?}")));
            }
        }
        for (i, group) in merged.tombstone_groups.iter().enumerate() {
            let row = merged.tombstones.slice(i, 1);
            let column = |name: &str| {
                row.column_by_name(name)
                    .ok_or_else(|| Error::internal("tombstone lacks a column"))
            };
            let arrived_ms = column(hidden::ARRIVED)?
                .as_primitive::<Int64Type>()
                .value(0);
            let sequence = value_at(column(hidden::SEQUENCE)?.as_ref(), 0);
            let stored = StoredKey::Tombstone {
                row: row.clone(),
                arrived_ms,
                sequence,
            };
            if let Some(old) = self.keys.insert(key_of(*group).clone(), stored) {
                return Err(Error::internal(format!("a second state beside {old:?}")));
            }
        }
        let counters = &merged.counters;
        observed.inserted += counters.inserted;
        observed.updated += counters.updated;
        observed.deleted += counters.deleted;
        let reasons = merged.rejects.iter().map(|(_, code)| code.to_string());
        observed.rejects.get_or_insert_default().extend(reasons);
        observed.quarantined += counters.quarantined;
        if let (Some(feed), Some(rows)) = (&mut observed.feed, &merged.feed) {
            feed.extend(self.changes(layout, rows)?);
        }
        Ok(())
    }

    fn changes(&self, layout: &TableLayout, feed: &RecordBatch) -> Result<Vec<Change>, Error> {
        let kinds = feed
            .column_by_name(CHANGE_TYPE)
            .ok_or_else(|| Error::internal("no kinds"))?;
        let visible = layout.table_schema();
        (0..feed.num_rows())
            .map(|row| {
                Ok((
                    change_type(kinds, row)?,
                    self.visible_row(&visible, feed, row),
                ))
            })
            .collect()
    }

    /// A row in the model's columns; columns that are not known yet are NULL.
    fn visible_row(&self, known: &SchemaRef, rows: &RecordBatch, row: usize) -> Row {
        self.reader
            .visible_columns()
            .iter()
            .map(
                |(name, _)| match (known.column_with_name(name), rows.column_by_name(name)) {
                    (Some(_), Some(column)) => value_at(column.as_ref(), row),
                    _ => Value::Null,
                },
            )
            .collect()
    }
}

impl Driver for MergeDriver {
    fn apply(&mut self, index: usize, batch: &Batch) -> Result<Result<Observed, Code>, String> {
        let _ = index;
        let decoded = self.reader.decode(batch);
        let invalid: Vec<Code> = decoded
            .iter()
            .filter_map(|e| e.as_ref().err().copied())
            .collect();
        if let (Some(code), false) = (invalid.first(), self.history.spec.quarantines()) {
            return Ok(Err(*code));
        }
        let mut events: Vec<Decoded> = decoded.into_iter().flatten().collect();
        self.number_positions(&mut events);
        self.evolve(batch);
        // As the table's time, it never runs backwards.
        let now_ms = self.now_ms.max(batch.at.unwrap_or(0) * 1_000);
        self.now_ms = now_ms;
        self.purge(now_ms);
        let mut observed = self
            .apply_valid(&events, now_ms)
            .map_err(|e| sentence(&e))?;
        observed.quarantined += invalid.len() as u64;
        let reasons = invalid.iter().map(ToString::to_string);
        observed.rejects.get_or_insert_default().extend(reasons);
        Ok(Ok(observed))
    }

    fn rows(&mut self) -> Result<Vec<Row>, String> {
        let visible = self
            .resolved
            .layout()
            .map_err(|e| sentence(&e))?
            .table_schema();
        let rows = self.keys.values().filter_map(|stored| match stored {
            StoredKey::Row { row, .. } => Some(self.visible_row(&visible, row, 0)),
            StoredKey::Tombstone { .. } => None,
        });
        Ok(rows.collect())
    }

    fn watermark(&mut self) -> Result<Option<Value>, String> {
        Ok(self.watermark.clone())
    }
}

fn encode(encoder: &SequenceEncoder, value: &Value) -> Result<SequenceBytes, Error> {
    let rows = encoder.encode(&to_array(encoder.data_type(), std::slice::from_ref(value)))?;
    Ok(SequenceBytes::from_row(rows.row(0)))
}

/// Any function of the key will do; equal keys must meet.
fn bucket(key: &[Value], buckets: u32) -> KeyBucket {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let text = key.iter().map(|value| match value {
        Value::Float(f) if f.is_nan() => "NaN".to_owned(),
        Value::Float(f) => format!("{:?}", f + 0.0),
        other => format!("{other:?}"),
    });
    for byte in text.flat_map(String::into_bytes) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    KeyBucket(u32::try_from(hash % u64::from(buckets)).unwrap_or(0))
}

/// The row under a newer schema, as a reader of an older file gives it.
fn widened(row: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let columns: Vec<ArrayRef> = schema
        .fields()
        .iter()
        .map(|field| match row.column_by_name(field.name()) {
            Some(column) => Arc::clone(column),
            None => new_null_array(field.data_type(), row.num_rows()),
        })
        .collect();
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|e| Error::internal("a written row has another type").with_source(e))
}

fn concat(schema: &SchemaRef, parts: &[RecordBatch]) -> Result<RecordBatch, Error> {
    if schema.fields().is_empty() {
        let options = RecordBatchOptions::new().with_row_count(Some(parts.len()));
        return RecordBatch::try_new_with_options(Arc::clone(schema), Vec::new(), &options)
            .map_err(|e| Error::internal("empty batch").with_source(e));
    }
    concat_batches(schema, parts).map_err(|e| Error::internal("parts differ").with_source(e))
}

fn change_type(kinds: &ArrayRef, row: usize) -> Result<ChangeType, Error> {
    let name = kinds.as_string::<i32>().value(row);
    let all = [
        ChangeType::Insert,
        ChangeType::Preimage,
        ChangeType::Postimage,
        ChangeType::Delete,
    ];
    let found = all.into_iter().find(|kind| kind.as_str() == name);
    found.ok_or_else(|| Error::internal(format!("change type {name}")))
}

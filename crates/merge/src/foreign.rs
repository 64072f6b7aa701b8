//! Rows that another engine wrote or deleted, with the hidden state that it could not know (commit protocol,
//! "Foreign commits").
//!
//! A row that comes anew has the lowest sequence, which every event beats. One that takes the place of a
//! stored row keeps that row's hidden state; where values differ, they win a tie with their own sequence
//! and count as authored there. A row that goes leaves a tombstone at its own sequence, or nothing where no
//! event ever named its key.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, ListArray, MapArray,
    RecordBatch, StringArray, StructArray, UInt32Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow::compute::{concat, filter_record_batch, take};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use tidegate_change::sequence::{SequenceEncoder, lowest};
use tidegate_change::spec::TableLayout;
use tidegate_change::spec::layout::TableColumn;
use tidegate_change::{Code, hidden, types};

use crate::leaves::{Leaf, Leaves};
use crate::resolve::state::schema_number;
use crate::sequences::position;
use crate::values::equal;
use crate::{Error, Result};

/// Rows of another engine beside the stored rows that they took the place of.
#[derive(Clone, Copy, Debug)]
pub struct ForeignRows<'a> {
    /// The rows, in `TableLayout::table_schema()`.
    pub rows: &'a RecordBatch,
    /// Stored rows, in `TableLayout::file_schema()`.
    pub stored: &'a RecordBatch,
    /// By row: the stored row of its key, if it had one.
    pub predecessors: &'a [Option<u32>],
}

/// Rows with hidden state, and how many of them differ from what was stored.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// The rows, in `TableLayout::file_schema()`, with the values that the other engine gave them.
    pub rows: RecordBatch,
    /// Rows without predecessor.
    pub inserted: u64,
    /// Rows whose values differ from their predecessor's.
    pub updated: u64,
}

/// What stays of rows that another engine deleted.
#[derive(Clone, Debug)]
pub struct Buried {
    /// Tombstones: key columns, `SEQUENCE`, `DELETES` (soft delete only), `ARRIVED`.
    pub tombstones: RecordBatch,
    /// By row: whether it left a tombstone. One that no event ever named leaves nothing.
    pub is_remembered: BooleanArray,
}

fn failed(error: arrow::error::ArrowError) -> Error {
    Error::internal("foreign rows cannot be put together").with_source(error)
}

fn column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    let found = rows.column_by_name(name);
    found.ok_or_else(|| Error::internal(format!("rows lack column {name}")))
}

fn sequence_type(layout: &TableLayout) -> Result<&DataType> {
    let known = layout.sequence_type.as_ref();
    known.ok_or_else(|| Error::internal("the type of the sequence is not known"))
}

/// Gives foreign rows their hidden columns.
///
/// # Errors
/// `FOREIGN_REWRITE` for rows of a table with soft delete whose flags say what no event said; `INTERNAL` when
/// the parts do not fit.
pub fn adopt(layout: &TableLayout, foreign: ForeignRows<'_>) -> Result<Adopted> {
    if foreign.rows.num_rows() != foreign.predecessors.len() {
        return Err(Error::internal(
            "foreign rows and predecessors differ in number",
        ));
    }
    let places = UInt32Array::from(foreign.predecessors.to_vec());
    check_flags(layout, foreign, &places)?;
    let payload: Vec<TableColumn> = layout.payload_columns().cloned().collect();
    let leaves = Leaves::new(&payload);
    let changed = changed_leaves(&leaves, &payload, foreign, &places)?;
    let rows = foreign.rows.num_rows();
    let is_new = |row: usize| foreign.predecessors.get(row).is_none_or(Option::is_none);
    let differs: Vec<bool> = (0..rows)
        .map(|row| !is_new(row) && changed.iter().any(|own| own.value(row)))
        .collect();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for field in layout.table_schema().fields() {
        columns.push(Arc::clone(column(foreign.rows, field.name())?));
    }
    let own = |name: &str| take(column(foreign.stored, name)?, &places, None).map_err(failed);
    columns.push(sequences(layout, foreign)?);
    columns.push(own(hidden::FLOOR)?);
    columns.push(leaf_sequences(
        layout, &leaves, foreign, &changed, &differs,
    )?);
    columns.push(schemas(layout, foreign, &differs)?);
    if layout.soft_delete {
        columns.push(own(hidden::DELETES)?);
    }
    let count = |picked: usize| u64::try_from(picked).unwrap_or(u64::MAX);
    Ok(Adopted {
        rows: RecordBatch::try_new(layout.file_schema(), columns).map_err(failed)?,
        inserted: count((0..rows).filter(|row| is_new(*row)).count()),
        updated: count(differs.iter().filter(|own| **own).count()),
    })
}

/// Flags of soft delete follow from deletes: another engine may repeat them, not make them up.
fn check_flags(layout: &TableLayout, foreign: ForeignRows<'_>, places: &UInt32Array) -> Result<()> {
    if !layout.soft_delete {
        return Ok(());
    }
    let refused = |what: &str| Err(Error::new(Code::ForeignRewrite, what));
    for name in ["is_deleted", "deleted_at"] {
        let new = column(foreign.rows, name)?;
        let old = take(column(foreign.stored, name)?, places, None).map_err(failed)?;
        let same = equal(new, &old)?;
        for (row, own) in foreign.predecessors.iter().enumerate() {
            let is_flagged = match new.as_boolean_opt() {
                Some(flags) => new.is_valid(row) && flags.value(row),
                None => new.is_valid(row),
            };
            match own {
                Some(_) if !same.value(row) => {
                    return refused("a row is flagged otherwise than its deletes say");
                }
                None if is_flagged => return refused("a row comes anew and is flagged as deleted"),
                Some(_) | None => {}
            }
        }
    }
    Ok(())
}

/// By leaf: the rows whose values differ from their predecessors'.
fn changed_leaves(
    leaves: &Leaves,
    payload: &[TableColumn],
    foreign: ForeignRows<'_>,
    places: &UInt32Array,
) -> Result<Vec<BooleanBuffer>> {
    let changed = |leaf: &Leaf| {
        let name = payload.get(leaf.column).map_or("", |column| &column.name);
        let new = leaf.values(column(foreign.rows, name)?)?;
        let old = leaf.values(column(foreign.stored, name)?)?;
        let old = take(&old, places, None).map_err(failed)?;
        Ok(!&equal(&new, &old)?)
    };
    leaves.iter().map(changed).collect()
}

/// The predecessors' sequences, the lowest where there is none.
fn sequences(layout: &TableLayout, foreign: ForeignRows<'_>) -> Result<ArrayRef> {
    let stored = column(foreign.stored, hidden::SEQUENCE)?;
    let lowest = lowest(sequence_type(layout)?)?;
    let all = concat(&[stored.as_ref(), lowest.as_ref()]).map_err(failed)?;
    let last = crate::sequences::handle(stored.len());
    let own = foreign.predecessors.iter().map(|own| own.unwrap_or(last));
    take(&all, &UInt32Array::from_iter_values(own), None).map_err(failed)
}

fn schemas(layout: &TableLayout, foreign: ForeignRows<'_>, differs: &[bool]) -> Result<ArrayRef> {
    let stored = column(foreign.stored, hidden::SCHEMA)?.as_primitive::<Int32Type>();
    let current = i32::try_from(layout.schema_number)
        .map_err(|e| Error::internal("too many schema changes").with_source(e))?;
    let own = foreign.predecessors.iter().zip(differs);
    let number = |(own, differs): (&Option<u32>, &bool)| match own.map(position) {
        None => Some(current),
        Some(_) if *differs => Some(!current),
        Some(row) => stored.is_valid(row).then(|| stored.value(row)),
    };
    Ok(Arc::new(own.map(number).collect::<Int32Array>()))
}

/// Leaf paths with positions among the values of the stored maps; None for a leaf that nobody authored.
#[derive(Default)]
struct Entries<'a> {
    paths: Vec<&'a str>,
    values: Vec<Option<u32>>,
    lengths: Vec<usize>,
}

/// Leaves that another engine changed have the row's own sequence, the others keep theirs.
fn leaf_sequences(
    layout: &TableLayout,
    leaves: &Leaves,
    foreign: ForeignRows<'_>,
    changed: &[BooleanBuffer],
    differs: &[bool],
) -> Result<ArrayRef> {
    let maps = column(foreign.stored, hidden::LEAVES)?.as_map();
    let schemas = column(foreign.stored, hidden::SCHEMA)?.as_primitive::<Int32Type>();
    let paths = maps.keys().as_string::<i32>();
    let mut entries = Entries::default();
    for (row, (own, differs)) in foreign.predecessors.iter().zip(differs).enumerate() {
        let before = entries.paths.len();
        if let Some(own) = own.map(position) {
            let is_changed = |leaf: usize| {
                *differs && changed.get(leaf).is_some_and(|changed| changed.value(row))
            };
            for at in bounds(maps, own) {
                let path = paths.value(at);
                if !leaves.position(path).is_some_and(is_changed) {
                    entries.paths.push(path);
                    let valid = maps.values().is_valid(at);
                    entries
                        .values
                        .push(valid.then(|| crate::sequences::handle(at)));
                }
            }
            if *differs && schemas.is_valid(own) {
                // The row's number becomes the current one: what came since, and nobody authored, says so now.
                let number = schema_number(schemas.value(own));
                for (leaf, own) in leaves.iter().enumerate() {
                    let known = entries.paths.get(before..).unwrap_or_default();
                    let is_named = known.contains(&own.path.as_str());
                    if own.since > number && !is_named && !is_changed(leaf) {
                        entries.paths.push(&own.path);
                        entries.values.push(None);
                    }
                }
            }
        }
        entries.lengths.push(entries.paths.len() - before);
    }
    entries.build(sequence_type(layout)?, maps.values())
}

fn bounds(maps: &MapArray, row: usize) -> std::ops::Range<usize> {
    if maps.is_null(row) {
        return 0..0;
    }
    let at = |row: usize| {
        let bound = maps.value_offsets().get(row);
        bound
            .and_then(|b| usize::try_from(*b).ok())
            .unwrap_or_default()
    };
    at(row)..at(row + 1)
}

impl Entries<'_> {
    fn build(self, sequence: &DataType, stored: &ArrayRef) -> Result<ArrayRef> {
        let data_type = hidden::leaves_type(sequence);
        if self.paths.is_empty() {
            return Ok(new_null_array(&data_type, self.lengths.len()));
        }
        let (DataType::Map(field, _), values) = (
            &data_type,
            take(stored, &UInt32Array::from(self.values), None),
        ) else {
            return Err(Error::internal("leaf sequences are no map"));
        };
        let DataType::Struct(pair) = field.data_type() else {
            return Err(Error::internal("leaf sequences are no map"));
        };
        let parts: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(self.paths)),
            values.map_err(failed)?,
        ];
        let entries = StructArray::try_new(pair.clone(), parts, None).map_err(failed)?;
        let valid = NullBuffer::from_iter(self.lengths.iter().map(|len| *len > 0));
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        let map = MapArray::try_new(Arc::clone(field), offsets, entries, Some(valid), false);
        Ok(Arc::new(map.map_err(failed)?))
    }
}

/// What stays of stored rows that another engine deleted: tombstones at their sequences, in the order of the
/// rows.
///
/// `rows` hold the key columns and the hidden ones, found by name; `now_ms` is when the deletes arrived.
///
/// # Errors
/// `INTERNAL` when the rows do not fit the layout.
pub fn bury(layout: &TableLayout, rows: &RecordBatch, now_ms: i64) -> Result<Buried> {
    let sequence = sequence_type(layout)?;
    let encoder = SequenceEncoder::new(sequence)?;
    let own = column(rows, hidden::SEQUENCE)?;
    let (encoded, least) = (encoder.encode(own)?, encoder.encode(&lowest(sequence)?)?);
    let floors = column(rows, hidden::FLOOR)?;
    let deletes = rows.column_by_name(hidden::DELETES);
    let has_deletes = |row: usize| deletes.is_some_and(|own| own.is_valid(row));
    let is_remembered: BooleanArray = (0..rows.num_rows())
        .map(|row| {
            let named = encoded.row(row).data() > least.row(0).data();
            Some(named || floors.is_valid(row) || has_deletes(row))
        })
        .collect();
    let rows = filter_record_batch(rows, &is_remembered).map_err(failed)?;
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for key in layout.key_columns() {
        fields.push(Field::new(&key.name, key.data_type.clone(), true));
        columns.push(Arc::clone(column(&rows, &key.name)?));
    }
    let all = Deletes::of(layout, &rows)?;
    fields.push(Field::new(hidden::SEQUENCE, sequence.clone(), true));
    columns.push(all.greatest()?);
    if layout.soft_delete {
        let list = types::list_of(sequence.clone());
        columns.push(all.lists(&list)?);
        fields.push(Field::new(hidden::DELETES, list, true));
    }
    fields.push(Field::new(hidden::ARRIVED, DataType::Int64, true));
    columns.push(Arc::new(Int64Array::from(vec![now_ms; rows.num_rows()])));
    let schema = Arc::new(Schema::new(fields));
    Ok(Buried {
        tombstones: RecordBatch::try_new(schema, columns).map_err(failed)?,
        is_remembered,
    })
}

/// By row, ascending: its floor, the delete of the row itself, and its deletes above.
struct Deletes {
    values: ArrayRef,
    by_row: Vec<Vec<u32>>,
}

impl Deletes {
    fn of(layout: &TableLayout, rows: &RecordBatch) -> Result<Self> {
        let own = column(rows, hidden::SEQUENCE)?;
        let floors = column(rows, hidden::FLOOR)?;
        let count = rows.num_rows();
        let mut parts: Vec<&dyn Array> = vec![own.as_ref(), floors.as_ref()];
        let lists = match layout.soft_delete {
            true => Some(column(rows, hidden::DELETES)?.as_list::<i32>()),
            false => None,
        };
        if let Some(lists) = lists {
            parts.push(lists.values().as_ref());
        }
        let values = concat(&parts).map_err(failed)?;
        let handle = crate::sequences::handle;
        let mut by_row = Vec::with_capacity(count);
        for row in 0..count {
            let mut own = Vec::new();
            if floors.is_valid(row) {
                own.push(handle(count + row));
            }
            own.push(handle(row));
            if let Some(lists) = lists.filter(|lists| lists.is_valid(row)) {
                own.extend(list_bounds(lists, row).map(|at| handle(2 * count + at)));
            }
            by_row.push(own);
        }
        Ok(Self { values, by_row })
    }

    fn greatest(&self) -> Result<ArrayRef> {
        let last = self.by_row.iter().map(|own| own.last().copied());
        take(&self.values, &last.collect::<UInt32Array>(), None).map_err(failed)
    }

    fn lists(&self, data_type: &DataType) -> Result<ArrayRef> {
        let DataType::List(field) = data_type else {
            return Err(Error::internal("deletes are no list"));
        };
        let all = self.by_row.iter().flatten().copied();
        let values = take(&self.values, &UInt32Array::from_iter_values(all), None);
        let offsets = OffsetBuffer::from_lengths(self.by_row.iter().map(Vec::len));
        let list = ListArray::try_new(Arc::clone(field), offsets, values.map_err(failed)?, None);
        Ok(Arc::new(list.map_err(failed)?))
    }
}

fn list_bounds(lists: &ListArray, row: usize) -> std::ops::Range<usize> {
    let at = |row: usize| {
        let bound = lists.value_offsets().get(row);
        bound
            .and_then(|b| usize::try_from(*b).ok())
            .unwrap_or_default()
    };
    at(row)..at(row + 1)
}

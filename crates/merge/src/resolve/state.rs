//! The stored side of the join: hidden columns of rows and tombstones as positions in one pool.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, MapArray, RecordBatch, new_null_array,
};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use tidegate_change::{hidden, types};

use crate::sequences::{NONE, Pool, handle, position};
use crate::{Error, Events, MergeMode, MergeRules, Result, Stored};

/// Everything that is compared by sequence: events, stored rows, tombstones and truncates.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pool: Pool,
    pub(crate) rows: Rows,
    pub(crate) tombstones: Tombstones,
    /// Truncates ascending, remembered and new ones.
    pub(crate) truncates: Vec<u32>,
    /// The greatest truncate of earlier batches.
    pub(crate) truncated_before: u32,
}

/// Stored rows.
#[derive(Debug)]
pub(crate) struct Rows {
    sequence: u32,
    floors: Vec<u32>,
    /// Per row the place of its leaf sequences, [`NONE`] where all are the row's.
    slots: Vec<u32>,
    leaf_sequences: Vec<u32>,
    leaves: usize,
    deletes: Lists,
    /// The visible `deleted_at` (R-L1).
    deleted_at: Vec<u32>,
    /// Rows with values that another engine wrote.
    foreign: Vec<bool>,
    /// Leaf values by leaf.
    pub(crate) values: Vec<ArrayRef>,
}

/// Stored tombstones.
#[derive(Debug)]
pub(crate) struct Tombstones {
    sequence: u32,
    deletes: Lists,
    arrived: Option<Int64Array>,
}

/// A column of lists of sequences, as ranges of the pool.
#[derive(Debug, Default)]
struct Lists(Option<(u32, ListArray)>);

impl State {
    /// Reads the stored state of `keys` keys; events keep their positions, so that an event's row names its
    /// sequence.
    pub(crate) fn new(
        rules: &MergeRules,
        events: &Events,
        keys: usize,
        stored: &Stored<'_>,
    ) -> Result<Self> {
        check(rules, keys, stored)?;
        let mut parts = Parts {
            rules,
            columns: Vec::new(),
            next: 0,
        };
        parts.push(&events.sequence)?;
        let rows = Rows::new(rules, stored.rows, &mut parts)?;
        let tombstones = Tombstones::new(stored.tombstones, &mut parts)?;
        let mut bytes: Vec<_> = rules.truncates().collect();
        bytes.sort();
        bytes.dedup();
        let first = parts.push(&rules.encoder.decode_bytes(bytes.iter().map(|b| Some(*b)))?)?;
        let truncates: Vec<u32> = (first..first + handle(bytes.len())).collect();
        let greatest_before = rules.context.truncates.iter().max();
        let before = bytes
            .iter()
            .position(|bytes| Some(*bytes) == greatest_before);
        let truncated_before = before
            .and_then(|at| truncates.get(at).copied())
            .unwrap_or(NONE);
        let pool = Pool::new(&rules.encoder, &parts.columns)?;
        Ok(Self {
            pool,
            rows,
            tombstones,
            truncates,
            truncated_before,
        })
    }

    /// The greatest truncate of all.
    pub(crate) fn truncated(&self) -> u32 {
        self.truncates.last().copied().unwrap_or(NONE)
    }
}

fn check(rules: &MergeRules, keys: usize, stored: &Stored<'_>) -> Result<()> {
    use crate::StoredRef::{Absent, Row, Tombstone, Unread};
    let expected = rules.layout.file_schema();
    let same = stored.rows.num_columns() == expected.fields().len()
        && stored
            .rows
            .columns()
            .iter()
            .zip(expected.fields())
            .all(|(column, field)| column.data_type() == field.data_type());
    if !same {
        return Err(Error::internal("stored rows do not have the file schema"));
    }
    if stored.refs.len() != keys {
        return Err(Error::internal("stored state is not aligned with the keys"));
    }
    let inside = stored.refs.iter().all(|own| match own {
        Absent => true,
        // A flagged row keeps values of its own whatever comes.
        Unread => rules.mode != MergeMode::Flagged,
        Row(row) => position(*row) < stored.rows.num_rows(),
        Tombstone(row) => position(*row) < stored.tombstones.num_rows(),
    });
    if inside {
        Ok(())
    } else {
        Err(Error::internal(
            "stored state names a row that was not read",
        ))
    }
}

/// Columns that become one pool.
struct Parts<'a> {
    rules: &'a MergeRules,
    columns: Vec<ArrayRef>,
    next: u32,
}

impl Parts<'_> {
    /// Adds a column; the position of its first sequence.
    fn push(&mut self, column: &ArrayRef) -> Result<u32> {
        if column.data_type() != &self.rules.sequence_type {
            return Err(Error::internal("a stored sequence has another type"));
        }
        let first = self.next;
        self.next = self
            .next
            .checked_add(handle(column.len()))
            .ok_or_else(|| Error::internal("too many sequences in one batch"))?;
        self.columns.push(Arc::clone(column));
        Ok(first)
    }

    /// Adds a column whose NULLs stand for no sequence.
    fn push_nullable(&mut self, column: &ArrayRef) -> Result<Vec<u32>> {
        if column.null_count() == column.len() {
            return Ok(vec![NONE; column.len()]);
        }
        let first = self.push(column)?;
        let own = (first..).take(column.len()).enumerate();
        Ok(own
            .map(|(row, at)| if column.is_null(row) { NONE } else { at })
            .collect())
    }

    fn push_lists(&mut self, column: Option<&ArrayRef>) -> Result<Lists> {
        let Some(column) = column.filter(|column| column.null_count() < column.len()) else {
            return Ok(Lists::default());
        };
        let expected = types::list_of(self.rules.sequence_type.clone());
        if column.data_type() != &expected {
            return Err(Error::internal("stored deletes have another type"));
        }
        let lists = column.as_list::<i32>().clone();
        let first = self.push(lists.values())?;
        Ok(Lists(Some((first, lists))))
    }
}

impl Lists {
    fn row(&self, row: u32) -> Range<u32> {
        let Some((first, lists)) = &self.0 else {
            return 0..0;
        };
        let row = position(row);
        if lists.is_null(row) {
            return 0..0;
        }
        let bound = |at: usize| {
            let bound = lists
                .value_offsets()
                .get(at)
                .and_then(|b| u32::try_from(*b).ok());
            first.saturating_add(bound.unwrap_or_default())
        };
        bound(row)..bound(row + 1)
    }
}

impl Rows {
    fn new(rules: &MergeRules, rows: &RecordBatch, parts: &mut Parts<'_>) -> Result<Self> {
        let column = |name: &str| {
            rows.column_by_name(name)
                .ok_or_else(|| Error::internal(format!("stored rows lack {name}")))
        };
        let sequence = parts.push(column(hidden::SEQUENCE)?)?;
        let floors = parts.push_nullable(column(hidden::FLOOR)?)?;
        let deletes = parts.push_lists(rows.column_by_name(hidden::DELETES))?;
        let deleted_at = match rules.layout.soft_delete {
            true => parts.push_nullable(column("deleted_at")?)?,
            false => Vec::new(),
        };
        let mut values = Vec::with_capacity(rules.leaves.len());
        for leaf in rules.leaves.iter() {
            let name = rules
                .payload
                .get(leaf.column)
                .map_or("", |column| &column.name);
            values.push(leaf.values(column(name)?)?);
        }
        let leaves = rules.leaves.len();
        let slots = vec![NONE; rows.num_rows()];
        let mut state = Self {
            sequence,
            floors,
            slots,
            leaf_sequences: Vec::new(),
            leaves,
            deletes,
            deleted_at,
            foreign: foreign_rows(column(hidden::SCHEMA)?),
            values,
        };
        state.read_leaf_sequences(rules, rows, parts)?;
        Ok(state)
    }

    fn read_leaf_sequences(
        &mut self,
        rules: &MergeRules,
        rows: &RecordBatch,
        parts: &mut Parts<'_>,
    ) -> Result<()> {
        let column = |name: &str| {
            rows.column_by_name(name)
                .ok_or_else(|| Error::internal(format!("stored rows lack {name}")))
        };
        let schemas = column(hidden::SCHEMA)?.as_primitive::<Int32Type>();
        let maps = column(hidden::LEAVES)?.as_map();
        let newest = rules
            .leaves
            .iter()
            .map(|leaf| leaf.since)
            .max()
            .unwrap_or_default();
        let schema = |row: usize| match schemas.is_null(row) {
            true => u32::MAX,
            false => schema_number(schemas.value(row)),
        };
        let values = match maps.null_count() == maps.len() {
            true => Vec::new(),
            false => parts.push_nullable(maps.values())?,
        };
        for row in 0..rows.num_rows() {
            let has_leaves = !maps.is_null(row) && maps.value_length(row) > 0;
            if !has_leaves && schema(row) >= newest {
                continue;
            }
            let slot = self.leaf_sequences.len();
            let own = self.sequence + handle(row);
            let known = |since: u32| if since > schema(row) { NONE } else { own };
            self.leaf_sequences
                .extend(rules.leaves.iter().map(|leaf| known(leaf.since)));
            if has_leaves {
                self.read_map(rules, maps, row, &values, slot)?;
            }
            if let Some(place) = self.slots.get_mut(row) {
                *place = handle(slot);
            }
        }
        Ok(())
    }

    fn read_map(
        &mut self,
        rules: &MergeRules,
        maps: &MapArray,
        row: usize,
        values: &[u32],
        slot: usize,
    ) -> Result<()> {
        let paths = maps
            .keys()
            .as_string_opt::<i32>()
            .ok_or_else(|| Error::corrupt("leaf paths of a stored row are no text"))?;
        let bound = |at: usize| {
            maps.value_offsets()
                .get(at)
                .and_then(|b| usize::try_from(*b).ok())
                .unwrap_or_default()
        };
        for entry in bound(row)..bound(row + 1) {
            let Some(leaf) = rules.leaves.position(paths.value(entry)) else {
                continue;
            };
            if let Some(place) = self.leaf_sequences.get_mut(slot + leaf) {
                *place = values.get(entry).copied().unwrap_or(NONE);
            }
        }
        Ok(())
    }

    pub(crate) fn sequence(&self, row: u32) -> u32 {
        self.sequence + row
    }

    /// Whether another engine wrote values of the row, which win a tie with their own sequence.
    pub(crate) fn is_foreign(&self, row: u32) -> bool {
        self.foreign.get(position(row)).copied().unwrap_or(false)
    }

    pub(crate) fn floor(&self, row: u32) -> u32 {
        self.floors.get(position(row)).copied().unwrap_or(NONE)
    }

    /// Whether every leaf has the row's sequence.
    pub(crate) fn is_full(&self, row: u32) -> bool {
        self.slots
            .get(position(row))
            .is_some_and(|slot| *slot == NONE)
    }

    /// The sequence of a leaf's author, [`NONE`] where nobody authored it.
    pub(crate) fn leaf_sequence(&self, row: u32, leaf: usize) -> u32 {
        match self.slots.get(position(row)) {
            Some(slot) if *slot != NONE && leaf < self.leaves => self
                .leaf_sequences
                .get(position(*slot) + leaf)
                .copied()
                .unwrap_or(NONE),
            Some(_) | None => self.sequence(row),
        }
    }

    /// Deletes above the row's sequence, ascending.
    pub(crate) fn deletes(&self, row: u32) -> Range<u32> {
        self.deletes.row(row)
    }

    pub(crate) fn deleted_at(&self, row: u32) -> u32 {
        self.deleted_at.get(position(row)).copied().unwrap_or(NONE)
    }
}

/// The number behind what [`hidden::SCHEMA`] holds.
pub(crate) fn schema_number(stored: i32) -> u32 {
    let number = if stored < 0 { !stored } else { stored };
    u32::try_from(number).unwrap_or_default()
}

fn foreign_rows(schemas: &ArrayRef) -> Vec<bool> {
    let schemas = schemas.as_primitive::<Int32Type>();
    let is_foreign = |number: Option<i32>| number.is_some_and(|number| number < 0);
    schemas.iter().map(is_foreign).collect()
}

impl Tombstones {
    fn new(rows: &RecordBatch, parts: &mut Parts<'_>) -> Result<Self> {
        if rows.num_rows() == 0 {
            return Ok(Self {
                sequence: 0,
                deletes: Lists::default(),
                arrived: None,
            });
        }
        let sequence = rows
            .column_by_name(hidden::SEQUENCE)
            .ok_or_else(|| Error::internal("tombstones lack their sequence"))?;
        let sequence = parts.push(sequence)?;
        let deletes = parts.push_lists(rows.column_by_name(hidden::DELETES))?;
        let arrived = rows
            .column_by_name(hidden::ARRIVED)
            .filter(|column| column.data_type() == &DataType::Int64);
        let arrived = arrived.map(|column| column.as_primitive::<Int64Type>().clone());
        Ok(Self {
            sequence,
            deletes,
            arrived,
        })
    }

    /// The deciding delete.
    pub(crate) fn sequence(&self, row: u32) -> u32 {
        self.sequence + row
    }

    /// All deletes of a key of a soft-delete table.
    pub(crate) fn deletes(&self, row: u32) -> Range<u32> {
        self.deletes.row(row)
    }

    /// When the deciding delete arrived.
    pub(crate) fn arrived(&self, row: u32) -> Option<i64> {
        let row = position(row);
        let arrived = self.arrived.as_ref()?;
        (!arrived.is_null(row)).then(|| arrived.value(row))
    }
}

/// The batch of no tombstones.
pub(crate) fn no_tombstones() -> RecordBatch {
    RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty()))
}

/// NULLs of the sequence's type.
pub(crate) fn null_sequences(rules: &MergeRules, len: usize) -> ArrayRef {
    new_null_array(&rules.sequence_type, len)
}

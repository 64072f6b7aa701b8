//! Gathers the rows and tombstones to write, with canonical sparse hidden columns.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray,
    StructArray, UInt32Array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Field, Schema};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tidegate_change::spec::layout::ColumnRole;
use tidegate_change::{hidden, types};

use crate::resolve::decide::{Outcome, Plan};
use crate::resolve::state::{State, null_sequences};
use crate::sequences::{NONE, position};
use crate::{Error, Grouped, MergeRules, Result, Stored, StoredRef};

/// Where the rows of an output come from, for one leaf or all of them.
enum Sources {
    Events(UInt32Array),
    /// (0 event, 1 stored row, 2 NULL; place)
    Mixed(Vec<(usize, usize)>),
}

/// Gathers for some groups.
pub(super) struct Gatherer<'a> {
    pub(super) rules: &'a MergeRules,
    pub(super) grouped: &'a Grouped,
    pub(super) stored: &'a Stored<'a>,
    pub(super) state: &'a State,
    pub(super) plan: &'a Plan,
}

fn failed(error: arrow::error::ArrowError) -> Error {
    Error::internal("an output cannot be gathered").with_source(error)
}

impl Gatherer<'_> {
    /// The rows of these groups in the file schema.
    pub(super) fn rows(&self, groups: &[u32]) -> Result<RecordBatch> {
        let outcomes: Vec<&Outcome> = groups
            .iter()
            .filter_map(|group| self.plan.outcomes.get(position(*group)))
            .collect();
        let mut columns = self.visible(groups, &outcomes)?;
        columns.extend(self.hidden(&outcomes)?);
        if self.rules.layout.position.is_some() {
            columns.push(self.key(0, &UInt32Array::from(groups.to_vec()))?);
        }
        let schema = self.rules.layout.file_schema();
        RecordBatch::try_new(schema, columns).map_err(failed)
    }

    fn visible(&self, groups: &[u32], outcomes: &[&Outcome]) -> Result<Vec<ArrayRef>> {
        let leaves = self.gather_leaves(outcomes)?;
        let places = UInt32Array::from(groups.to_vec());
        let mut payload = 0;
        let mut columns = Vec::new();
        for column in &self.rules.layout.columns {
            match column.role {
                ColumnRole::Key(at) => columns.push(self.key(at, &places)?),
                ColumnRole::Payload { .. } => {
                    let own = self
                        .rules
                        .leaves
                        .assemble(payload, &column.data_type, &leaves)?;
                    columns.push(own);
                    payload += 1;
                }
            }
        }
        if self.rules.layout.soft_delete {
            let deleted_at: Vec<u32> = outcomes.iter().map(|own| own.deleted_at).collect();
            let flags = BooleanArray::from_iter(deleted_at.iter().map(|own| Some(*own != NONE)));
            columns.push(Arc::new(flags));
            columns.push(self.state.pool.gather(&deleted_at)?);
        }
        Ok(columns)
    }

    fn key(&self, at: usize, groups: &UInt32Array) -> Result<ArrayRef> {
        let column = self.grouped.keys.get(at);
        let column = column.ok_or_else(|| Error::internal("a key column is missing"))?;
        take(column, groups, None).map_err(failed)
    }

    fn gather_leaves(&self, outcomes: &[&Outcome]) -> Result<Vec<ArrayRef>> {
        let one = match outcomes.iter().all(|own| own.slot == NONE) {
            true => Some(self.sources(outcomes, 0)),
            false => None,
        };
        let leaves: Vec<usize> = (0..self.rules.leaves.len()).collect();
        let gather = |leaf| match &one {
            Some(sources) => self.gather_leaf(leaf, sources),
            None => self.gather_leaf(leaf, &self.sources(outcomes, leaf)),
        };
        // Small batches are not worth waking other threads for.
        if outcomes.len() < 1 << 13 {
            leaves.into_iter().map(gather).collect()
        } else {
            leaves.into_par_iter().map(gather).collect()
        }
    }

    fn sources(&self, outcomes: &[&Outcome], leaf: usize) -> Sources {
        let events = self.grouped.events.len();
        let own: Vec<u32> = outcomes
            .iter()
            .map(|own| self.plan.leaf_source(own, leaf))
            .collect();
        if own.iter().all(|source| position(*source) < events) {
            return Sources::Events(UInt32Array::from(own));
        }
        let place = |source: u32| match position(source) {
            _ if source == NONE => (2, 0),
            at if at < events => (0, at),
            at => (1, at - events),
        };
        Sources::Mixed(own.into_iter().map(place).collect())
    }

    fn gather_leaf(&self, leaf: usize, sources: &Sources) -> Result<ArrayRef> {
        let missing = || Error::internal("a leaf is missing");
        let own = self.rules.leaves.iter().nth(leaf).ok_or_else(missing)?;
        let events = match self.grouped.leaves.values.get(leaf) {
            Some(Some(values)) => Arc::clone(values),
            Some(None) | None => own.nulls(0),
        };
        match sources {
            Sources::Events(places) => take(&events, places, None).map_err(failed),
            Sources::Mixed(places) => {
                let stored = self.state.rows.values.get(leaf).ok_or_else(missing)?;
                let null = own.nulls(1);
                interleave(&[events.as_ref(), stored.as_ref(), null.as_ref()], places)
                    .map_err(failed)
            }
        }
    }

    fn hidden(&self, outcomes: &[&Outcome]) -> Result<Vec<ArrayRef>> {
        let pool = &self.state.pool;
        let sequences: Vec<u32> = outcomes.iter().map(|own| own.sequence).collect();
        let floors: Vec<u32> = outcomes.iter().map(|own| own.delete).collect();
        let schema = i32::try_from(self.rules.layout.schema_number)
            .map_err(|e| Error::internal("too many schema changes").with_source(e))?;
        let mut columns = vec![
            pool.gather(&sequences)?,
            pool.gather(&floors)?,
            self.leaf_sequences(outcomes)?,
            Arc::new(Int32Array::from_iter_values(outcomes.iter().map(|own| {
                // Foreign values go on to win their ties.
                if own.is_foreign { !schema } else { schema }
            }))),
        ];
        if self.rules.layout.soft_delete {
            columns.push(self.deletes(outcomes)?);
        }
        Ok(columns)
    }

    /// Leaf paths to the sequences that differ from the row's; NULL where none does.
    fn leaf_sequences(&self, outcomes: &[&Outcome]) -> Result<ArrayRef> {
        let data_type = hidden::leaves_type(&self.rules.sequence_type);
        if outcomes.iter().all(|own| own.slot == NONE) {
            return Ok(new_null_array(&data_type, outcomes.len()));
        }
        let (mut paths, mut handles, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for outcome in outcomes {
            let before = paths.len();
            if outcome.slot != NONE {
                for (leaf, own) in self.rules.leaves.iter().enumerate() {
                    let sequence = self.plan.leaf_sequence(outcome, leaf);
                    if !self.state.pool.is_equal(sequence, outcome.sequence) {
                        paths.push(own.path.as_str());
                        handles.push(sequence);
                    }
                }
            }
            lengths.push(paths.len() - before);
        }
        let DataType::Map(field, _) = &data_type else {
            return Err(Error::internal("leaf sequences are no map"));
        };
        let DataType::Struct(pair) = field.data_type() else {
            return Err(Error::internal("leaf sequences are no map"));
        };
        let values = match handles.is_empty() {
            true => null_sequences(self.rules, 0),
            false => self.state.pool.gather(&handles)?,
        };
        let parts: Vec<ArrayRef> = vec![Arc::new(StringArray::from(paths)), values];
        let entries = StructArray::try_new(pair.clone(), parts, None).map_err(failed)?;
        let valid = NullBuffer::from_iter(lengths.iter().map(|len| *len > 0));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let map = MapArray::try_new(Arc::clone(field), offsets, entries, Some(valid), false);
        Ok(Arc::new(map.map_err(failed)?))
    }

    fn deletes(&self, outcomes: &[&Outcome]) -> Result<ArrayRef> {
        let data_type = types::list_of(self.rules.sequence_type.clone());
        let DataType::List(field) = &data_type else {
            return Err(Error::internal("deletes are no list"));
        };
        let lists = outcomes.iter().map(|own| self.plan.deletes(own));
        let lengths: Vec<usize> = lists.clone().map(<[u32]>::len).collect();
        let handles: Vec<u32> = lists.flatten().copied().collect();
        if handles.is_empty() {
            return Ok(new_null_array(&data_type, outcomes.len()));
        }
        let valid = NullBuffer::from_iter(lengths.iter().map(|len| *len > 0));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let values = self.state.pool.gather(&handles)?;
        let list = ListArray::try_new(Arc::clone(field), offsets, values, Some(valid));
        Ok(Arc::new(list.map_err(failed)?))
    }

    /// The tombstones of these groups.
    pub(super) fn tombstones(&self, groups: &[u32]) -> Result<RecordBatch> {
        let places = UInt32Array::from(groups.to_vec());
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for (at, column) in self.rules.layout.key_columns().enumerate() {
            fields.push(Field::new(&column.name, column.data_type.clone(), true));
            columns.push(self.key(at, &places)?);
        }
        let outcomes: Vec<&Outcome> = groups
            .iter()
            .filter_map(|group| self.plan.outcomes.get(position(*group)))
            .collect();
        let sequences: Vec<u32> = outcomes.iter().map(|own| own.delete).collect();
        fields.push(Field::new(
            hidden::SEQUENCE,
            self.rules.sequence_type.clone(),
            true,
        ));
        columns.push(self.state.pool.gather(&sequences)?);
        if self.rules.layout.soft_delete {
            let list = types::list_of(self.rules.sequence_type.clone());
            fields.push(Field::new(hidden::DELETES, list, true));
            columns.push(self.deletes(&outcomes)?);
        }
        let arrived = groups
            .iter()
            .zip(&sequences)
            .map(|(group, own)| self.arrived(*group, *own));
        fields.push(Field::new(hidden::ARRIVED, DataType::Int64, true));
        columns.push(Arc::new(Int64Array::from_iter_values(arrived)));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(failed)
    }

    /// When the deciding delete arrived first (R-G2).
    fn arrived(&self, group: u32, delete: u32) -> i64 {
        let now = self.rules.context.now_ms;
        match self.stored.refs.get(position(group)) {
            Some(StoredRef::Tombstone(row))
                if self
                    .state
                    .pool
                    .is_equal(self.state.tombstones.sequence(*row), delete) =>
            {
                self.state.tombstones.arrived(*row).unwrap_or(now)
            }
            Some(
                StoredRef::Absent | StoredRef::Unread | StoredRef::Row(_) | StoredRef::Tombstone(_),
            )
            | None => now,
        }
    }
}

//! A table in memory that applies batches through the public API, for tests. Events are JSON objects; what
//! an object lacks is not authored; `op` is `D` for a delete and `T` for a truncate.

mod append;
mod batching;
mod counters;
mod foreign;
mod key_change;
mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StructArray, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use arrow::json::{ReaderBuilder, WriterBuilder, writer::JsonArray};
use serde_json::{Value, json};
use tidegate_change::sequence::SequenceBytes;
use tidegate_change::spec::layout::{ColumnRole, ResolvedColumn};
use tidegate_change::spec::{ColumnSpec, ResolvedSpec, TableLayout};
use tidegate_change::{Counters, KeyBucket, TableSpec, hidden};

use crate::{
    EventKind, Events, FileBounds, MergeContext, MergeRules, Merged, PayloadColumn, Stored,
    StoredRef, carry, group, resolve, truncate,
};

pub(crate) struct Table {
    pub(crate) spec: TableSpec,
    pub(crate) resolved: ResolvedSpec,
    pub(crate) layout: TableLayout,
    pub(crate) rows: RecordBatch,
    pub(crate) tombstones: RecordBatch,
    pub(crate) truncates: Vec<SequenceBytes>,
    pub(crate) horizon: Option<SequenceBytes>,
    /// The feed folded from the first batch on.
    pub(crate) folded: Vec<Value>,
    /// How many rows were left unread.
    pub(crate) unread: usize,
}

pub(crate) struct Applied {
    pub(crate) counters: Counters,
    pub(crate) feed: Vec<Value>,
    pub(crate) rejects: Vec<u32>,
    pub(crate) unresolved: u64,
    pub(crate) written: usize,
    pub(crate) tie_example: Option<u32>,
}

/// A spec over `id`, `op`, `seq` and the payload columns `(name, type)`, with more fields.
pub(crate) fn spec(columns: &[(&str, &str)], more: Value) -> Value {
    let mut schema = vec![
        json!({"name": "id", "type": "long"}),
        json!({"name": "op", "type": "string"}),
        json!({"name": "seq", "type": "long"}),
    ];
    schema.extend(
        columns
            .iter()
            .map(|(name, kind)| json!({"name": name, "type": kind})),
    );
    let mut spec = json!({
        "name": "t", "schema": schema, "keys": ["id"], "sequence_by": "seq",
        "except_column_list": ["op", "seq"], "change_data_feed": true, "absent_fields": "keep",
    });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

impl Table {
    pub(crate) fn new(spec: Value) -> Self {
        let spec: TableSpec = serde_json::from_str(&spec.to_string()).unwrap();
        let resolved = ResolvedSpec::declared(spec.clone());
        let layout = resolved.layout().unwrap();
        let rows = RecordBatch::new_empty(layout.file_schema());
        let mut table = Self {
            spec,
            resolved,
            tombstones: RecordBatch::new_empty(Arc::new(Schema::empty())),
            layout,
            rows,
            truncates: Vec::new(),
            horizon: None,
            folded: Vec::new(),
            unread: 0,
        };
        let empty = table.rules(vec![], 0);
        let none = empty_events(&empty);
        let grouped = group(&empty, none).unwrap();
        let stored = Stored {
            refs: &[],
            rows: &table.rows,
            tombstones: &table.tombstones,
        };
        table.tombstones = resolve(&empty, &grouped, &stored).unwrap().tombstones;
        table
    }

    /// A column that comes with schema number `since` (R-E1).
    pub(crate) fn add_column(&mut self, name: &str, kind: &str) {
        let column = ColumnSpec {
            name: name.into(),
            type_name: kind.into(),
            default: None,
            encoding: None,
            scale: None,
        };
        self.resolved.schema_number += 1;
        let since = self.resolved.schema_number;
        self.resolved.columns.push(ResolvedColumn { column, since });
        self.layout = self.resolved.layout().unwrap();
        let schema = self.layout.file_schema();
        let columns = schema.fields().iter().map(|field| {
            self.rows
                .column_by_name(field.name())
                .cloned()
                .unwrap_or_else(|| new_null_array(field.data_type(), self.rows.num_rows()))
        });
        self.rows = RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap();
        for row in &mut self.folded {
            row[name] = Value::Null;
        }
    }

    pub(crate) fn rules(&self, new_truncates: Vec<SequenceBytes>, now_ms: i64) -> MergeRules {
        let context = MergeContext {
            truncates: self.truncates.clone(),
            new_truncates,
            horizon: self.horizon.clone(),
            now_ms,
        };
        MergeRules::new(&self.layout, &self.spec, context).unwrap()
    }

    pub(crate) fn apply(&mut self, events: Value) -> Applied {
        self.apply_at(events, 0)
    }

    pub(crate) fn apply_at(&mut self, events: Value, now_ms: i64) -> Applied {
        self.purge(now_ms);
        let objects = events.as_array().unwrap().clone();
        let (truncates, objects): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|event| kind(event) == Some("T"));
        let new_truncates = self.sequences(&truncates);
        let rules = self.rules(new_truncates.clone(), now_ms);
        let events = self.events(&objects);
        let (events, unresolved) = self.carry(&rules, events, &objects);
        let grouped = group(&rules, events).unwrap();
        let refs = self.look_up(&rules, &grouped);
        let stored = Stored {
            refs: &refs,
            rows: &self.rows,
            tombstones: &self.tombstones,
        };
        let merged = resolve(&rules, &grouped, &stored).unwrap();
        let mut named = vec![false; self.rows.num_rows()];
        let known = row_places(&self.rows, &self.layout);
        for (at, key) in texts(grouped.key_columns(), &self.layout)
            .iter()
            .enumerate()
        {
            if let Some(row) = known.get(key) {
                named[*row] = true;
                if refs[at] == StoredRef::Unread {
                    self.unread += 1;
                }
            }
        }
        let others = keep(&self.rows, |row| !named[row]);
        let truncated = truncate(&rules, &others).unwrap();
        self.put(&grouped, &merged, &others, &truncated);
        self.truncates.extend(new_truncates);
        self.truncates.sort();
        self.truncates.dedup();
        let feed = self.fold(&[&merged, &truncated]);
        let mut counters = merged.counters;
        counters.add(&truncated.counters);
        Applied {
            counters,
            feed,
            rejects: merged.rejects.iter().map(|reject| reject.0).collect(),
            unresolved,
            written: merged.rows.num_rows() + truncated.rows.num_rows(),
            tie_example: merged.tie_example,
        }
    }

    fn put(
        &mut self,
        grouped: &crate::Grouped,
        merged: &Merged,
        others: &RecordBatch,
        truncated: &Merged,
    ) {
        let mut dead: Vec<String> = Vec::new();
        let group_keys = texts(grouped.key_columns(), &self.layout);
        dead.extend(
            merged
                .replaced
                .iter()
                .map(|at| group_keys[*at as usize].clone()),
        );
        let other_keys = texts(&key_columns(others, &self.layout), &self.layout);
        dead.extend(
            truncated
                .replaced
                .iter()
                .map(|at| other_keys[*at as usize].clone()),
        );
        let before = texts(&key_columns(&self.rows, &self.layout), &self.layout);
        let live = keep(&self.rows, |row| !dead.contains(&before[row]));
        let schema = self.layout.file_schema();
        self.rows = concat_batches(&schema, [&live, &merged.rows, &truncated.rows]).unwrap();
        let gone: Vec<String> = merged
            .superseded_tombstones
            .iter()
            .map(|at| group_keys[*at as usize].clone())
            .collect();
        self.put_tombstones(&gone, &[merged, truncated]);
    }

    fn put_tombstones(&mut self, gone: &[String], all: &[&Merged]) {
        let keys = texts(&self.tombstone_keys(), &self.layout);
        let kept = keep(&self.tombstones, |row| !gone.contains(&keys[row]));
        let mut parts = vec![kept];
        parts.extend(all.iter().map(|merged| merged.tombstones.clone()));
        self.tombstones = concat_batches(&parts[0].schema(), &parts).unwrap();
    }

    fn tombstone_keys(&self) -> Vec<ArrayRef> {
        self.tombstones.columns()[..self.layout.key_columns().count()].to_vec()
    }

    fn purge(&mut self, now_ms: i64) {
        let Some(retention) = self.spec.tombstone_retention.ms() else {
            return;
        };
        let arrived = named(&self.tombstones, hidden::ARRIVED);
        let arrived = arrived.as_primitive::<Int64Type>();
        let old = |row: usize| now_ms - arrived.value(row) > retention;
        let purged = keep(&self.tombstones, old);
        let rules = self.rules(vec![], 0);
        let sequences = named(&purged, hidden::SEQUENCE);
        let purged = encode(&rules, &sequences);
        self.horizon = purged.into_iter().chain(self.horizon.take()).max();
        self.tombstones = keep(&self.tombstones, |row| !old(row));
    }

    fn sequences(&self, objects: &[Value]) -> Vec<SequenceBytes> {
        let rules = self.rules(vec![], 0);
        encode(
            &rules,
            &self.sequence_column(&read(&self.source_schema(), objects)),
        )
    }

    fn source_schema(&self) -> Arc<Schema> {
        let declared = self.layout.source.iter().zip(&self.layout.source_types);
        let declared =
            declared.map(|(column, kind)| Field::new(&column.column.name, kind.clone(), true));
        // Without keys an event says its position, as hexadecimal digits.
        let position = self.layout.position.iter();
        let position = position.map(|own| Field::new(&own.name, own.data_type.clone(), true));
        Arc::new(Schema::new(declared.chain(position).collect::<Vec<_>>()))
    }

    fn sequence_column(&self, source: &RecordBatch) -> ArrayRef {
        use tidegate_change::spec::layout::SequenceSource;
        match &self.layout.sequence_by {
            SequenceSource::Column(name) => named(source, name),
            SequenceSource::Struct(names) => {
                let DataType::Struct(fields) = self.layout.sequence_type.clone().unwrap() else {
                    panic!("a struct sequence")
                };
                let parts = names.iter().map(|name| named(source, name)).collect();
                Arc::new(StructArray::new(fields, parts, None))
            }
            SequenceSource::Position | SequenceSource::None => {
                Arc::new(Int64Array::from(vec![0; source.num_rows()]))
            }
        }
    }

    pub(crate) fn events(&self, objects: &[Value]) -> Events {
        let source = read(&self.source_schema(), objects);
        let list = self.spec.columns_to_update.as_ref();
        let authors = |name: &str, event: &Value| match list.and_then(|list| event.get(list)) {
            Some(Value::Array(names)) => names.contains(&json!(name)),
            _ => event.get(name).is_some(),
        };
        let payload = self.layout.payload_columns().map(|column| {
            let carried = objects
                .iter()
                .any(|event| event.get(&column.name).is_some());
            let bits = BooleanBuffer::from_iter(objects.iter().map(|e| authors(&column.name, e)));
            PayloadColumn {
                values: carried.then(|| named(&source, &column.name)),
                authored: (bits.count_set_bits() < bits.len()).then_some(bits),
            }
        });
        let kinds = objects.iter().map(|event| match kind(event) {
            Some("D") => EventKind::Delete,
            _ => EventKind::Upsert,
        });
        Events {
            keys: self
                .layout
                .key_columns()
                .map(|key| named(&source, &key.name))
                .collect(),
            sequence: self.sequence_column(&source),
            kinds: kinds.collect(),
            payload: payload.collect(),
            buckets: vec![KeyBucket(0); objects.len()],
        }
    }

    /// `old` of an event is its old key.
    fn carry(&self, rules: &MergeRules, events: Events, objects: &[Value]) -> (Events, u64) {
        if !objects.iter().any(|event| event.get("old").is_some()) {
            return (events, 0);
        }
        let old =
            Int64Array::from_iter(objects.iter().map(|e| e.get("old").and_then(Value::as_i64)));
        let nulls = NullBuffer::from_iter(objects.iter().map(|event| event.get("old").is_some()));
        let old: ArrayRef = Arc::new(old);
        let fields = Fields::from(vec![Field::new("id", DataType::Int64, true)]);
        let refs = self.places(rules, &[Arc::clone(&old)], |_, _| true);
        let keys = StructArray::new(fields, vec![old], Some(nulls));
        let stored = Stored {
            refs: &refs,
            rows: &self.rows,
            tombstones: &self.tombstones,
        };
        let carried = carry(rules, events, &keys, &stored).unwrap();
        (carried.events, carried.unresolved)
    }

    fn look_up(&self, rules: &MergeRules, grouped: &crate::Grouped) -> Vec<StoredRef> {
        self.places(rules, grouped.key_columns(), |at, row| {
            let bounds = FileBounds::of(rules, &self.rows.slice(row, 1)).unwrap();
            grouped.needs_stored(rules, at, &bounds)
        })
    }

    fn places(
        &self,
        _rules: &MergeRules,
        keys: &[ArrayRef],
        needed: impl Fn(usize, usize) -> bool,
    ) -> Vec<StoredRef> {
        let rows = row_places(&self.rows, &self.layout);
        let tombstones = texts(&self.tombstone_keys(), &self.layout);
        let find = |(at, key): (usize, &String)| match rows.get(key) {
            Some(row) if needed(at, *row) => StoredRef::Row(*row as u32),
            Some(_) => StoredRef::Unread,
            None => match tombstones.iter().position(|own| own == key) {
                Some(row) => StoredRef::Tombstone(row as u32),
                None => StoredRef::Absent,
            },
        };
        texts(keys, &self.layout)
            .iter()
            .enumerate()
            .map(find)
            .collect()
    }

    fn fold(&mut self, all: &[&Merged]) -> Vec<Value> {
        let mut feed = Vec::new();
        for merged in all {
            let Some(batch) = &merged.feed else { continue };
            for mut row in to_json(batch) {
                feed.push(row.clone());
                let object = row.as_object_mut().unwrap();
                let change = object.remove(crate::CHANGE_TYPE).unwrap();
                match change.as_str().unwrap() {
                    "insert" | "update_postimage" => self.folded.push(row),
                    _ => {
                        let at = self.folded.iter().position(|own| *own == row);
                        self.folded
                            .remove(at.expect("a change row of a row that is there"));
                    }
                }
            }
        }
        feed
    }

    /// The visible rows, in key order.
    pub(crate) fn visible(&self) -> Vec<Value> {
        let columns: Vec<usize> = (0..self.layout.table_schema().fields().len()).collect();
        sorted(to_json(&self.rows.project(&columns).unwrap()))
    }

    /// Rows with all that is hidden, but the schema number, and tombstones, but their arrival.
    pub(crate) fn state(&self) -> Vec<Value> {
        let mut all = to_json(&self.rows);
        all.extend(to_json(&self.tombstones));
        for row in &mut all {
            let row = row.as_object_mut().unwrap();
            row.remove(hidden::SCHEMA);
            row.remove(hidden::ARRIVED);
        }
        sorted(all)
    }
}

fn named(batch: &RecordBatch, column: &str) -> ArrayRef {
    Arc::clone(batch.column_by_name(column).unwrap())
}

fn kind(event: &Value) -> Option<&str> {
    event
        .get("__kind")
        .or_else(|| event.get("op"))
        .and_then(Value::as_str)
}

fn empty_events(rules: &MergeRules) -> Events {
    Events {
        keys: rules
            .layout
            .key_types()
            .iter()
            .map(arrow::array::new_empty_array)
            .collect(),
        sequence: arrow::array::new_empty_array(&rules.sequence_type),
        kinds: vec![],
        payload: vec![PayloadColumn::default(); rules.payload.len()],
        buckets: vec![],
    }
}

fn encode(rules: &MergeRules, column: &ArrayRef) -> Vec<SequenceBytes> {
    rules
        .encoder
        .encode(column)
        .unwrap()
        .iter()
        .map(SequenceBytes::from_row)
        .collect()
}

fn read(schema: &Arc<Schema>, objects: &[Value]) -> RecordBatch {
    let mut decoder = ReaderBuilder::new(Arc::clone(schema))
        .build_decoder()
        .unwrap();
    for object in objects {
        let text = object.to_string();
        assert_eq!(decoder.decode(text.as_bytes()).unwrap(), text.len());
    }
    decoder
        .flush()
        .unwrap()
        .unwrap_or_else(|| RecordBatch::new_empty(Arc::clone(schema)))
}

pub(crate) fn to_json(batch: &RecordBatch) -> Vec<Value> {
    if batch.num_rows() == 0 {
        return vec![];
    }
    let mut writer = WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, JsonArray>(Vec::new());
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    serde_json::from_slice(&writer.into_inner()).unwrap()
}

pub(crate) fn sorted(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(|row| (row["id"].as_i64(), row.to_string()));
    rows
}

fn keep(batch: &RecordBatch, wanted: impl Fn(usize) -> bool) -> RecordBatch {
    let mask =
        arrow::array::BooleanArray::from_iter((0..batch.num_rows()).map(|r| Some(wanted(r))));
    filter_record_batch(batch, &mask).unwrap()
}

fn key_columns(rows: &RecordBatch, layout: &TableLayout) -> Vec<ArrayRef> {
    layout
        .key_columns()
        .map(|key| named(rows, &key.name))
        .collect()
}

fn texts(keys: &[ArrayRef], layout: &TableLayout) -> Vec<String> {
    let fields = layout.key_columns().map(|key| {
        assert!(matches!(key.role, ColumnRole::Key(_)));
        Field::new(&key.name, key.data_type.clone(), true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(schema, keys.to_vec()).unwrap();
    to_json(&batch).iter().map(Value::to_string).collect()
}

fn row_places(rows: &RecordBatch, layout: &TableLayout) -> BTreeMap<String, usize> {
    texts(&key_columns(rows, layout), layout)
        .into_iter()
        .enumerate()
        .map(|(a, k)| (k, a))
        .collect()
}

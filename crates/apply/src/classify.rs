//! Decoded events become changes of the table: the spec's conditions, sequence, keys and authorship.
//!
//! Conditions and sequence see all source columns (R-CL1); what is stored is the layout's. Invalid events
//! are set apart here, before anything is merged (R-S2, R-K2).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions,
    StringArray, StructArray, UInt32Array, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use tidegate_change::position::position_keys;
use tidegate_change::sequence::normalize_floats;
use tidegate_change::source::{InvalidEvent, SourceBatch, SourceOperation};
use tidegate_change::spec::layout::{SequenceSource, pseudo_column_type};
use tidegate_change::spec::{OnTruncate, PSEUDO_COLUMNS, TableLayout, TableMode, TableSpec};
use tidegate_change::{Code, Error, Result, json};
use tidegate_expression::Compiled;
use tidegate_merge::{EventKind, PayloadColumn};

use crate::reject::rule_reject;

/// The changes of one decoded part, valid ones only.
#[derive(Debug)]
pub(crate) struct Classified {
    /// Key columns in key order, floats normalised.
    pub keys: Vec<ArrayRef>,
    /// Sequences.
    pub sequence: ArrayRef,
    /// Upsert or delete.
    pub kinds: Vec<EventKind>,
    /// Values by payload column of the table.
    pub payload: Vec<PayloadColumn>,
    /// Old keys of key changes (R-K6).
    pub old_keys: Option<StructArray>,
    /// Record numbers in the file.
    pub rows: Vec<u64>,
    /// Sequences of truncates.
    pub truncates: ArrayRef,
    /// Events that are kept apart.
    pub rejects: Vec<InvalidEvent>,
    /// Events read, whatever becomes of them.
    pub events: u64,
    /// Truncates that the policy ignores (R-X6).
    pub ignored: u64,
}

/// The compiled conditions of a spec.
#[derive(Debug)]
pub(crate) struct Classifier {
    spec: TableSpec,
    layout: TableLayout,
    sequence_type: DataType,
    source_schema: SchemaRef,
    deletes: Option<Compiled>,
    truncates: Option<Compiled>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Change(EventKind),
    Truncate,
    Ignored,
    /// An update or delete where rows are only appended (R-K7).
    NoInsert,
    Rejected,
}

impl Classifier {
    /// Compiles the spec's conditions against its source columns.
    ///
    /// # Errors
    /// `INVALID_EXPRESSION` or `UNKNOWN_COLUMN` of a condition.
    pub(crate) fn new(spec: &TableSpec, layout: &TableLayout) -> Result<Self> {
        let mut fields: Vec<Field> = layout
            .source
            .iter()
            .zip(&layout.source_types)
            .map(|(c, data_type)| Field::new(&c.column.name, data_type.clone(), true))
            .collect();
        for name in PSEUDO_COLUMNS {
            if let Some(data_type) = pseudo_column_type(name) {
                fields.push(Field::new(name, data_type, true));
            }
        }
        let source_schema: SchemaRef = Arc::new(Schema::new(fields));
        let compile = |sql: &Option<String>| match sql {
            Some(sql) if spec.mode != TableMode::InsertOnly => {
                Compiled::new(sql, &source_schema).map(Some)
            }
            _ => Ok(None),
        };
        Ok(Self {
            deletes: compile(&spec.apply_as_deletes)
                .map_err(|e| e.context(format!("table {}: apply_as_deletes", spec.name)))?,
            truncates: compile(&spec.apply_as_truncates)
                .map_err(|e| e.context(format!("table {}: apply_as_truncates", spec.name)))?,
            sequence_type: layout
                .sequence_type
                .clone()
                .ok_or_else(|| Error::internal("classifying before the sequence type is known"))?,
            spec: spec.clone(),
            layout: layout.clone(),
            source_schema,
        })
    }

    /// Classifies one part.
    ///
    /// # Errors
    /// `TRUNCATE_REFUSED` under `on_truncate: fail`; failures of an expression.
    pub(crate) fn classify(&self, batch: &SourceBatch) -> Result<Classified> {
        let source = self.source_columns(batch)?;
        let sequence = self.sequence(batch, &source)?;
        let null_sequence = null_sequences(
            &sequence,
            self.layout.sequence_by == SequenceSource::Position,
        );
        let keys = self.keys(batch, &source)?;
        let mut rejects = batch.invalid.clone();
        let classes = self.classes(batch, &source, &null_sequence, &keys, &mut rejects)?;

        let picked = |wanted: fn(Class) -> bool| -> UInt32Array {
            (0u32..)
                .zip(&classes)
                .filter(|(_, c)| wanted(**c))
                .map(|(row, _)| row)
                .collect()
        };
        let changes = picked(|class| matches!(class, Class::Change(_)));
        let truncated = picked(|class| class == Class::Truncate);
        let all = changes.len() == batch.len();
        let gather = |array: &ArrayRef| {
            if all {
                Ok(Arc::clone(array))
            } else {
                taken(array, &changes)
            }
        };
        let kinds = classes
            .iter()
            .filter_map(|class| match class {
                Class::Change(kind) => Some(*kind),
                _ => None,
            })
            .collect();
        let old_keys = match &batch.old_keys {
            Some(old) if old.null_count() < old.len() && self.layout.position.is_none() => {
                let old: ArrayRef = Arc::new(old.clone());
                Some(gather(&old)?.as_struct().clone())
            }
            _ => None,
        };
        Ok(Classified {
            keys: keys
                .iter()
                .map(|k| gather(k).map(|k| normalize_floats(&k)))
                .collect::<Result<_>>()?,
            sequence: gather(&sequence)?,
            kinds,
            payload: self.payload(batch, &source, &changes, all)?,
            old_keys,
            rows: places(batch, &changes),
            truncates: taken(&sequence, &truncated)?,
            events: (batch.len() + batch.invalid.len()) as u64,
            ignored: classes
                .iter()
                .filter(|class| **class == Class::Ignored)
                .count() as u64,
            rejects,
        })
    }

    /// All source columns and pseudo-columns, NULL where the batch does not carry them.
    fn source_columns(&self, batch: &SourceBatch) -> Result<RecordBatch> {
        let columns = self
            .source_schema
            .fields()
            .iter()
            .map(|field| match batch.columns.column_by_name(field.name()) {
                Some(column) => Ok(Arc::clone(column)),
                None => self.missing_column(batch, field),
            })
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.source_schema), columns, &options)
            .map_err(|e| Error::internal("source columns do not fit the spec").with_source(e))
    }

    fn missing_column(&self, batch: &SourceBatch, field: &Field) -> Result<ArrayRef> {
        let origin = &batch.origin;
        let numbers = |values: &Option<Vec<Option<i64>>>| -> ArrayRef {
            match values {
                Some(values) => Arc::new(Int64Array::from(values.clone())),
                None => new_null_array(&DataType::Int64, batch.len()),
            }
        };
        Ok(match field.name().as_str() {
            "_source_file" => {
                let names = std::iter::repeat_n(&*origin.file, batch.len());
                Arc::new(StringArray::from_iter_values(names))
            }
            "_source_row" => {
                Arc::new(Int64Array::from_iter_values(origin.rows.iter().map(
                    |row| i64::try_from(row.saturating_add(1)).unwrap_or(i64::MAX),
                )))
            }
            "_source_partition" => numbers(&origin.partitions),
            "_source_offset" => numbers(&origin.offsets),
            name => match self.default_of(name)? {
                Some(value) => repeated(&value, batch.len())?,
                None => new_null_array(field.data_type(), batch.len()),
            },
        })
    }

    fn default_of(&self, name: &str) -> Result<Option<ArrayRef>> {
        let found = self
            .layout
            .source
            .iter()
            .zip(&self.layout.source_types)
            .find(|(c, _)| c.column.name == name);
        match found.and_then(|(c, data_type)| c.column.default.as_ref().map(|d| (d, data_type))) {
            Some((default, data_type)) => json::scalar(data_type, default).map(Some).map_err(|e| {
                e.context(format!(
                    "table {}: default of column {name}",
                    self.spec.name
                ))
            }),
            None => Ok(None),
        }
    }

    fn sequence(&self, batch: &SourceBatch, source: &RecordBatch) -> Result<ArrayRef> {
        let column = |name: &String| {
            source.column_by_name(name).cloned().ok_or_else(|| {
                Error::new(
                    Code::UnknownColumn,
                    format!(
                        "table {}: sequence column {name} is missing",
                        self.spec.name
                    ),
                )
            })
        };
        let sequence: ArrayRef = match &self.layout.sequence_by {
            SequenceSource::Column(name) => column(name)?,
            SequenceSource::Struct(names) => {
                let members = names.iter().map(column).collect::<Result<Vec<_>>>()?;
                let fields: Fields = names
                    .iter()
                    .zip(&members)
                    .map(|(name, member)| Field::new(name, member.data_type().clone(), true))
                    .collect();
                let built = StructArray::try_new_with_length(fields, members, None, batch.len());
                Arc::new(
                    built
                        .map_err(|e| Error::internal("sequence cannot be built").with_source(e))?,
                )
            }
            SequenceSource::Position => match &batch.position {
                Some(position) => Arc::clone(position),
                None => new_null_array(&self.sequence_type, batch.len()),
            },
            SequenceSource::None => Arc::new(Int64Array::from(vec![0; batch.len()])),
        };
        if sequence.data_type() == &self.sequence_type {
            return Ok(sequence);
        }
        cast(&sequence, &self.sequence_type).map_err(|e| {
            let message = format!(
                "table {}: the source's sequence has another type",
                self.spec.name
            );
            Error::new(Code::InvalidValue, message).with_source(e)
        })
    }

    /// Key columns; a declared default stands in for rows that lack the column.
    fn keys(&self, batch: &SourceBatch, source: &RecordBatch) -> Result<Vec<ArrayRef>> {
        if self.layout.position.is_some() {
            let enveloped = &self.spec.source.metadata_columns;
            let is_content = |name: &str| !enveloped.values().any(|own| own == name);
            return Ok(vec![position_keys(batch, is_content)?]);
        }
        self.layout
            .key_columns()
            .map(|key| {
                let column = source.column(key.source);
                let authored = batch
                    .columns
                    .schema_ref()
                    .index_of(&key.name)
                    .ok()
                    .and_then(|i| batch.authored.get(i).cloned().flatten());
                match (authored, self.default_of(&key.name)?) {
                    (Some(authored), Some(default)) => {
                        let mask = BooleanArray::new(authored, None);
                        let default = repeated(&default, 1)?;
                        arrow::compute::kernels::zip::zip(
                            &mask,
                            column,
                            &arrow::array::Scalar::new(default),
                        )
                        .map_err(|e| Error::internal("key default").with_source(e))
                    }
                    _ => Ok(Arc::clone(column)),
                }
            })
            .collect()
    }

    fn classes(
        &self,
        batch: &SourceBatch,
        source: &RecordBatch,
        null_sequence: &BooleanBuffer,
        keys: &[ArrayRef],
        rejects: &mut Vec<InvalidEvent>,
    ) -> Result<Vec<Class>> {
        let evaluate = |condition: &Option<Compiled>| {
            condition
                .as_ref()
                .map(|condition| condition.predicate(source))
                .transpose()
        };
        let (deletes, truncates) = (evaluate(&self.deletes)?, evaluate(&self.truncates)?);
        let holds = |mask: &Option<BooleanArray>, row| mask.as_ref().is_some_and(|m| m.value(row));
        let insert_only = self.spec.mode == TableMode::InsertOnly;
        let appends = self.spec.mode == TableMode::Append;
        let mut classes = Vec::with_capacity(batch.len());
        for (row, operation) in batch.operations.iter().enumerate() {
            let by_source = *operation == SourceOperation::Truncate;
            let is_delete = || *operation == SourceOperation::Delete || holds(&deletes, row);
            let class = if holds(&truncates, row) {
                Class::Truncate
            } else if by_source {
                self.source_truncate(batch, row)?
            } else if appends && (is_delete() || is_update(batch, row)) {
                Class::NoInsert
            } else if !insert_only && is_delete() {
                Class::Change(EventKind::Delete)
            } else {
                Class::Change(EventKind::Upsert)
            };
            classes.push(self.checked(class, batch, source, row, null_sequence, keys, rejects));
        }
        Ok(classes)
    }

    fn source_truncate(&self, batch: &SourceBatch, row: usize) -> Result<Class> {
        match self.spec.truncate_policy() {
            OnTruncate::Apply => Ok(Class::Truncate),
            OnTruncate::Ignore => Ok(Class::Ignored),
            OnTruncate::Fail => {
                let line = batch.origin.rows.get(row).copied().unwrap_or_default() + 1;
                let message = format!(
                    "table {}: {} line {line}: a truncate of the source",
                    self.spec.name, batch.origin.file
                );
                let policies = match self.spec.mode {
                    TableMode::Append => "ignore",
                    _ => "apply or ignore",
                };
                Err(
                    Error::new(Code::TruncateRefused, message).with_hint(format!(
                        "set on_truncate: {policies} and apply the batch again"
                    )),
                )
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one row's view of the columns")]
    fn checked(
        &self,
        class: Class,
        batch: &SourceBatch,
        source: &RecordBatch,
        row: usize,
        null_sequence: &BooleanBuffer,
        keys: &[ArrayRef],
        rejects: &mut Vec<InvalidEvent>,
    ) -> Class {
        let mut reject = |code, field: &str| {
            let place = batch.origin.rows.get(row).copied().unwrap_or_default();
            let raw = row_json(source, row, self.layout.source.len());
            rejects.push(rule_reject(code, &batch.origin.file, place, field, raw));
            Class::Rejected
        };
        match class {
            Class::Ignored => return class,
            Class::NoInsert => return reject(Code::AppendOnly, ""),
            Class::Change(_) | Class::Truncate | Class::Rejected => {}
        }
        if let Class::Change(_) = class
            && let Some(position) = keys.iter().position(|key| key.is_null(row))
        {
            let name = self.spec.keys.get(position).map_or("", String::as_str);
            return reject(Code::NullKey, name);
        }
        if null_sequence.value(row) {
            return reject(Code::NullSequence, "");
        }
        class
    }

    fn payload(
        &self,
        batch: &SourceBatch,
        source: &RecordBatch,
        changes: &UInt32Array,
        all: bool,
    ) -> Result<Vec<PayloadColumn>> {
        let listed = self.listed_columns(source);
        self.layout
            .payload_columns()
            .map(|column| {
                let carried = batch.columns.schema_ref().index_of(&column.name).ok();
                if carried.is_none() && self.default_of(&column.name)?.is_none() {
                    return Ok(PayloadColumn {
                        values: None,
                        authored: None,
                    });
                }
                let mask = carried.and_then(|i| batch.authored.get(i).cloned().flatten());
                let by_list = listed.as_ref().map(|list| authors(list, &column.name));
                let authored = match (mask, by_list) {
                    (Some(a), Some(b)) => Some(&a & &b),
                    (a, b) => a.or(b),
                };
                let values = source.column(column.source);
                if all {
                    return Ok(PayloadColumn {
                        values: Some(Arc::clone(values)),
                        authored,
                    });
                }
                let authored = authored
                    .map(|mask| {
                        let mask: ArrayRef = Arc::new(BooleanArray::new(mask, None));
                        taken(&mask, changes).map(|mask| mask.as_boolean().values().clone())
                    })
                    .transpose()?;
                Ok(PayloadColumn {
                    values: Some(taken(values, changes)?),
                    authored,
                })
            })
            .collect()
    }

    /// The column that lists what each event authors (R-N6).
    fn listed_columns(&self, source: &RecordBatch) -> Option<ArrayRef> {
        let name = self.spec.columns_to_update.as_ref()?;
        let column = source.column_by_name(name)?;
        matches!(column.data_type(), DataType::List(_)).then(|| Arc::clone(column))
    }
}

/// Whether an event is an update, or the second half of one that changed the key.
fn is_update(batch: &SourceBatch, row: usize) -> bool {
    batch.operations.get(row) == Some(&SourceOperation::Update)
        || batch.old_keys.as_ref().is_some_and(|old| old.is_valid(row))
}

/// Record numbers of some events.
fn places(batch: &SourceBatch, events: &UInt32Array) -> Vec<u64> {
    let place = |event: &u32| {
        batch
            .origin
            .rows
            .get(*event as usize)
            .copied()
            .unwrap_or_default()
    };
    events.values().iter().map(place).collect()
}

/// Which events list the column; a NULL list lists all (R-N6).
fn authors(list: &ArrayRef, column: &str) -> BooleanBuffer {
    let list = list.as_list::<i32>();
    BooleanBuffer::collect_bool(list.len(), |row| {
        if list.is_null(row) {
            return true;
        }
        let names = list.value(row);
        let Some(names) = names.as_string_opt::<i32>() else {
            return false;
        };
        names.iter().flatten().any(|name| name == column)
    })
}

/// Sequences that are NULL, or structs whose members are all NULL, `rank` of a derived one apart (R-S2, R-S3).
fn null_sequences(sequence: &ArrayRef, derived: bool) -> BooleanBuffer {
    let own = |row: usize| sequence.is_null(row);
    let DataType::Struct(fields) = sequence.data_type() else {
        return BooleanBuffer::collect_bool(sequence.len(), own);
    };
    let members: Vec<&ArrayRef> = sequence
        .as_struct()
        .columns()
        .iter()
        .zip(fields)
        .filter(|(_, field)| !(derived && field.name() == "rank"))
        .map(|(member, _)| member)
        .collect();
    BooleanBuffer::collect_bool(sequence.len(), |row| {
        own(row) || members.iter().all(|member| member.is_null(row))
    })
}

fn taken(array: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef> {
    take(array, rows, None).map_err(|e| Error::internal("events cannot be gathered").with_source(e))
}

/// One value, repeated.
fn repeated(value: &ArrayRef, len: usize) -> Result<ArrayRef> {
    taken(value, &UInt32Array::from(vec![0; len]))
}

/// The event's source columns as one JSON object, for the rejects table only.
fn row_json(source: &RecordBatch, row: usize, columns: usize) -> String {
    let mut object = serde_json::Map::new();
    for (field, column) in source
        .schema_ref()
        .fields()
        .iter()
        .zip(source.columns())
        .take(columns)
    {
        let value = json::value_at(column, row).unwrap_or(serde_json::Value::Null);
        object.insert(field.name().clone(), value);
    }
    serde_json::Value::Object(object).to_string()
}

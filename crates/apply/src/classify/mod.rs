//! Decoded events become changes of the table: the spec's conditions, sequence, keys and authorship.
//!
//! Conditions and sequence see all source columns (R-CL1); what is stored is the layout's. Invalid events
//! are set apart here, before anything is merged (R-S2, R-K2).
//!
//! `classes` says what each event is; `sequence` what orders them; `payload` what they say of the columns.

mod classes;
mod payload;
mod sequence;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions,
    StringArray, StructArray, UInt32Array, new_null_array,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidegate_change::position::position_keys;
use tidegate_change::sequence::normalize_floats;
use tidegate_change::source::{InvalidEvent, SourceBatch};
use tidegate_change::spec::layout::{SequenceSource, pseudo_column_type};
use tidegate_change::spec::{PSEUDO_COLUMNS, TableLayout, TableMode, TableSpec};
use tidegate_change::{Error, Result, json};
use tidegate_expression::Compiled;
use tidegate_merge::{EventKind, PayloadColumn};

use self::classes::{Class, Part};
use self::sequence::null_sequences;

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
        let part = Part {
            batch,
            source: &source,
            null_sequence: &null_sequence,
            keys: &keys,
        };
        let classes = self.classes(&part, &mut rejects)?;

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

fn taken(array: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef> {
    take(array, rows, None).map_err(|e| Error::internal("events cannot be gathered").with_source(e))
}

/// One value, repeated.
fn repeated(value: &ArrayRef, len: usize) -> Result<ArrayRef> {
    taken(value, &UInt32Array::from(vec![0; len]))
}

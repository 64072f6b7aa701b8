//! What orders the events: a column, a STRUCT of columns, or the position in the source (R-S1, R-S3, R-T6).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StructArray, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Fields};
use tidegate_change::source::SourceBatch;
use tidegate_change::spec::layout::SequenceSource;
use tidegate_change::{Code, Error, Result, types};

use super::Classifier;

impl Classifier {
    pub(super) fn sequence(&self, batch: &SourceBatch, source: &RecordBatch) -> Result<ArrayRef> {
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
        self.cast_sequence(batch, &sequence)
    }

    /// The sequence in the type that the table fixed (R-S1).
    fn cast_sequence(&self, batch: &SourceBatch, sequence: &ArrayRef) -> Result<ArrayRef> {
        let table = &self.spec.name;
        let origin = &batch.origin;
        if self.layout.sequence_by == SequenceSource::Position {
            // Positions of another connector may even cast, but nothing orders them among each other.
            let first = (0..sequence.len()).find(|row| sequence.is_valid(*row));
            let (file, place) = (&origin.file, origin.place(first.unwrap_or_default()));
            let message = format!(
                "table {table}: {file} {place}, field source: positions are {}, the table's sequence is {}",
                types::type_name(sequence.data_type())?,
                types::type_name(&self.sequence_type)?,
            );
            return Err(Error::new(Code::InvalidRecord, message));
        }
        // A value that does not fit is a fault; it must not turn into the NULL of an event without sequence.
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let to_own = |values: &ArrayRef| cast_with_options(values, &self.sequence_type, &options);
        // Arrow's messages quote values, so none of them is passed on.
        to_own(sequence).map_err(|_| {
            let misfit = |row: &usize| to_own(&sequence.slice(*row, 1)).is_err();
            let first = (0..sequence.len()).find(misfit);
            let (file, place) = (&origin.file, origin.place(first.unwrap_or_default()));
            let what = "the value does not fit the table's sequence";
            Error::new(
                Code::InvalidValue,
                format!("table {table}: {file} {place}: {what}"),
            )
        })
    }
}

/// Sequences that are NULL, or structs whose members are all NULL, `rank` of a derived one apart (R-S2, R-S3).
pub(super) fn null_sequences(sequence: &ArrayRef, derived: bool) -> BooleanBuffer {
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

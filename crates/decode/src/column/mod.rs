//! Columns under construction: every append adds exactly one entry, NULL when the value does not fit,
//! so that columns never fall out of step and nested values need no way back.
//!
//! - [`Column::append`]: values of a known source type, cast without loss (R-K8) (`cast`).
//! - [`Column::append_json`], [`Column::append_text`]: text, parsed by the declared type (`untyped`).

mod cast;
mod untyped;

use std::sync::Arc;

use arrow::array::builder::{
    BinaryBuilder, BooleanBufferBuilder, BooleanBuilder, Date32Builder, Decimal128Builder,
    Float32Builder, Float64Builder, Int8Builder, Int16Builder, Int32Builder, Int64Builder,
    StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::array::{Array, ArrayRef, ListArray, MapArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, FieldRef, Fields, TimeUnit};
use tidegate_change::spec::TimestampEncoding;
use tidegate_change::text::{Failure, Parsed};
use tidegate_change::{Code, Error, Result};

pub(crate) use cast::Scalar;
pub(crate) use untyped::{epoch_micros, last_members, variable_scale};

/// How text of a source without types is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextRules {
    /// How a timestamp comes as a number, or binary as text.
    pub(crate) encoding: Option<TimestampEncoding>,
    /// Base64 of the unscaled integer with this scale stands for a decimal.
    pub(crate) scale: Option<i8>,
    /// Debezium's iso modes add a `Z` to values without zone.
    pub(crate) stray_z: bool,
}

/// A column of one type.
#[derive(Debug)]
pub(crate) struct Column {
    values: Values,
    rules: TextRules,
    /// Keys of maps are never NULL: a refused one leaves a placeholder, as its row is dropped.
    never_null: bool,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum Values {
    Boolean(BooleanBuilder),
    Byte(Int8Builder),
    Short(Int16Builder),
    Integer(Int32Builder),
    Long(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal {
        values: Decimal128Builder,
        precision: u8,
        scale: i8,
    },
    Date(Date32Builder),
    Timestamp {
        values: TimestampMicrosecondBuilder,
        zoned: bool,
    },
    Text(StringBuilder),
    Binary(BinaryBuilder),
    List {
        field: FieldRef,
        slots: Slots,
        items: Box<Column>,
    },
    Map {
        entries: FieldRef,
        slots: Slots,
        pair: Box<(Column, Column)>,
    },
    Struct {
        fields: Fields,
        validity: BooleanBufferBuilder,
        members: Vec<Column>,
    },
}

/// Which items belong to which list.
#[derive(Debug)]
struct Slots {
    offsets: Vec<i32>,
    validity: BooleanBufferBuilder,
}

impl Slots {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            validity: BooleanBufferBuilder::new(0),
        }
    }

    fn push(&mut self, end: usize, valid: bool) {
        self.offsets.push(i32::try_from(end).unwrap_or(i32::MAX));
        self.validity.append(valid);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        // Offsets only rise, because they are lengths of a column that only grows.
        (
            OffsetBuffer::new(ScalarBuffer::from(offsets)),
            finish_validity(&mut self.validity),
        )
    }
}

fn finish_validity(validity: &mut BooleanBufferBuilder) -> Option<NullBuffer> {
    let nulls = NullBuffer::new(validity.finish());
    (nulls.null_count() > 0).then_some(nulls)
}

impl Column {
    /// An empty column.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a type that no Delta type stands for.
    pub(crate) fn new(data_type: &DataType, rules: TextRules) -> Result<Self> {
        let values = match data_type {
            DataType::Boolean => Values::Boolean(BooleanBuilder::new()),
            DataType::Int8 => Values::Byte(Int8Builder::new()),
            DataType::Int16 => Values::Short(Int16Builder::new()),
            DataType::Int32 => Values::Integer(Int32Builder::new()),
            DataType::Int64 => Values::Long(Int64Builder::new()),
            DataType::Float32 => Values::Float(Float32Builder::new()),
            DataType::Float64 => Values::Double(Float64Builder::new()),
            DataType::Decimal128(precision, scale) => Values::Decimal {
                values: Decimal128Builder::new().with_data_type(data_type.clone()),
                precision: *precision,
                scale: *scale,
            },
            DataType::Date32 => Values::Date(Date32Builder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Values::Timestamp {
                values: TimestampMicrosecondBuilder::new().with_data_type(data_type.clone()),
                zoned: zone.is_some(),
            },
            DataType::Utf8 => Values::Text(StringBuilder::new()),
            DataType::Binary => Values::Binary(BinaryBuilder::new()),
            DataType::List(field) => Values::List {
                field: Arc::clone(field),
                slots: Slots::new(),
                items: Box::new(Self::new(field.data_type(), rules)?),
            },
            DataType::Map(entries, _) => {
                let (key, value) = map_types(entries).ok_or_else(|| unsupported(data_type))?;
                if key.is_nested() {
                    return Err(unsupported(data_type));
                }
                let mut pair = (Self::new(key, rules)?, Self::new(value, rules)?);
                pair.0.never_null = true;
                Values::Map {
                    entries: Arc::clone(entries),
                    slots: Slots::new(),
                    pair: Box::new(pair),
                }
            }
            DataType::Struct(fields) => {
                let members = fields
                    .iter()
                    .map(|field| Self::new(field.data_type(), rules));
                Values::Struct {
                    fields: fields.clone(),
                    validity: BooleanBufferBuilder::new(0),
                    members: members.collect::<Result<_>>()?,
                }
            }
            _ => return Err(unsupported(data_type)),
        };
        Ok(Self {
            values,
            rules,
            never_null: false,
            scratch: Vec::new(),
        })
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        use arrow::array::ArrayBuilder as _;
        match &self.values {
            Values::Boolean(values) => values.len(),
            Values::Byte(values) => values.len(),
            Values::Short(values) => values.len(),
            Values::Integer(values) => values.len(),
            Values::Long(values) => values.len(),
            Values::Float(values) => values.len(),
            Values::Double(values) => values.len(),
            Values::Decimal { values, .. } => values.len(),
            Values::Date(values) => values.len(),
            Values::Timestamp { values, .. } => values.len(),
            Values::Text(values) => values.len(),
            Values::Binary(values) => values.len(),
            Values::List { slots, .. } | Values::Map { slots, .. } => slots.validity.len(),
            Values::Struct { validity, .. } => validity.len(),
        }
    }

    /// Adds NULL.
    pub(crate) fn append_null(&mut self) {
        if self.never_null {
            return self.append_placeholder();
        }
        match &mut self.values {
            Values::Boolean(values) => values.append_null(),
            Values::Byte(values) => values.append_null(),
            Values::Short(values) => values.append_null(),
            Values::Integer(values) => values.append_null(),
            Values::Long(values) => values.append_null(),
            Values::Float(values) => values.append_null(),
            Values::Double(values) => values.append_null(),
            Values::Decimal { values, .. } => values.append_null(),
            Values::Date(values) => values.append_null(),
            Values::Timestamp { values, .. } => values.append_null(),
            Values::Text(values) => values.append_null(),
            Values::Binary(values) => values.append_null(),
            Values::List { slots, items, .. } => slots.push(items.len(), false),
            Values::Map { slots, pair, .. } => slots.push(pair.0.len(), false),
            Values::Struct {
                validity, members, ..
            } => {
                members.iter_mut().for_each(Self::append_null);
                validity.append(false);
            }
        }
    }

    fn append_placeholder(&mut self) {
        match &mut self.values {
            Values::Boolean(values) => values.append_value(false),
            Values::Byte(values) => values.append_value(0),
            Values::Short(values) => values.append_value(0),
            Values::Integer(values) => values.append_value(0),
            Values::Long(values) => values.append_value(0),
            Values::Float(values) => values.append_value(0.0),
            Values::Double(values) => values.append_value(0.0),
            Values::Decimal { values, .. } => values.append_value(0),
            Values::Date(values) => values.append_value(0),
            Values::Timestamp { values, .. } => values.append_value(0),
            Values::Text(values) => values.append_value(""),
            Values::Binary(values) => values.append_value(b""),
            Values::List { .. } | Values::Map { .. } | Values::Struct { .. } => {}
        }
    }

    /// Adds a list whose items the callback appends.
    pub(crate) fn append_list(&mut self, fill: impl FnOnce(&mut Self) -> Parsed<()>) -> Parsed<()> {
        let Values::List { slots, items, .. } = &mut self.values else {
            self.append_null();
            return Err(Failure::Invalid);
        };
        let filled = fill(items);
        slots.push(items.len(), filled.is_ok());
        filled
    }

    /// Adds a map whose entries the callback appends: one key, one value, in turn.
    pub(crate) fn append_map(
        &mut self,
        fill: impl FnOnce(&mut Self, &mut Self) -> Parsed<()>,
    ) -> Parsed<()> {
        let Values::Map { slots, pair, .. } = &mut self.values else {
            self.append_null();
            return Err(Failure::Invalid);
        };
        let filled = fill(&mut pair.0, &mut pair.1);
        slots.push(pair.0.len(), filled.is_ok());
        filled
    }

    /// Adds a struct: the callback appends to each member, by name, in order.
    pub(crate) fn append_struct(
        &mut self,
        mut fill: impl FnMut(&str, &mut Self) -> Parsed<()>,
    ) -> Parsed<()> {
        let Values::Struct {
            fields,
            validity,
            members,
        } = &mut self.values
        else {
            self.append_null();
            return Err(Failure::Invalid);
        };
        let mut filled = Ok(());
        for (field, member) in fields.iter().zip(members) {
            note(&mut filled, fill(field.name(), member));
        }
        validity.append(filled.is_ok());
        filled
    }

    /// Whether any value fits, as text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.values, Values::Text(_))
    }

    /// Whether values are arrays, maps or structs.
    pub(crate) fn is_nested(&self) -> bool {
        matches!(
            self.values,
            Values::List { .. } | Values::Map { .. } | Values::Struct { .. }
        )
    }

    /// The column so far; the builder is empty afterwards.
    ///
    /// # Errors
    /// `INTERNAL` when nested parts fell out of step.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef> {
        let broken = |e| Error::internal("a nested column is out of step").with_source(e);
        Ok(match &mut self.values {
            Values::Boolean(values) => Arc::new(values.finish()),
            Values::Byte(values) => Arc::new(values.finish()),
            Values::Short(values) => Arc::new(values.finish()),
            Values::Integer(values) => Arc::new(values.finish()),
            Values::Long(values) => Arc::new(values.finish()),
            Values::Float(values) => Arc::new(values.finish()),
            Values::Double(values) => Arc::new(values.finish()),
            Values::Decimal { values, .. } => Arc::new(values.finish()),
            Values::Date(values) => Arc::new(values.finish()),
            Values::Timestamp { values, .. } => Arc::new(values.finish()),
            Values::Text(values) => Arc::new(values.finish()),
            Values::Binary(values) => Arc::new(values.finish()),
            Values::List {
                field,
                slots,
                items,
            } => {
                let (offsets, nulls) = slots.finish();
                let array = ListArray::try_new(Arc::clone(field), offsets, items.finish()?, nulls);
                Arc::new(array.map_err(broken)?)
            }
            Values::Map {
                entries,
                slots,
                pair,
            } => {
                let (offsets, nulls) = slots.finish();
                let DataType::Struct(fields) = entries.data_type() else {
                    return Err(Error::internal("map entries are no struct"));
                };
                let columns = vec![pair.0.finish()?, pair.1.finish()?];
                let pairs = StructArray::try_new(fields.clone(), columns, None).map_err(broken)?;
                let array = MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, false);
                Arc::new(array.map_err(broken)?)
            }
            Values::Struct {
                fields,
                validity,
                members,
            } => {
                let length = validity.len();
                let nulls = finish_validity(validity);
                let columns = members
                    .iter_mut()
                    .map(Self::finish)
                    .collect::<Result<Vec<_>>>()?;
                let array =
                    StructArray::try_new_with_length(fields.clone(), columns, nulls, length);
                Arc::new(array.map_err(broken)?)
            }
        })
    }
}

/// Keeps the first failure of parts that are all added.
pub(crate) fn note(all: &mut Parsed<()>, added: Parsed<()>) {
    if all.is_ok() {
        *all = added;
    }
}

/// Key and value type of a map.
pub(crate) fn map_types(entries: &FieldRef) -> Option<(&DataType, &DataType)> {
    match entries.data_type() {
        DataType::Struct(fields) => match &fields[..] {
            [key, value] => Some((key.data_type(), value.data_type())),
            _ => None,
        },
        _ => None,
    }
}

fn unsupported(data_type: &DataType) -> Error {
    Error::new(
        Code::Unsupported,
        format!("arrow type {data_type} has no Delta type"),
    )
}

/// A finished column of one entry, for values outside of batches.
pub(crate) fn single(
    data_type: &DataType,
    fill: impl FnOnce(&mut Column) -> Parsed<()>,
) -> Parsed<ArrayRef> {
    let mut column = Column::new(data_type, TextRules::default()).map_err(|_| Failure::Invalid)?;
    fill(&mut column)?;
    let array = column.finish().map_err(|_| Failure::Invalid)?;
    if array.len() == 1 {
        Ok(array)
    } else {
        Err(Failure::Invalid)
    }
}

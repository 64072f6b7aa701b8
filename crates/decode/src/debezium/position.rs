//! Sequences from source positions (R-T6): structs whose last member is `rank`.

use arrow::array::builder::{BooleanBufferBuilder, Int32Builder};
use std::sync::Arc;

use arrow::array::{ArrayRef, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use tidegate_change::{Error, Result};

use crate::column::{Column, Scalar, TextRules};

/// What positions of a source are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PositionKind {
    Postgres,
    MySql,
    SqlServer,
    Oracle,
}

impl PositionKind {
    /// The kind of a connector, if its positions are known.
    pub(crate) fn of(connector: &str) -> Option<Self> {
        match connector {
            "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::MySql),
            "sqlserver" | "db2" => Some(Self::SqlServer),
            "oracle" => Some(Self::Oracle),
            _ => None,
        }
    }

    fn members(self) -> [Option<(&'static str, DataType)>; 3] {
        use DataType::{Int32, Int64, Utf8};
        match self {
            Self::Postgres => [Some(("lsn", Int64)), None, None],
            Self::MySql => [
                Some(("file", Int64)),
                Some(("pos", Int64)),
                Some(("row", Int32)),
            ],
            Self::SqlServer => [
                Some(("commit_lsn", Utf8)),
                Some(("change_lsn", Utf8)),
                Some(("serial", Int64)),
            ],
            Self::Oracle => [
                Some(("commit_scn", Int64)),
                Some(("scn", Int64)),
                Some(("ssn", Int64)),
            ],
        }
    }

    fn fields(self) -> Fields {
        let members = self.members().into_iter().flatten();
        let rank = Field::new("rank", DataType::Int32, true);
        members
            .map(|(name, data_type)| Field::new(name, data_type, true))
            .chain([rank])
            .collect()
    }
}

/// The position of one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position<'a> {
    pub(crate) kind: PositionKind,
    /// All None when the event has no position.
    pub(crate) members: [Option<Scalar<'a>>; 3],
    /// 0 for rows of a copy, which rank below streamed rows at an equal position.
    pub(crate) rank: i32,
}

/// A position that no order compares with those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherKind;

/// The positions of a batch.
#[derive(Debug)]
pub(crate) struct Positions {
    kind: PositionKind,
    members: Vec<Column>,
    ranks: Int32Builder,
    validity: BooleanBufferBuilder,
    first_line: Option<u64>,
}

impl Positions {
    /// Positions of which the first ones are NULL.
    pub(crate) fn new(kind: PositionKind, nulls: usize) -> Result<Self> {
        let members = kind.members().into_iter().flatten();
        let members = members.map(|(_, data_type)| Column::new(&data_type, TextRules::default()));
        let mut positions = Self {
            kind,
            members: members.collect::<Result<_>>()?,
            ranks: Int32Builder::new(),
            validity: BooleanBufferBuilder::new(0),
            first_line: None,
        };
        (0..nulls).for_each(|_| positions.push_null());
        Ok(positions)
    }

    /// Adds the position of an event that stands in a line.
    ///
    /// # Errors
    /// When it is of another kind than those before.
    pub(crate) fn push(
        &mut self,
        position: Option<&Position<'_>>,
        line: u64,
    ) -> Result<(), OtherKind> {
        let known = position.filter(|position| position.members.iter().any(Option::is_some));
        let Some(position) = known else {
            self.push_null();
            return Ok(());
        };
        if position.kind != self.kind {
            return Err(OtherKind);
        }
        for (column, member) in self.members.iter_mut().zip(position.members) {
            match member {
                // A member that does not fit its type is one that the event lacks.
                Some(value) => drop(column.append(value)),
                None => column.append_null(),
            }
        }
        self.ranks.append_value(position.rank);
        self.first_line = self.first_line.or(Some(line));
        self.validity.append(true);
        Ok(())
    }

    fn push_null(&mut self) {
        self.members.iter_mut().for_each(Column::append_null);
        self.ranks.append_null();
        self.validity.append(false);
    }

    /// Line of the first event that has a position.
    pub(crate) fn first_line(&self) -> Option<u64> {
        self.first_line
    }

    pub(crate) fn data_type(&self) -> DataType {
        DataType::Struct(self.kind.fields())
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef> {
        let mut columns = self
            .members
            .iter_mut()
            .map(Column::finish)
            .collect::<Result<Vec<_>>>()?;
        columns.push(Arc::new(self.ranks.finish()));
        let nulls = NullBuffer::new(self.validity.finish());
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let positions = StructArray::try_new(self.kind.fields(), columns, nulls)
            .map_err(|e| Error::internal("positions are out of step").with_source(e))?;
        Ok(Arc::new(positions))
    }
}

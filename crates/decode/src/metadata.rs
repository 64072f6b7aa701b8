//! Envelope fields that a spec may ask for as columns (`source.metadata_columns`).

use arrow::datatypes::DataType;
use tidegate_change::spec::{ColumnSpec, SourceSpec};
use tidegate_change::{Code, Error, Result, types};

/// A field of the envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataField {
    Op,
    Lsn,
    CommitTime,
    TsMs,
    SourceTsMs,
    TxId,
    TransactionId,
    Connector,
    Database,
    Schema,
    Table,
    Snapshot,
    Sequence,
    Gtid,
    File,
    Pos,
    Row,
    CommitLsn,
    ChangeLsn,
    Scn,
    CommitScn,
    Topic,
    Partition,
    Offset,
}

use MetadataField as Field;

const FIELDS: [(&str, MetadataField); 26] = [
    ("op", Field::Op),
    ("lsn", Field::Lsn),
    ("commit_time", Field::CommitTime),
    ("ts_ms", Field::TsMs),
    ("source_ts_ms", Field::SourceTsMs),
    ("txid", Field::TxId),
    ("tx_id", Field::TxId),
    ("transaction_id", Field::TransactionId),
    ("connector", Field::Connector),
    ("db", Field::Database),
    ("database", Field::Database),
    ("schema", Field::Schema),
    ("table", Field::Table),
    ("snapshot", Field::Snapshot),
    ("sequence", Field::Sequence),
    ("gtid", Field::Gtid),
    ("file", Field::File),
    ("pos", Field::Pos),
    ("row", Field::Row),
    ("commit_lsn", Field::CommitLsn),
    ("change_lsn", Field::ChangeLsn),
    ("scn", Field::Scn),
    ("commit_scn", Field::CommitScn),
    ("topic", Field::Topic),
    ("partition", Field::Partition),
    ("offset", Field::Offset),
];

impl MetadataField {
    /// The field of that name.
    pub(crate) fn from_name(name: &str) -> Result<Self> {
        FIELDS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, field)| *field)
            .ok_or_else(|| {
                let names: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
                Error::new(
                    Code::InvalidSpec,
                    format!("metadata column {name:?} is unknown"),
                )
                .with_hint(format!("known are {}", names.join(", ")))
            })
    }

    /// The type of its column.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Lsn
            | Self::TsMs
            | Self::SourceTsMs
            | Self::TxId
            | Self::Pos
            | Self::Row
            | Self::Partition
            | Self::Offset => DataType::Int64,
            Self::CommitTime => types::timestamp_utc(),
            _ => DataType::Utf8,
        }
    }
}

/// The columns that `metadata_columns` asks for, with their types, in the order of their field names.
///
/// # Errors
/// `INVALID_SPEC` for a field that no format has, or under format `flat`, which has no envelope.
pub fn metadata_columns(source: &SourceSpec) -> Result<Vec<ColumnSpec>> {
    if source.format == "flat" && !source.metadata_columns.is_empty() {
        let message = "source format flat has no metadata columns";
        return Err(Error::new(Code::InvalidSpec, message).with_hint("declare the field in schema"));
    }
    source
        .metadata_columns
        .iter()
        .map(|(field, name)| {
            Ok(ColumnSpec {
                name: name.clone(),
                type_name: types::type_name(&MetadataField::from_name(field)?.data_type())?,
                default: None,
                encoding: None,
                scale: None,
            })
        })
        .collect()
}

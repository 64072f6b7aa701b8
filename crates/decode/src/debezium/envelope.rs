//! Values of the envelope for the columns that ask for them (`source.metadata_columns`).

use super::record::Record;
use super::source_block::{SourceBlock, plain, whole};
use crate::column::Scalar;
use crate::metadata::MetadataField;
use crate::scan::Raw;

/// The value of a field of the envelope; None where the event has none.
pub(super) fn envelope_value<'a>(
    field: MetadataField,
    record: &Record<'a>,
    source: &SourceBlock<'a>,
) -> Option<Scalar<'a>> {
    let long = |raw| whole(raw).map(Scalar::Integer);
    let word = |raw| plain(raw).map(Scalar::Text);
    match field {
        MetadataField::Op => word(record.op),
        MetadataField::Lsn => source.lsn().map(Scalar::Integer),
        MetadataField::CommitTime => {
            let micros = whole(source.ts_us);
            let micros = micros.or_else(|| whole(source.ts_ms).and_then(|ms| ms.checked_mul(1000)));
            micros.map(|micros| Scalar::Timestamp {
                micros,
                zoned: true,
            })
        }
        MetadataField::TsMs => long(record.ts_ms),
        MetadataField::SourceTsMs => long(source.ts_ms),
        MetadataField::TxId => long(source.tx_id),
        MetadataField::TransactionId => transaction_id(record.transaction?).map(Scalar::Text),
        MetadataField::Connector => word(source.connector),
        MetadataField::Database => word(source.db),
        MetadataField::Schema => word(source.schema),
        MetadataField::Table => word(source.table),
        MetadataField::Snapshot => word(source.snapshot),
        MetadataField::Sequence => word(source.sequence),
        MetadataField::Gtid => word(source.gtid),
        MetadataField::File => word(source.file),
        MetadataField::Pos => long(source.pos),
        MetadataField::Row => long(source.row),
        MetadataField::CommitLsn => word(source.commit_lsn),
        MetadataField::ChangeLsn => word(source.change_lsn),
        MetadataField::Scn => word(source.scn),
        MetadataField::CommitScn => word(source.commit_scn),
        MetadataField::Topic => word(record.topic),
        MetadataField::Partition => long(record.partition),
        MetadataField::Offset => long(record.offset),
    }
}

fn transaction_id(transaction: Raw<'_>) -> Option<&str> {
    let mut id = None;
    transaction
        .members(|name, value| {
            if name.plain() == Some("id") {
                id = plain(Some(value));
            }
            Ok(())
        })
        .ok()?;
    id
}

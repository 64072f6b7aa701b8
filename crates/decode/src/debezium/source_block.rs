//! The `source` block of an envelope: where and when the change happened.

use std::borrow::Cow;

use tidegate_change::source::SourceOperation;

use super::position::{Position, PositionKind};
use crate::column::Scalar;
use crate::scan::{Raw, Scanned, Scanner};

/// The members that matter; names as Debezium writes them.
#[derive(Debug, Default)]
pub(crate) struct SourceBlock<'a> {
    pub(crate) connector: Option<Raw<'a>>,
    pub(crate) db: Option<Raw<'a>>,
    pub(crate) schema: Option<Raw<'a>>,
    pub(crate) table: Option<Raw<'a>>,
    pub(crate) snapshot: Option<Raw<'a>>,
    pub(crate) ts_ms: Option<Raw<'a>>,
    pub(crate) ts_us: Option<Raw<'a>>,
    pub(crate) tx_id: Option<Raw<'a>>,
    pub(crate) sequence: Option<Raw<'a>>,
    pub(crate) lsn: Option<Raw<'a>>,
    pub(crate) gtid: Option<Raw<'a>>,
    pub(crate) file: Option<Raw<'a>>,
    pub(crate) pos: Option<Raw<'a>>,
    pub(crate) row: Option<Raw<'a>>,
    pub(crate) commit_lsn: Option<Raw<'a>>,
    pub(crate) change_lsn: Option<Raw<'a>>,
    pub(crate) event_serial_no: Option<Raw<'a>>,
    pub(crate) commit_scn: Option<Raw<'a>>,
    pub(crate) scn: Option<Raw<'a>>,
    pub(crate) ssn: Option<Raw<'a>>,
}

/// A value as a whole number; numbers may come as strings.
pub(crate) fn whole(raw: Option<Raw<'_>>) -> Option<i64> {
    let raw = raw?;
    raw.0
        .parse()
        .ok()
        .or_else(|| raw.0.trim_matches('"').parse().ok())
}

/// A value as text that is not empty.
pub(crate) fn text<'a>(raw: Option<Raw<'a>>) -> Option<Cow<'a, str>> {
    raw?.string()
}

/// The text of a string without escapes, borrowed; of a number its digits.
pub(crate) fn plain<'a>(raw: Option<Raw<'a>>) -> Option<&'a str> {
    let raw = raw.filter(|raw| !raw.is_null())?;
    Some(raw.0.trim_matches('"')).filter(|text| !text.is_empty())
}

impl<'a> SourceBlock<'a> {
    /// Scans a block that starts here.
    pub(crate) fn scan(scanner: &mut Scanner<'a>) -> Scanned<Self> {
        let mut block = Self::default();
        scanner.object(|name, value| {
            let place = match name.plain().unwrap_or_default() {
                "connector" => &mut block.connector,
                "db" => &mut block.db,
                "schema" => &mut block.schema,
                "table" => &mut block.table,
                "snapshot" => &mut block.snapshot,
                "ts_ms" => &mut block.ts_ms,
                "ts_us" => &mut block.ts_us,
                "txId" => &mut block.tx_id,
                "sequence" => &mut block.sequence,
                "lsn" => &mut block.lsn,
                "gtid" => &mut block.gtid,
                "file" => &mut block.file,
                "pos" => &mut block.pos,
                "row" => &mut block.row,
                "commit_lsn" => &mut block.commit_lsn,
                "change_lsn" => &mut block.change_lsn,
                "event_serial_no" => &mut block.event_serial_no,
                "commit_scn" => &mut block.commit_scn,
                "scn" => &mut block.scn,
                "ssn" => &mut block.ssn,
                _ => return Ok(()),
            };
            *place = (!value.is_null()).then_some(value);
            Ok(())
        })?;
        Ok(block)
    }

    /// The position, if the connector has one that is known.
    pub(crate) fn position(&self, operation: SourceOperation) -> Option<Position<'a>> {
        let kind = PositionKind::of(plain(self.connector)?)?;
        let long = |raw| whole(raw).map(Scalar::Integer);
        let word = |raw| plain(raw).map(Scalar::Text);
        let members = match kind {
            PositionKind::Postgres => [self.lsn().map(Scalar::Integer), None, None],
            PositionKind::MySql => {
                let file = plain(self.file).and_then(|file| {
                    let digits = file.rsplit_once('.').map_or(file, |(_, digits)| digits);
                    digits.parse().ok().map(Scalar::Integer)
                });
                match file {
                    Some(file) => [
                        Some(file),
                        long(self.pos),
                        Some(Scalar::Integer(whole(self.row).unwrap_or(0))),
                    ],
                    None => [None; 3],
                }
            }
            PositionKind::SqlServer => [
                word(self.commit_lsn),
                word(self.change_lsn),
                long(self.event_serial_no),
            ],
            PositionKind::Oracle => [
                long(self.commit_scn).or_else(|| long(self.scn)),
                long(self.scn),
                long(self.ssn),
            ],
        };
        let rank = i32::from(operation != SourceOperation::Copy);
        Some(Position {
            kind,
            members,
            rank,
        })
    }

    /// PostgreSQL's position; rows of an incremental copy have it in `sequence` only.
    pub(crate) fn lsn(&self) -> Option<i64> {
        whole(self.lsn).or_else(|| {
            let sequence = text(self.sequence)?;
            let (_, last) = sequence.rsplit_once(',')?;
            last.trim_matches([' ', '"', ']']).parse().ok()
        })
    }

    /// Whether this is the table that the spec picks: `schema.table`, `db.table`, or both.
    pub(crate) fn is_table(&self, wanted: &str) -> bool {
        let Some(table) = text(self.table) else {
            return false;
        };
        let Some(prefix) = wanted.strip_suffix(&*table) else {
            return false;
        };
        let Some(prefix) = prefix.strip_suffix('.') else {
            return prefix.is_empty();
        };
        let (schema, db) = (text(self.schema), text(self.db));
        let is = |name: &Option<Cow<'_, str>>, wanted: &str| name.as_deref() == Some(wanted);
        is(&schema, prefix)
            || is(&db, prefix)
            || prefix
                .split_once('.')
                .is_some_and(|(first, rest)| is(&db, first) && is(&schema, rest))
    }

    /// What ties two halves of a key change together.
    pub(crate) fn tie(&self) -> Option<String> {
        let kind = PositionKind::of(plain(self.connector)?)?;
        let parts: &[Option<Raw<'_>>] = match kind {
            PositionKind::Postgres => &[self.lsn, self.tx_id],
            PositionKind::MySql => &[self.file, self.pos, self.row],
            PositionKind::SqlServer => &[self.commit_lsn, self.change_lsn],
            PositionKind::Oracle => &[self.commit_scn, self.scn, self.ssn],
        };
        let first = parts.first().copied().flatten()?;
        let rest = parts
            .iter()
            .skip(1)
            .map(|part| part.map_or("", |raw| raw.0));
        Some(
            std::iter::once(first.0)
                .chain(rest)
                .collect::<Vec<_>>()
                .join("/"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> SourceBlock<'_> {
        SourceBlock::scan(&mut Scanner::new(text)).unwrap()
    }

    #[test]
    fn incremental_copies_take_their_position_from_the_sequence() {
        let text =
            r#"{"connector":"postgresql","lsn":null,"sequence":"[\"34979968\",\"34979970\"]"}"#;
        assert_eq!(block(text).lsn(), Some(34_979_970));
        assert_eq!(block(r#"{"sequence":"[null,\"7\"]"}"#).lsn(), Some(7));
        assert_eq!(block(r#"{"sequence":null}"#).lsn(), None);
    }

    #[test]
    fn tables_are_picked_by_their_true_names() {
        let text = r#"{"db":"shop","schema":"public","table":"Weird.Table x"}"#;
        let source = block(text);
        for wanted in [
            "public.Weird.Table x",
            "shop.Weird.Table x",
            "shop.public.Weird.Table x",
            "Weird.Table x",
        ] {
            assert!(source.is_table(wanted), "{wanted}");
        }
        for wanted in [
            "Table x",
            "other.Weird.Table x",
            "public.weird.table x",
            "x",
        ] {
            assert!(!source.is_table(wanted), "{wanted}");
        }
    }

    #[test]
    fn a_binlog_file_counts_by_its_number() {
        let source = block(r#"{"connector":"mysql","file":"binlog.000123","pos":23,"row":1}"#);
        let position = source.position(SourceOperation::Copy).unwrap();
        assert!(matches!(position.members[0], Some(Scalar::Integer(123))));
        assert_eq!(position.rank, 0);
    }
}

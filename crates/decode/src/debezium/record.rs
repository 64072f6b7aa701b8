//! One line to the parts of a record: bare value or dumped Kafka record, each with schema or without.

use super::schema::Schemas;
use super::source_block::SourceBlock;
use crate::plan::DecodePlan;
use crate::scan::{Kind, Malformed, Raw, Scanned, Scanner};

/// A dumped record wraps a value, which wraps a payload.
const WRAPS_MAX: usize = 2;

/// The parts of a record.
#[derive(Debug, Default)]
pub(crate) struct Record<'a> {
    pub(crate) topic: Option<Raw<'a>>,
    pub(crate) partition: Option<Raw<'a>>,
    pub(crate) offset: Option<Raw<'a>>,
    pub(crate) key: Option<Raw<'a>>,
    pub(crate) headers: Option<Raw<'a>>,
    pub(crate) op: Option<Raw<'a>>,
    pub(crate) before: Option<Raw<'a>>,
    pub(crate) after: Option<Raw<'a>>,
    pub(crate) source: Option<SourceBlock<'a>>,
    pub(crate) transaction: Option<Raw<'a>>,
    pub(crate) ts_ms: Option<Raw<'a>>,
    /// Whether the value came with a schema.
    pub(crate) has_schema: bool,
    /// Whether there is no value: the record that follows a delete.
    pub(crate) is_null: bool,
    /// Text that holds the value as JSON, as some dumps write it.
    pub(crate) wrapped: Option<Raw<'a>>,
    pub(crate) signs: Signs,
}

/// Fields that tell records which are no row events.
#[derive(Debug, Default)]
pub(crate) struct Signs {
    pub(crate) status: bool,
    pub(crate) id: bool,
    pub(crate) ddl: bool,
    pub(crate) message: bool,
    /// Any other field of the value.
    pub(crate) other: bool,
    /// Any other field around it.
    pub(crate) outer: bool,
}

impl<'a> Record<'a> {
    /// Scans a line.
    pub(crate) fn scan(plan: &DecodePlan, schemas: &mut Schemas, line: &'a str) -> Scanned<Self> {
        let mut record = Self::default();
        let mut scanner = Scanner::new(line);
        match scanner.peek() {
            Some(b'{') => record.scan_object(plan, schemas, &mut scanner, 0)?,
            None => record.is_null = true,
            Some(_) => {
                if !scanner.value()?.is_null() {
                    return Err(Malformed);
                }
                record.is_null = true;
            }
        }
        if scanner.peek().is_some() {
            return Err(Malformed);
        }
        // A dumped record may leave out a value that is null.
        let empty = record.op.is_none() && record.wrapped.is_none() && record.source.is_none();
        let signs = &record.signs;
        let signed = signs.status || signs.ddl || signs.message || signs.other || signs.id;
        if record.is_dumped() && empty && !signed && record.ts_ms.is_none() {
            record.is_null = true;
        }
        Ok(record)
    }

    /// Whether the line is a dumped Kafka record, not the value alone.
    pub(crate) fn is_dumped(&self) -> bool {
        self.topic.is_some() || self.offset.is_some() || self.key.is_some()
    }

    fn scan_object(
        &mut self,
        plan: &DecodePlan,
        schemas: &mut Schemas,
        scanner: &mut Scanner<'a>,
        depth: usize,
    ) -> Scanned<()> {
        scanner.object_with(|name, scanner| {
            let name = name.plain().unwrap_or_default();
            match name {
                "schema" if scanner.peek() == Some(b'{') => {
                    self.has_schema = true;
                    return schemas.scan(plan, scanner);
                }
                "source" if scanner.peek() == Some(b'{') => {
                    self.source = Some(SourceBlock::scan(scanner)?);
                    return Ok(());
                }
                "value" | "payload" if depth < WRAPS_MAX => match scanner.peek() {
                    Some(b'{') => return self.scan_object(plan, schemas, scanner, depth + 1),
                    Some(b'n') => {
                        self.is_null = true;
                        return scanner.value().map(drop);
                    }
                    _ => {
                        let value = scanner.value()?;
                        match value.kind() {
                            Kind::String => self.wrapped = Some(value),
                            _ => self.signs.other = true,
                        }
                        return Ok(());
                    }
                },
                _ => {}
            }
            let value = scanner.value()?;
            self.set(name, value, depth);
            Ok(())
        })
    }

    fn set(&mut self, name: &str, value: Raw<'a>, depth: usize) {
        let place = match name {
            "before" => &mut self.before,
            "after" => &mut self.after,
            "op" => &mut self.op,
            "ts_ms" => &mut self.ts_ms,
            "transaction" => &mut self.transaction,
            "topic" if depth == 0 => &mut self.topic,
            "partition" if depth == 0 => &mut self.partition,
            "offset" if depth == 0 => &mut self.offset,
            "key" if depth == 0 => &mut self.key,
            "headers" if depth == 0 => &mut self.headers,
            "status" => return self.signs.status = true,
            "id" => return self.signs.id = true,
            "ddl" | "tableChanges" | "databaseName" => return self.signs.ddl = true,
            "message" => return self.signs.message = true,
            // Fields of envelopes that say nothing about rows.
            "schema" | "ts_us" | "ts_ns" | "schemaName" | "event_count" | "data_collections" => {
                return;
            }
            _ if depth == 0 => return self.signs.outer = true,
            _ => return self.signs.other = true,
        };
        *place = (!value.is_null()).then_some(value);
    }
}

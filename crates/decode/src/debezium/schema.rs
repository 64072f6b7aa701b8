//! Connect schemas, parsed once and then recognised by their text.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::types::SourceType;
use crate::findings::FieldOrder;
use crate::plan::DecodePlan;
use crate::scan::{Scanned, Scanner};

/// Most schemas that are remembered; a mixed source has a few per table.
const SCHEMAS_MAX: usize = 64;

/// The types that a schema gives to the plan's columns; None where it lacks the column.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) types: Vec<Option<SourceType>>,
    /// Fields that no column has, with their types.
    unknown: Vec<(String, SourceType)>,
    /// Their names.
    pub(crate) unknown_names: HashSet<Box<str>>,
}

impl Binding {
    fn new(plan: &DecodePlan, row: SourceType) -> Self {
        let mut types = vec![None; plan.columns.len()];
        let mut unknown = Vec::new();
        if let SourceType::Struct(members) = row {
            for (name, member) in members {
                let place = plan
                    .names
                    .get(name.as_str())
                    .and_then(|column| types.get_mut(*column));
                match place {
                    Some(place) => *place = Some(member),
                    None => unknown.push((name, member)),
                }
            }
        }
        Self {
            types,
            unknown_names: unknown
                .iter()
                .map(|(name, _)| name.as_str().into())
                .collect(),
            unknown,
        }
    }

    /// Tells what the schema says beyond the plan.
    pub(crate) fn report(&self, fields: &mut FieldOrder<'_>) {
        for (name, member) in &self.unknown {
            fields.observe_type(name, member.natural());
        }
        for (column, source) in self.types.iter().enumerate() {
            if let Some(source) = source {
                fields.observe_column(column, source.natural());
            }
        }
    }
}

/// What a schema says of rows.
#[derive(Clone, Debug)]
pub(crate) enum RowSchema {
    /// Nothing: values are read by their declared types.
    Untyped,
    Typed(Arc<Binding>),
    /// It describes the row in a way that is not understood.
    Unreadable,
}

/// What schemas describe.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Described {
    /// The envelope of a change event, which has the row in `after` and `before`.
    Envelope,
    /// A key, which has its columns as fields.
    Key,
}

/// A schema with its text.
#[derive(Debug)]
pub(crate) struct KnownSchema {
    text: String,
    pub(crate) row: RowSchema,
    /// Whether what it says beyond the plan was told.
    pub(crate) reported: bool,
}

/// The schemas met so far, the last one used first.
#[derive(Debug)]
pub(crate) struct Schemas {
    described: Described,
    known: Vec<KnownSchema>,
}

impl Schemas {
    pub(crate) fn new(described: Described) -> Self {
        Self {
            described,
            known: Vec::new(),
        }
    }

    /// Scans a schema that stands here; afterwards it is the first one.
    pub(crate) fn scan(&mut self, plan: &DecodePlan, scanner: &mut Scanner<'_>) -> Scanned<()> {
        let found = self
            .known
            .iter()
            .position(|schema| scanner.skip_known(&schema.text));
        match found {
            Some(0) => {}
            Some(place) => {
                if let Some(front) = self.known.get_mut(..=place) {
                    front.rotate_right(1);
                }
            }
            None => {
                let text = scanner.value()?.0.to_owned();
                let row = self.described.row(plan, &text);
                self.known.truncate(SCHEMAS_MAX - 1);
                self.known.insert(
                    0,
                    KnownSchema {
                        text,
                        row,
                        reported: false,
                    },
                );
            }
        }
        Ok(())
    }

    /// The schema that was scanned last.
    pub(crate) fn current(&mut self) -> Option<&mut KnownSchema> {
        self.known.first_mut()
    }
}

impl Described {
    /// What a schema says of the table's columns.
    fn row(self, plan: &DecodePlan, text: &str) -> RowSchema {
        let Ok(schema) = serde_json::from_str::<Value>(text) else {
            return RowSchema::Unreadable;
        };
        let row = match self {
            Self::Key => Some(&schema),
            // Parts of the envelope may be left out of its schema; the payload tells what it is.
            Self::Envelope => member(&schema, "after").or_else(|| member(&schema, "before")),
        };
        match (row.map(SourceType::parse), self) {
            (Some(Some(row)), _) => RowSchema::Typed(Arc::new(Binding::new(plan, row))),
            (None, _) | (_, Self::Key) => RowSchema::Untyped,
            (Some(None), Self::Envelope) => RowSchema::Unreadable,
        }
    }
}

/// The schema of a field of a struct.
fn member<'a>(schema: &'a Value, wanted: &str) -> Option<&'a Value> {
    let fields = schema.get("fields")?.as_array()?;
    fields
        .iter()
        .find(|field| field.get("field").and_then(Value::as_str) == Some(wanted))
}

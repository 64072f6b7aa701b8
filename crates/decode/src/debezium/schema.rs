//! Connect schemas, parsed once and then recognised by their text.

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
        Self { types, unknown }
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

/// A schema with its text.
#[derive(Debug)]
pub(crate) struct KnownSchema {
    text: String,
    /// None when it describes no row.
    pub(crate) row: Option<Arc<Binding>>,
    /// Whether what it says beyond the plan was told.
    pub(crate) reported: bool,
}

/// The schemas met so far, the last one used first.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    known: Vec<KnownSchema>,
}

impl Schemas {
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
                let row = row_type(&text).map(|row| Arc::new(Binding::new(plan, row)));
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

/// The struct of the table's columns: `after` or `before` of an envelope, or a key as it is.
fn row_type(text: &str) -> Option<SourceType> {
    let schema: Value = serde_json::from_str(text).ok()?;
    let fields = schema.get("fields")?.as_array()?;
    let named = |wanted: &str| {
        fields
            .iter()
            .find(|field| field.get("field").and_then(Value::as_str) == Some(wanted))
    };
    let is_envelope = named("op").is_some() && named("source").is_some();
    if is_envelope {
        SourceType::parse(named("after").or_else(|| named("before"))?)
    } else {
        SourceType::parse(&schema)
    }
}

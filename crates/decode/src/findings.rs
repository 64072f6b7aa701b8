//! What decoding met and the plan did not know.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};
use tidegate_change::{Code, Error, Result, SourceBatch, types};

use crate::plan::DecodePlan;
use crate::rows::Rows;
use crate::scan::{Quoted, Raw, Scanned, Scanner};
use crate::seen::{FIELDS_MAX, Seen, wider};
use crate::type_text;

/// Where something was found first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundAt {
    /// Name of the file.
    pub file: Arc<str>,
    /// Physical line, from 1; the record's number where a file has no lines.
    pub line: u64,
}

impl fmt::Display for FoundAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}", self.file, self.line)
    }
}

/// A field with the type that its values had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenField {
    /// Name, after the renames of the source.
    pub name: String,
    /// Where it was met first, if it has no column.
    pub at: Option<FoundAt>,
    pub(crate) seen: Seen,
}

impl SeenField {
    /// The least type that holds all values seen; None while they were all NULL.
    #[must_use]
    pub fn data_type(&self) -> Option<DataType> {
        self.seen.data_type()
    }
}

/// What the plan did not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Fields without a column, in the order seen.
    pub fields: Vec<SeenField>,
    /// Columns whose source type, or a value, needs a wider type.
    pub widened: Vec<SeenField>,
    /// Type of the sequence derived from the source position (R-T6).
    #[serde(with = "type_text::optional")]
    pub position: Option<DataType>,
    /// Where the first position was, if there is one.
    pub position_at: Option<FoundAt>,
    /// Names of the tables that row events came from, after the filter of `source.table`.
    pub tables: BTreeSet<String>,
}

impl Findings {
    /// Adds what a later chunk found.
    ///
    /// # Errors
    /// `INVALID_RECORD` when row events of two tables or positions of two kinds met.
    pub fn merge(&mut self, other: Self) -> Result<()> {
        merge_fields(&mut self.fields, other.fields);
        merge_fields(&mut self.widened, other.widened);
        match (&self.position, other.position) {
            (Some(a), Some(b)) if *a != b => {
                return Err(two_positions(&other.position_at.unwrap_or_default()));
            }
            (None, position) => {
                self.position = position;
                self.position_at = other.position_at;
            }
            _ => {}
        }
        self.tables.extend(other.tables);
        self.check_tables()
    }

    pub(crate) fn check_tables(&self) -> Result<()> {
        let mut tables = self.tables.iter();
        match (tables.next(), tables.next()) {
            (Some(first), Some(second)) => {
                let message = format!("row events of tables {first} and {second} are mixed");
                Err(Error::new(Code::InvalidRecord, message)
                    .with_hint("pick one with source.table: schema.table"))
            }
            _ => Ok(()),
        }
    }
}

/// The refusal of positions that no order compares; `at` is where the later kind stands.
pub(crate) fn two_positions(at: &FoundAt) -> Error {
    let message = format!("{at}, field source: positions of two kinds of connector are mixed");
    Error::new(Code::InvalidRecord, message)
}

/// Which fields without column tell their types.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Infer<'a> {
    /// None does.
    Nothing,
    /// All do.
    All,
    /// Those that a schema does not name.
    Beyond(&'a HashSet<Box<str>>),
}

impl Infer<'_> {
    fn takes(self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Beyond(known) => !known.contains(name),
        }
    }
}

fn merge_fields(fields: &mut Vec<SeenField>, others: Vec<SeenField>) {
    for other in others {
        match fields.iter_mut().find(|field| field.name == other.name) {
            Some(field) => field.seen.join(other.seen),
            None => fields.push(other),
        }
    }
}

/// Where the fields of a source's objects go; adapts to the order that they come in.
#[derive(Debug)]
pub(crate) struct FieldOrder<'p> {
    plan: &'p DecodePlan,
    order: Vec<(Box<str>, Option<usize>)>,
    fields: Vec<SeenField>,
    places: HashMap<Box<str>, usize>,
    misfits: Vec<Seen>,
    position: Option<DataType>,
    position_at: Option<FoundAt>,
    pub(crate) tables: BTreeSet<String>,
    file: Arc<str>,
    line: u64,
}

impl<'p> FieldOrder<'p> {
    pub(crate) fn new(plan: &'p DecodePlan, file: &Arc<str>) -> Self {
        Self {
            plan,
            order: Vec::new(),
            fields: Vec::new(),
            places: HashMap::new(),
            misfits: vec![Seen::Nothing; plan.columns.len()],
            position: None,
            position_at: None,
            tables: BTreeSet::new(),
            file: Arc::clone(file),
            line: 0,
        }
    }

    /// Says where what is found next stands.
    pub(crate) fn at(&mut self, line: u64) {
        self.line = line;
    }

    fn here(&self) -> FoundAt {
        FoundAt {
            file: Arc::clone(&self.file),
            line: self.line,
        }
    }

    /// The column that a source field fills.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.plan.names.get(name).copied()
    }

    /// Walks an object and puts its values where their columns are; of two with one name the last.
    /// By `infer`, values of fields without column tell their types.
    pub(crate) fn object<'a>(
        &mut self,
        scanner: &mut Scanner<'a>,
        slots: &mut [Option<Raw<'a>>],
        infer: Infer<'_>,
    ) -> Scanned<()> {
        let mut nth = 0;
        scanner.object(|name, value| {
            let column = self.resolve(nth, name, value, infer)?;
            if let Some(slot) = column.and_then(|column| slots.get_mut(column)) {
                *slot = Some(value);
            }
            nth += 1;
            Ok(())
        })
    }

    fn resolve(
        &mut self,
        nth: usize,
        name: Quoted<'_>,
        value: Raw<'_>,
        infer: Infer<'_>,
    ) -> Scanned<Option<usize>> {
        if let Some((known, column)) = self.order.get(nth)
            && (column.is_some() || matches!(infer, Infer::Nothing))
            && name.plain() == Some(&**known)
        {
            return Ok(*column);
        }
        let name = name.decode()?;
        let column = self.column(&name);
        let length = self.order.len();
        match self.order.get_mut(nth) {
            Some(place) => *place = ((*name).into(), column),
            None if nth == length && nth < FIELDS_MAX => {
                self.order.push(((*name).into(), column));
            }
            None => {}
        }
        if column.is_none() && infer.takes(&name) {
            self.observe(&name, |seen| seen.observe(value));
        }
        Ok(column)
    }

    /// Notes a value, as text, of a field that has no column.
    pub(crate) fn observe_text(&mut self, name: &str, text: &str, quoted: bool) {
        self.observe(name, |seen| seen.join(Seen::of_text(text, quoted)));
    }

    /// Notes a field that has no column, with the type that a schema gives it.
    pub(crate) fn observe_type(&mut self, name: &str, data_type: DataType) {
        self.observe(name, |seen| seen.join(Seen::Typed(data_type)));
    }

    /// Notes the source type of a column.
    pub(crate) fn observe_column(&mut self, column: usize, data_type: DataType) {
        if let Some(seen) = self.misfits.get_mut(column) {
            seen.join(Seen::Typed(data_type));
        }
    }

    fn observe(&mut self, name: &str, note: impl FnOnce(&mut Seen)) {
        let place = match self.places.get(name) {
            Some(place) => *place,
            None if self.fields.len() < FIELDS_MAX => {
                let renamed = self.plan.renamed(name).to_owned();
                self.fields.push(SeenField {
                    name: renamed,
                    at: Some(self.here()),
                    seen: Seen::Nothing,
                });
                self.places.insert(name.into(), self.fields.len() - 1);
                self.fields.len() - 1
            }
            None => return,
        };
        if let Some(field) = self.fields.get_mut(place) {
            note(&mut field.seen);
        }
    }

    /// Finishes a batch and keeps what it found.
    pub(crate) fn take(&mut self, rows: Rows<'_>) -> Result<SourceBatch> {
        for (seen, misfit) in self.misfits.iter_mut().zip(&rows.misfits) {
            seen.join(misfit.clone());
        }
        match (&self.position, rows.position_type()) {
            (Some(a), Some(b)) if *a != b => {
                return Err(two_positions(&self.here()));
            }
            (None, Some(position)) => {
                self.position = Some(position);
                self.position_at = Some(FoundAt {
                    line: rows.first_position().unwrap_or(self.line),
                    ..self.here()
                });
            }
            _ => {}
        }
        rows.finish()
    }

    pub(crate) fn findings(self) -> Findings {
        let widened = self
            .plan
            .columns
            .iter()
            .zip(self.misfits)
            .filter_map(|(column, seen)| {
                let needed = wider(column.data_type.clone(), seen.data_type()?);
                let widens =
                    needed != column.data_type && types::widens_to(&column.data_type, &needed);
                widens.then(|| SeenField {
                    name: column.name.clone(),
                    at: None,
                    seen: Seen::Typed(needed),
                })
            });
        Findings {
            widened: widened.collect(),
            fields: self.fields,
            position: self.position,
            position_at: self.position_at,
            tables: self.tables,
        }
    }
}

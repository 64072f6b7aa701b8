//! What decoding met and the plan did not know, and the spec that follows from it (R-E1, R-E2).

use std::collections::{BTreeSet, HashMap};

use arrow::datatypes::DataType;
use tidegate_change::spec::layout::ResolvedColumn;
use tidegate_change::spec::{ColumnSpec, RESERVED, ResolvedSpec, SchemaEvolution};
use tidegate_change::{Code, Error, HIDDEN_PREFIX, Result, SourceBatch, types};

use crate::metadata_columns;
use crate::plan::DecodePlan;
use crate::rows::Rows;
use crate::scan::{Quoted, Raw, Scanned, Scanner};
use crate::seen::{Seen, wider};

/// Most undeclared fields that are remembered: names may be data.
const FIELDS_MAX: usize = 4096;

/// A field with the type that its values had.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenField {
    /// Name, after the renames of the source.
    pub name: String,
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Fields without a column, in the order seen.
    pub fields: Vec<SeenField>,
    /// Columns whose source type, or a value, needs a wider type.
    pub widened: Vec<SeenField>,
    /// Type of the sequence derived from the source position (R-T6).
    pub position: Option<DataType>,
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
            (Some(a), Some(b)) if *a != b => return Err(two_positions()),
            (None, position) => self.position = position,
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

pub(crate) fn two_positions() -> Error {
    Error::new(
        Code::InvalidRecord,
        "source positions of two kinds of connector are mixed",
    )
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
    pub(crate) tables: BTreeSet<String>,
}

impl<'p> FieldOrder<'p> {
    pub(crate) fn new(plan: &'p DecodePlan) -> Self {
        Self {
            plan,
            order: Vec::new(),
            fields: Vec::new(),
            places: HashMap::new(),
            misfits: vec![Seen::Nothing; plan.columns.len()],
            position: None,
            tables: BTreeSet::new(),
        }
    }

    /// The column that a source field fills.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.plan.names.get(name).copied()
    }

    /// Walks an object and puts its values where their columns are; of two with one name the last.
    /// With `infer`, values of fields without column tell their types.
    pub(crate) fn object<'a>(
        &mut self,
        scanner: &mut Scanner<'a>,
        slots: &mut [Option<Raw<'a>>],
        infer: bool,
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
        infer: bool,
    ) -> Scanned<Option<usize>> {
        if let Some((known, column)) = self.order.get(nth)
            && (column.is_some() || !infer)
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
        if infer && column.is_none() {
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
            (Some(a), Some(b)) if *a != b => return Err(two_positions()),
            (None, position) => self.position = position,
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
                    seen: Seen::Typed(needed),
                })
            });
        Findings {
            widened: widened.collect(),
            fields: self.fields,
            position: self.position,
            tables: self.tables,
        }
    }
}

/// The spec with what was found, under its `schema_evolution` (R-E1, R-E2); None when nothing changes.
///
/// In the table's `first` batch undeclared fields are taken whatever the policy, under the current
/// schema number. Fields that were NULL throughout wait until a value tells their type.
///
/// # Errors
/// `RESERVED_COLUMN` or `INVALID_SPEC` for a field whose name no column can have; `INVALID_RECORD` for
/// positions of another kind than the table's sequence (R-S1).
pub fn evolve(
    spec: &ResolvedSpec,
    findings: &Findings,
    first: bool,
) -> Result<Option<ResolvedSpec>> {
    let mut next = spec.clone();
    let since = if first {
        spec.schema_number
    } else {
        spec.schema_number + 1
    };
    for column in metadata_columns(&spec.spec.source)? {
        if !next
            .columns
            .iter()
            .any(|known| known.column.name == column.name)
        {
            next.columns.push(ResolvedColumn { column, since });
        }
    }
    let policy = spec.spec.schema_evolution;
    if first || policy != SchemaEvolution::None {
        for field in &findings.fields {
            add_column(&mut next, field, since)?;
        }
    }
    if policy == SchemaEvolution::WidenTypes {
        for field in &findings.widened {
            widen_column(&mut next, field)?;
        }
    }
    if next.columns != spec.columns {
        next.schema_number = since;
    }
    fix_sequence(&mut next, findings)?;
    Ok((next != *spec).then_some(next))
}

fn add_column(next: &mut ResolvedSpec, field: &SeenField, since: u32) -> Result<()> {
    let Some(data_type) = field.data_type() else {
        return Ok(());
    };
    let name = &field.name;
    if next.columns.iter().any(|known| known.column.name == *name) {
        return Ok(());
    }
    check_name(next, name)?;
    let column = ColumnSpec {
        name: name.clone(),
        type_name: types::type_name(&data_type)?,
        default: None,
        encoding: None,
        scale: None,
    };
    next.columns.push(ResolvedColumn { column, since });
    Ok(())
}

fn check_name(next: &ResolvedSpec, name: &str) -> Result<()> {
    let table = &next.spec.name;
    let hint = "rename it under source.columns";
    let reserved = RESERVED.contains(&name)
        || name.to_ascii_lowercase().starts_with(HIDDEN_PREFIX)
        || (next.spec.is_soft_delete() && (name == "is_deleted" || name == "deleted_at"));
    if reserved {
        let message = format!("table {table}: the source field {name} has a reserved name");
        return Err(Error::new(Code::ReservedColumn, message).with_hint(hint));
    }
    let lower = name.to_lowercase();
    match next
        .columns
        .iter()
        .find(|known| known.column.name.to_lowercase() == lower)
    {
        Some(known) => {
            let known = &known.column.name;
            let message = format!("table {table}: {name} and {known} differ only in case");
            Err(Error::new(Code::InvalidSpec, message).with_hint(hint))
        }
        None => Ok(()),
    }
}

fn widen_column(next: &mut ResolvedSpec, field: &SeenField) -> Result<()> {
    let fixed = next
        .spec
        .sequence_by
        .iter()
        .flat_map(|by| by.names())
        .chain(&next.spec.keys);
    if fixed.into_iter().any(|name| *name == field.name) {
        return Ok(());
    }
    let Some(needed) = field.data_type() else {
        return Ok(());
    };
    for known in next
        .columns
        .iter_mut()
        .filter(|known| known.column.name == field.name)
    {
        let declared = known.column.data_type()?;
        if declared != needed && types::widens_to(&declared, &needed) {
            known.column.type_name = types::type_name(&needed)?;
        }
    }
    Ok(())
}

fn fix_sequence(next: &mut ResolvedSpec, findings: &Findings) -> Result<()> {
    let derived = next.spec.sequence_by.is_none() && next.spec.has_derived_sequence();
    let (Some(position), true) = (&findings.position, derived) else {
        return Ok(());
    };
    let found = types::type_name(position)?;
    match &next.sequence_type {
        Some(fixed) if *fixed != found => {
            let message = format!(
                "table {}: the source's positions are {found}, the sequence is {fixed}",
                next.spec.name
            );
            Err(Error::new(Code::InvalidRecord, message))
        }
        _ => {
            next.sequence_type = Some(found);
            Ok(())
        }
    }
}

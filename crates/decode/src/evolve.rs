//! The spec that follows from what decoding met and the plan did not know (R-E1, R-E2).

use tidegate_change::spec::layout::ResolvedColumn;
use tidegate_change::spec::{ColumnSpec, RESERVED, ResolvedSpec, SchemaEvolution};
use tidegate_change::{Code, Error, HIDDEN_PREFIX, Result, types};

use crate::findings::{Findings, SeenField};
use crate::metadata_columns;

/// The spec with what was found, under its `schema_evolution` (R-E1, R-E2); None when nothing changes.
///
/// In the table's `first` batch undeclared fields are taken whatever the policy, under the current
/// schema number. Fields that were NULL throughout wait until a value tells their type.
///
/// # Errors
/// `RESERVED_COLUMN` or `INVALID_RECORD` for a field whose name no column can have; `INVALID_RECORD` for
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
    check_name(next, field)?;
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

fn check_name(next: &ResolvedSpec, field: &SeenField) -> Result<()> {
    let (table, name) = (&next.spec.name, &field.name);
    let place = field.at.as_ref().map(|at| format!("{at}, "));
    let place = format!("table {table}: {}field {name}", place.unwrap_or_default());
    let hint = "rename it under source.columns";
    let reserved = RESERVED.contains(&name.as_str())
        || name.to_ascii_lowercase().starts_with(HIDDEN_PREFIX)
        || (next.spec.is_soft_delete() && (name == "is_deleted" || name == "deleted_at"));
    if reserved {
        let message = format!("{place}: the name is reserved");
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
            let message = format!("{place}: the name differs from column {known} only in case");
            Err(Error::new(Code::InvalidRecord, message).with_hint(hint))
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
            let place = findings.position_at.as_ref().map(|at| format!("{at}, "));
            let message = format!(
                "table {}: {}field source: positions are {found}, the table's sequence is {fixed}",
                next.spec.name,
                place.unwrap_or_default(),
            );
            Err(Error::new(Code::InvalidRecord, message))
        }
        _ => {
            next.sequence_type = Some(found);
            Ok(())
        }
    }
}

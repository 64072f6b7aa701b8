//! What an existing table's spec may change to.
//!
//! Columns may be added and widened; retention, policies, the source's format and options, the feed mode,
//! the number of buckets (by doubling), the column list (by addition) and upkeep may change. Everything that
//! gives stored rows their meaning may not: keys, sequence, types, conditions, partial-update options.

use super::layout::ResolvedColumn;
use super::{Buckets, ColumnSpec, OneOrMany, ResolvedSpec, TableSpec};
use crate::{Code, Error, Result, types};

/// The resolved spec of a table under a new spec.
///
/// # Errors
/// `INVALID_ALTER` that names the field which may not change, or what is wrong with the new spec.
pub fn alter(stored: &ResolvedSpec, new: TableSpec) -> Result<ResolvedSpec> {
    new.validate()?;
    check_fixed(&stored.spec, &new)?;
    check_buckets(&stored.spec, &new)?;
    check_column_lists(&stored.spec, &new)?;
    let (columns, changed) = merge_columns(stored, &new)?;
    let schema_number = stored.schema_number + u32::from(changed);
    let resolved = ResolvedSpec {
        spec: new,
        columns,
        sequence_type: stored.sequence_type.clone(),
        schema_number,
    };
    if !resolved.columns.is_empty() {
        resolved.layout()?;
    }
    Ok(resolved)
}

fn refused(spec: &TableSpec, what: &str) -> Error {
    Error::new(Code::InvalidAlter, format!("table {}: {what}", spec.name))
        .with_hint("make a new table for it and load it anew")
}

fn check_fixed(old: &TableSpec, new: &TableSpec) -> Result<()> {
    let moved = new.location.is_some() && new.location != old.location;
    let fixed = [
        ("name", old.name != new.name),
        ("location", moved),
        ("keys", old.keys != new.keys),
        (
            "sequence_by",
            names_of(old) != names_of(new) || is_list(old) != is_list(new),
        ),
        (
            "apply_as_deletes",
            old.apply_as_deletes != new.apply_as_deletes,
        ),
        (
            "apply_as_truncates",
            old.apply_as_truncates != new.apply_as_truncates,
        ),
        (
            "except_column_list",
            old.except_column_list != new.except_column_list,
        ),
        (
            "stored_as_scd_type",
            old.stored_as_scd_type != new.stored_as_scd_type,
        ),
        (
            "track_history_column_list",
            old.track_history_column_list != new.track_history_column_list,
        ),
        (
            "track_history_except_column_list",
            old.track_history_except_column_list != new.track_history_except_column_list,
        ),
        (
            "ignore_null_updates",
            old.ignore_null_updates != new.ignore_null_updates,
        ),
        (
            "columns_to_update",
            old.columns_to_update != new.columns_to_update,
        ),
        ("absent_fields", old.absent_fields != new.absent_fields),
        ("delete_mode", old.delete_mode != new.delete_mode),
        ("mode", old.mode != new.mode),
        (
            "snapshot_version_type",
            old.snapshot_version_type != new.snapshot_version_type,
        ),
        (
            "history_columns",
            old.history_columns != new.history_columns,
        ),
        ("partition_by", old.partition_by != new.partition_by),
        ("event_time", old.event_time != new.event_time),
    ];
    match fixed.iter().find(|(_, changed)| *changed) {
        Some((field, _)) => Err(refused(old, &format!("{field} cannot change"))),
        None => Ok(()),
    }
}

fn names_of(spec: &TableSpec) -> Option<&[String]> {
    spec.sequence_by.as_ref().map(OneOrMany::names)
}

/// A list of one column is a STRUCT, which is another type than the column.
fn is_list(spec: &TableSpec) -> bool {
    matches!(spec.sequence_by, Some(OneOrMany::Many(_)))
}

fn check_buckets(old: &TableSpec, new: &TableSpec) -> Result<()> {
    let (before, after) = (old.buckets.count(), new.buckets.count());
    let doubled = after >= before && after.is_multiple_of(before);
    if old.buckets == new.buckets || doubled || new.buckets == Buckets::Auto {
        return Ok(());
    }
    Err(refused(old, "buckets can only be doubled"))
}

fn check_column_lists(old: &TableSpec, new: &TableSpec) -> Result<()> {
    match (&old.column_list, &new.column_list) {
        (None, None) => Ok(()),
        (Some(before), Some(after)) => match before.iter().find(|name| !after.contains(name)) {
            None => Ok(()),
            Some(name) => Err(refused(
                old,
                &format!("column_list cannot lose column {name}"),
            )),
        },
        _ => Err(refused(old, "column_list can only gain columns")),
    }
}

/// The columns under the new spec, and whether rows must say from now on which schema they were written under.
fn merge_columns(stored: &ResolvedSpec, new: &TableSpec) -> Result<(Vec<ResolvedColumn>, bool)> {
    let next = stored.schema_number + 1;
    let mut columns = stored.columns.clone();
    let mut changed = false;
    let declared = new.schema.as_deref().unwrap_or_default();
    check_none_lost(stored, new, declared)?;
    for column in declared {
        match columns
            .iter_mut()
            .find(|known| known.column.name == column.name)
        {
            Some(known) => changed |= change_column(&stored.spec, &mut known.column, column)?,
            None => {
                let names_other_case = columns
                    .iter()
                    .any(|known| known.column.name.eq_ignore_ascii_case(&column.name));
                if names_other_case {
                    let what = format!(
                        "column {} differs from one of the table only by case",
                        column.name
                    );
                    return Err(refused(&stored.spec, &what));
                }
                columns.push(ResolvedColumn {
                    column: column.clone(),
                    since: next,
                });
                changed = true;
            }
        }
    }
    // A column that the list gains begins with this schema: older rows do not author it.
    if let (Some(before), Some(after)) = (&stored.spec.column_list, &new.column_list) {
        for known in &mut columns {
            let name = &known.column.name;
            if after.contains(name) && !before.contains(name) && known.since < next {
                known.since = next;
                changed = true;
            }
        }
    }
    Ok((columns, changed))
}

/// A column that the new format's envelope brings is not lost: it is declared by `metadata_columns`.
fn check_none_lost(stored: &ResolvedSpec, new: &TableSpec, declared: &[ColumnSpec]) -> Result<()> {
    let before = stored.spec.schema.as_deref().unwrap_or_default();
    let stays = |old: &ColumnSpec| {
        let mut names = declared.iter().map(|column| &column.name);
        names.any(|name| *name == old.name)
            || new
                .source
                .metadata_columns
                .values()
                .any(|name| *name == old.name)
    };
    match before.iter().find(|old| !stays(old)) {
        None => Ok(()),
        Some(lost) => Err(refused(
            &stored.spec,
            &format!("schema cannot lose column {}", lost.name),
        )),
    }
}

/// Takes a column's new declaration; true when its type changed.
fn change_column(spec: &TableSpec, known: &mut ColumnSpec, new: &ColumnSpec) -> Result<bool> {
    let (from, to) = (known.data_type()?, new.data_type()?);
    if from == to {
        *known = new.clone();
        return Ok(false);
    }
    let named = |names: &[String]| names.contains(&new.name);
    if named(&spec.keys) || names_of(spec).is_some_and(named) || named(&spec.partition_by) {
        let what = format!(
            "column {} is a key, sequence or partition column, its type cannot change",
            new.name
        );
        return Err(refused(spec, &what));
    }
    if !types::widens_to(&from, &to) {
        let what = format!(
            "column {} cannot change from {} to {}, which is no widening",
            new.name, known.type_name, new.type_name
        );
        return Err(refused(spec, &what));
    }
    *known = new.clone();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(extra: &str, columns: &str) -> TableSpec {
        let text = format!(
            "name: t\nkeys: [id]\nsequence_by: seq\n{extra}\nschema:\n  - {{name: id, type: long}}\n  - {{name: seq, type: long}}\n{columns}"
        );
        TableSpec::from_yaml(&text).unwrap()
    }

    const PRICE: &str = "  - {name: price, type: integer}\n";

    fn altered(extra: &str, columns: &str) -> Result<ResolvedSpec> {
        alter(
            &ResolvedSpec::declared(spec("", PRICE)),
            spec(extra, columns),
        )
    }

    #[test]
    fn columns_are_added_behind_the_known_ones() {
        let resolved = altered(
            "",
            "  - {name: note, type: string}\n  - {name: price, type: integer}\n",
        )
        .unwrap();
        let names: Vec<_> = resolved
            .columns
            .iter()
            .map(|c| (c.column.name.as_str(), c.since))
            .collect();
        assert_eq!(names, [("id", 0), ("seq", 0), ("price", 0), ("note", 1)]);
        assert_eq!(resolved.schema_number, 1);
    }

    #[test]
    fn a_column_may_come_from_the_envelope_of_another_format() {
        let before = spec("", PRICE);
        let text = "name: t\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  - {name: price, type: integer}\nsource: {format: debezium, metadata_columns: {lsn: seq}}\n";
        let after = TableSpec::from_yaml(text).unwrap();
        let resolved = alter(&ResolvedSpec::declared(before.clone()), after).unwrap();
        assert_eq!(
            resolved.columns,
            ResolvedSpec::declared(before.clone()).columns
        );
        let without = TableSpec::from_yaml(&text.replace("lsn: seq", "lsn: other")).unwrap();
        let refused = alter(&ResolvedSpec::declared(before), without).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidAlter);
    }

    #[test]
    fn types_widen_and_never_narrow() {
        assert_eq!(
            altered("", "  - {name: price, type: long}\n")
                .unwrap()
                .schema_number,
            1
        );
        let error = altered("", "  - {name: price, type: short}\n").unwrap_err();
        assert_eq!(error.code(), Code::InvalidAlter);
    }

    #[test]
    fn what_gives_rows_their_meaning_is_fixed() {
        for extra in [
            "delete_mode: soft",
            "ignore_null_updates: true",
            "apply_as_deletes: \"price = 1\"",
        ] {
            assert_eq!(
                altered(extra, PRICE).unwrap_err().code(),
                Code::InvalidAlter,
                "{extra}"
            );
        }
        assert_eq!(altered("", "").unwrap_err().code(), Code::InvalidAlter);
    }

    #[test]
    fn policies_change_and_buckets_double() {
        let extra =
            "on_invalid: quarantine\ntombstone_retention: 7d\nchange_data_feed: true\nbuckets: 32";
        let resolved = altered(extra, PRICE).unwrap();
        assert_eq!(resolved.schema_number, 0);
        assert_eq!(
            altered("buckets: 8", PRICE).unwrap_err().code(),
            Code::InvalidAlter
        );
    }
}

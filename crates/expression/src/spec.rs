//! The expressions of a spec, checked before any event is there.

use arrow::datatypes::{Field, Schema};
use tidegate_change::{Code, Result, TableSpec};

use crate::Compiled;

/// Checks the conditions of a spec, so that a table is not created that refuses every batch.
///
/// Columns that the spec does not declare may come with the events, unless it declares all of a flat
/// source: then an unknown name is refused like in every other field (R-CL1).
///
/// # Errors
/// `INVALID_EXPRESSION` or `UNKNOWN_COLUMN`, naming the table and the field.
pub fn check_conditions(spec: &TableSpec) -> Result<()> {
    let declared = spec
        .schema
        .iter()
        .flatten()
        .map(|column| Ok(Field::new(&column.name, column.data_type()?, true)))
        .collect::<Result<Vec<_>>>()?;
    let is_complete = spec.schema.is_some()
        && spec.source.format == "flat"
        && spec.source.metadata_columns.is_empty();
    let schema = Schema::new(declared);
    let conditions = [
        ("apply_as_deletes", &spec.apply_as_deletes),
        ("apply_as_truncates", &spec.apply_as_truncates),
    ];
    for (field, sql) in conditions {
        let Some(sql) = sql else { continue };
        match Compiled::condition(sql, &schema) {
            Ok(_) => {}
            Err(error) if error.code() == Code::UnknownColumn && !is_complete => {}
            Err(error) => return Err(error.context(format!("table {}: {field}", spec.name))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Option<Code> {
        let schema =
            "schema: [{name: id, type: long}, {name: seq, type: long}, {name: op, type: string}]";
        let text = format!("name: t\nkeys: [id]\nsequence_by: seq\n{schema}\n{text}\n");
        check_conditions(&TableSpec::from_yaml(&text).unwrap())
            .err()
            .map(|error| error.code())
    }

    #[test]
    fn conditions_are_checked_before_the_first_event() {
        assert_eq!(checked("apply_as_deletes: \"op = 'D'\""), None);
        assert_eq!(
            checked("apply_as_deletes: \"opp = 'D'\""),
            Some(Code::UnknownColumn)
        );
        assert_eq!(
            checked("apply_as_deletes: \"op =\""),
            Some(Code::InvalidExpression)
        );
        assert_eq!(
            checked("apply_as_truncates: \"id + 1\""),
            Some(Code::InvalidExpression)
        );
        assert_eq!(
            checked("apply_as_truncates: \"random() > 0.5\""),
            Some(Code::InvalidExpression)
        );
    }

    #[test]
    fn columns_that_come_with_the_events_are_waited_for() {
        let other = "source: {format: debezium}\napply_as_deletes: \"later = 'D'\"";
        assert_eq!(checked(other), None);
        let broken = "source: {format: debezium}\napply_as_deletes: \"later = \"";
        assert_eq!(checked(broken), Some(Code::InvalidExpression));
    }
}

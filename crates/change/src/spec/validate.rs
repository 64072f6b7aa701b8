//! The checks of a spec that need no data.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;

use super::{Buckets, DeleteMode, IgnoreNull, OnTruncate, ScdType, TableMode, TableSpec};
use crate::{Code, Error, HIDDEN_PREFIX, Result, types};

/// Names that the feed and history give to columns of their own (R-CL2).
pub const RESERVED: [&str; 5] = [
    "__START_AT",
    "__END_AT",
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
];

/// Pseudo-columns that every source fills where it can (R-T5).
pub const PSEUDO_COLUMNS: [&str; 4] = [
    "_source_file",
    "_source_row",
    "_source_partition",
    "_source_offset",
];

/// Most buckets of a table.
const BUCKETS_MAX: u32 = 4096;

impl TableSpec {
    /// Checks the spec against the rules that need no data.
    ///
    /// # Errors
    /// The code of the first rule that it breaks.
    pub fn validate(&self) -> Result<()> {
        self.check_name()?;
        self.check_keys()?;
        self.check_columns()?;
        self.check_modes()?;
        self.check_sequence()?;
        self.check_renames()?;
        self.check_update_list()?;
        self.check_physical()
    }

    /// Whether the format derives a sequence from the source position (R-T6).
    #[must_use]
    pub fn has_derived_sequence(&self) -> bool {
        self.source.format != "flat"
    }

    fn invalid(&self, message: &str) -> Error {
        Error::new(Code::InvalidSpec, format!("table {}: {message}", self.name))
    }

    fn check_name(&self) -> Result<()> {
        let valid = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if self.name.len() <= 255 && self.name.split('.').all(valid) {
            return Ok(());
        }
        Err(self.invalid("a name has letters, digits and _, with dots for namespaces"))
    }

    fn check_keys(&self) -> Result<()> {
        if self.mode == TableMode::Append {
            return if self.keys.is_empty() {
                Ok(())
            } else {
                Err(self.invalid("mode append has no keys"))
            };
        }
        if self.keys.is_empty() {
            let message = format!("table {}: keys are empty", self.name);
            return Err(Error::new(Code::EmptyKeys, message)
                .with_hint("name the business key in keys, or say mode: append"));
        }
        if self.keys.iter().collect::<BTreeSet<_>>().len() < self.keys.len() {
            return Err(self.invalid("a key column is named twice"));
        }
        Ok(())
    }

    fn check_columns(&self) -> Result<()> {
        if self.column_list.is_some() && self.except_column_list.is_some() {
            let message = format!(
                "table {}: column_list and except_column_list are both given",
                self.name
            );
            return Err(Error::new(Code::ColumnsAndExcept, message));
        }
        let Some(columns) = &self.schema else {
            return self.check_selection_of_keys();
        };
        let mut seen = BTreeSet::new();
        for column in columns {
            self.check_not_reserved(&column.name)?;
            let data_type = column.data_type()?;
            if !seen.insert(column.name.to_lowercase()) {
                return Err(self.invalid(&format!("column {} is declared twice", column.name)));
            }
            if column.scale.is_some() && !matches!(data_type, DataType::Decimal128(..)) {
                return Err(self.invalid(&format!("column {}: scale is for decimals", column.name)));
            }
        }
        self.check_selection_of_keys()?;
        self.check_declared_names(&columns.iter().map(|c| c.name.as_str()).collect())
    }

    fn check_not_reserved(&self, name: &str) -> Result<()> {
        let reserved = RESERVED.contains(&name)
            || name.to_ascii_lowercase().starts_with(HIDDEN_PREFIX)
            || (self.is_soft_delete() && (name == "is_deleted" || name == "deleted_at"));
        if !reserved {
            return Ok(());
        }
        let message = format!("table {}: column name {name} is reserved", self.name);
        Err(Error::new(Code::ReservedColumn, message).with_hint("rename it under source.columns"))
    }

    /// Key columns must survive the column selection (R-K1).
    fn check_selection_of_keys(&self) -> Result<()> {
        let dropped = self.keys.iter().find(|key| {
            self.column_list
                .as_ref()
                .is_some_and(|list| !list.contains(key))
                || self
                    .except_column_list
                    .as_ref()
                    .is_some_and(|list| list.contains(key))
        });
        match dropped {
            None => Ok(()),
            Some(key) => {
                let message = format!("table {}: key column {key} is not stored", self.name);
                Err(Error::new(Code::KeyNotInColumns, message))
            }
        }
    }

    fn check_declared_names(&self, declared: &BTreeSet<&str>) -> Result<()> {
        let ignored = match &self.ignore_null_updates {
            IgnoreNull::Switch(_) => &[][..],
            IgnoreNull::Columns(names) | IgnoreNull::Except { except: names } => names,
        };
        let named = [
            &self.column_list,
            &self.except_column_list,
            &self.track_history_column_list,
            &self.track_history_except_column_list,
        ];
        let lists = named.into_iter().flatten().flatten();
        let single = self.columns_to_update.iter().chain(&self.event_time);
        let all = lists
            .chain(ignored)
            .chain(&self.keys)
            .chain(single)
            .chain(&self.partition_by);
        for name in all {
            if !declared.contains(name.as_str()) && !self.is_declared_elsewhere(name) {
                return Err(self.unknown_column(name, declared));
            }
        }
        for name in self.sequence_by.iter().flat_map(|by| by.names()) {
            let pseudo = PSEUDO_COLUMNS.contains(&name.as_str());
            if !pseudo && !declared.contains(name.as_str()) && !self.is_declared_elsewhere(name) {
                return Err(self.unknown_column(name, declared));
            }
        }
        Ok(())
    }

    /// Self-describing sources may bring columns that the spec does not declare.
    fn is_declared_elsewhere(&self, name: &str) -> bool {
        self.source.format != "flat" || self.source.metadata_columns.values().any(|n| n == name)
    }

    fn unknown_column(&self, name: &str, declared: &BTreeSet<&str>) -> Error {
        let message = format!(
            "table {}: column {name} is not in the source schema",
            self.name
        );
        let near = declared
            .iter()
            .map(|d| (strsim::damerau_levenshtein(name, d), *d))
            .min();
        let error = Error::new(Code::UnknownColumn, message);
        match near {
            Some((distance, near)) if distance <= 3 => {
                error.with_hint(format!("did you mean {near:?}?"))
            }
            _ => error,
        }
    }

    fn check_modes(&self) -> Result<()> {
        let scd2 = self.stored_as_scd_type == ScdType::Two;
        let tracks = self.track_history_column_list.is_some()
            || self.track_history_except_column_list.is_some();
        if tracks && !scd2 {
            let message = format!(
                "table {}: history tracking needs stored_as_scd_type: 2",
                self.name
            );
            return Err(Error::new(Code::TrackHistoryRequiresScd2, message));
        }
        if self.apply_as_truncates.is_some() && self.stored_as_scd_type != ScdType::One {
            let message = format!(
                "table {}: apply_as_truncates needs stored_as_scd_type: 1",
                self.name
            );
            return Err(Error::new(Code::TruncateRequiresScd1, message));
        }
        if self.delete_mode == DeleteMode::Soft && self.stored_as_scd_type != ScdType::One {
            return Err(self.invalid("delete_mode: soft needs stored_as_scd_type: 1"));
        }
        if matches!(&self.ignore_null_updates, IgnoreNull::Columns(names) if names.is_empty()) {
            return Err(self.invalid("ignore_null_updates names no column"));
        }
        if self.mode == TableMode::Append {
            self.check_append()?;
        }
        if self.columns_to_update.is_some() && !self.ignore_null_updates.is_off() {
            return Err(
                self.invalid("columns_to_update and ignore_null_updates exclude each other")
            );
        }
        Ok(())
    }

    /// An append table has no row that anything could change (R-K7).
    fn check_append(&self) -> Result<()> {
        let excluded = [
            (
                "stored_as_scd_type",
                self.stored_as_scd_type != ScdType::One,
            ),
            ("delete_mode: soft", self.is_soft_delete()),
            ("apply_as_truncates", self.apply_as_truncates.is_some()),
            (
                "on_truncate: apply",
                self.on_truncate == Some(OnTruncate::Apply),
            ),
            ("ignore_null_updates", !self.ignore_null_updates.is_off()),
            ("columns_to_update", self.columns_to_update.is_some()),
            (
                "tombstone_retention",
                self.tombstone_retention.ms().is_some(),
            ),
        ];
        match excluded.iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((what, _)) => Err(self.invalid(&format!(
                "mode append only adds rows, {what} has nothing to do there"
            ))),
        }
    }

    fn check_sequence(&self) -> Result<()> {
        let needed = self.mode == TableMode::Cdc && !self.has_derived_sequence();
        match &self.sequence_by {
            None if needed => {
                let message = format!("table {}: sequence_by is missing", self.name);
                Err(Error::new(Code::MissingSequenceBy, message)
                    .with_hint("name the column that orders the changes of a key"))
            }
            Some(by) if by.names().is_empty() => Err(self.invalid("sequence_by names no column")),
            _ => Ok(()),
        }?;
        for column in self.schema.iter().flatten() {
            let named = self
                .sequence_by
                .iter()
                .flat_map(|by| by.names())
                .any(|n| *n == column.name);
            if (named || self.keys.contains(&column.name))
                && !types::is_orderable(&column.data_type()?)
            {
                return Err(self.invalid(&format!("column {} has no order", column.name)));
            }
        }
        Ok(())
    }

    fn check_physical(&self) -> Result<()> {
        if let Buckets::Count(count) = self.buckets
            && (!count.is_power_of_two() || count > BUCKETS_MAX)
        {
            return Err(self.invalid("buckets is a power of two of at most 4096"));
        }
        let partitions: BTreeSet<_> = self.partition_by.iter().collect();
        if partitions.len() < self.partition_by.len() {
            return Err(self.invalid("a partition column is named twice"));
        }
        for column in self.schema.iter().flatten() {
            if partitions.contains(&column.name) && !can_partition(&column.data_type()?) {
                let what = format!(
                    "column {} cannot partition: its type has no text",
                    column.name
                );
                return Err(self.invalid(&what));
            }
        }
        Ok(())
    }

    /// Two source columns under one name would be one column with the values of either.
    fn check_renames(&self) -> Result<()> {
        let renames = &self.source.columns;
        let mut targets = BTreeSet::new();
        match renames.values().find(|target| !targets.insert(*target)) {
            None => Ok(()),
            Some(target) => Err(self.invalid(&format!(
                "source.columns gives two columns the name {target}"
            ))),
        }
    }

    /// The column of R-N6 lists names.
    fn check_update_list(&self) -> Result<()> {
        let Some(name) = &self.columns_to_update else {
            return Ok(());
        };
        let declared = self.schema.iter().flatten();
        let Some(column) = declared.into_iter().find(|column| column.name == *name) else {
            return Ok(());
        };
        match column.data_type()? {
            DataType::List(item) if *item.data_type() == DataType::Utf8 => Ok(()),
            _ => Err(self.invalid(&format!(
                "columns_to_update: column {name} is declared as {}, it must be array<string>",
                column.type_name
            ))),
        }
    }
}

/// Whether values of a type can name a partition (Delta protocol: "Partition Value Serialization").
fn can_partition(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::Binary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hidden;
    use crate::spec::ResolvedSpec;

    fn append(more: &str) -> Result<TableSpec> {
        TableSpec::from_yaml(&format!(
            "name: t\nmode: append\n{more}\nschema:\n  - {{name: v, type: string}}\n"
        ))
    }

    #[test]
    fn an_append_table_is_known_by_a_hidden_column_r_k7() {
        let spec = append("partition_by: [v]\non_truncate: ignore").unwrap();
        assert_eq!(spec.order_columns(), [hidden::POSITION]);
        assert_eq!(append("").unwrap().truncate_policy(), OnTruncate::Fail);
        let layout = ResolvedSpec::declared(spec).layout().unwrap();
        let keys: Vec<&str> = layout.key_columns().map(|key| key.name.as_str()).collect();
        assert_eq!(keys, [hidden::POSITION]);
        assert_eq!(layout.table_schema().fields().len(), 1);
        assert!(
            layout
                .file_schema()
                .column_with_name(hidden::POSITION)
                .is_some()
        );
    }

    #[test]
    fn an_append_table_has_no_rule_for_rows_that_change_r_k7() {
        for field in [
            "keys: [v]",
            "stored_as_scd_type: 2",
            "stored_as_scd_type: 0",
            "delete_mode: soft",
            "apply_as_truncates: v = 'T'",
            "on_truncate: apply",
            "ignore_null_updates: true",
            "columns_to_update: v",
            "tombstone_retention: 7d",
        ] {
            let code = append(field).map_err(|error| error.code()).unwrap_err();
            assert_eq!(code, Code::InvalidSpec, "{field}");
        }
        let keyless = TableSpec::from_yaml("name: t\nsequence_by: v\n").unwrap_err();
        assert_eq!(keyless.code(), Code::EmptyKeys);
    }

    fn code_of(more: &str) -> Option<Code> {
        let text = format!(
            "name: t\nkeys: [id]\nsequence_by: seq\n{more}\nschema:\n  - {{name: id, type: long}}\n  - {{name: seq, type: long}}\n  - {{name: tag, type: string}}\n  - {{name: tags, type: array<string>}}\n  - {{name: raw, type: binary}}\n"
        );
        TableSpec::from_yaml(&text).err().map(|error| error.code())
    }

    #[test]
    fn the_list_of_updated_columns_is_an_array_of_names_r_n6() {
        assert_eq!(code_of("columns_to_update: tags"), None);
        assert_eq!(code_of("columns_to_update: tag"), Some(Code::InvalidSpec));
        assert_eq!(code_of("columns_to_update: raw"), Some(Code::InvalidSpec));
    }

    #[test]
    fn two_columns_are_never_renamed_to_one() {
        assert_eq!(code_of("source: {columns: {a: tag, b: raw}}"), None);
        let twice = code_of("source: {columns: {a: tag, b: tag}}");
        assert_eq!(twice, Some(Code::InvalidSpec));
    }

    #[test]
    fn only_types_with_a_text_partition() {
        assert_eq!(code_of("partition_by: [tag]"), None);
        assert_eq!(code_of("partition_by: [raw]"), Some(Code::InvalidSpec));
        assert_eq!(code_of("partition_by: [tags]"), Some(Code::InvalidSpec));
    }
}

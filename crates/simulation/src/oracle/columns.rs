//! What the columns of a scenario are: keys, sequence, stored columns and their leaves (R-N2).

use arrow::datatypes::DataType;
use tidegate_change::spec::OneOrMany;
use tidegate_change::{Code, types};

use crate::scenario::{Condition, ScenarioSpec};
use crate::value::{self, Value};

/// A source column.
#[derive(Clone, Debug)]
pub(crate) struct SourceColumn {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    /// Whether the table spec declares it; others come by schema evolution.
    pub(crate) declared: bool,
}

/// Part of a stored column that has an author of its own.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// Position among the source columns.
    pub(crate) source: usize,
    /// Struct members from the column down.
    pub(crate) path: Vec<usize>,
    /// Whether its NULLs are not authored.
    pub(crate) ignore_null: bool,
}

/// A condition, ready to test.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) source: usize,
    pub(crate) values: Vec<Value>,
}

/// The columns of a scenario by role.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) source: Vec<SourceColumn>,
    pub(crate) keys: Vec<usize>,
    pub(crate) sequence: Vec<usize>,
    pub(crate) sequence_is_struct: bool,
    /// Stored columns in table order.
    pub(crate) stored: Vec<usize>,
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) delete_when: Option<Test>,
    pub(crate) truncate_when: Option<Test>,
    pub(crate) columns_to_update: Option<usize>,
}

impl Columns {
    /// Resolves a spec.
    pub(crate) fn new(spec: &ScenarioSpec) -> Result<Self, Code> {
        check(spec)?;
        let source = source_columns(spec)?;
        let find = |name: &String| {
            source
                .iter()
                .position(|c| c.name == *name)
                .ok_or(Code::UnknownColumn)
        };
        for name in spec.columns.iter().chain(&spec.except).flatten() {
            find(name)?;
        }
        let stored: Vec<usize> = (0..source.len())
            .filter(|i| is_stored(spec, &source[*i].name))
            .collect();
        let keys = spec.keys.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        if keys.iter().any(|key| !stored.contains(key)) {
            return Err(Code::KeyNotInColumns);
        }
        let sequence_names = spec.sequence_by.as_ref().map_or(&[][..], OneOrMany::names);
        if sequence_names.is_empty() && !spec.insert_only && !spec.append {
            return Err(Code::MissingSequenceBy);
        }
        let sequence = sequence_names
            .iter()
            .map(find)
            .collect::<Result<Vec<_>, _>>()?;
        let mut leaves = Vec::new();
        for position in stored.iter().filter(|p| !keys.contains(p)) {
            let column = &source[*position];
            let ignore_null = spec.ignore_null_updates.covers(&column.name);
            collect_leaves(
                *position,
                &column.data_type,
                ignore_null,
                &mut Vec::new(),
                &mut leaves,
            );
        }
        let test = |when: &Option<Condition>| -> Result<Option<Test>, Code> {
            when.as_ref()
                .map(|when| ready_test(when, find(&when.col)?, &source))
                .transpose()
        };
        Ok(Self {
            keys,
            sequence,
            sequence_is_struct: matches!(spec.sequence_by, Some(OneOrMany::Many(_))),
            stored,
            leaves,
            delete_when: test(&spec.delete_when)?,
            truncate_when: test(&spec.truncate_when)?,
            columns_to_update: spec.columns_to_update.as_ref().map(find).transpose()?,
            source,
        })
    }

    /// Names and types of the visible columns, in table order.
    pub(crate) fn visible(&self, soft_delete: bool) -> Vec<(String, DataType)> {
        let mut columns: Vec<_> = self
            .stored
            .iter()
            .map(|p| {
                (
                    self.source[*p].name.clone(),
                    self.source[*p].data_type.clone(),
                )
            })
            .collect();
        if soft_delete {
            columns.push(("is_deleted".into(), DataType::Boolean));
            columns.push(("deleted_at".into(), self.sequence_type()));
        }
        columns
    }

    /// Type of the sequence; `long` where there is none.
    pub(crate) fn sequence_type(&self) -> DataType {
        let member = |p: &usize| self.source[*p].data_type.clone();
        if self.sequence_is_struct {
            let fields: Vec<_> = self
                .sequence
                .iter()
                .map(|p| arrow::datatypes::Field::new(&self.source[*p].name, member(p), true))
                .collect();
            return DataType::Struct(fields.into());
        }
        self.sequence.first().map_or(DataType::Int64, member)
    }
}

/// What a spec may not say, whatever its columns are.
fn check(spec: &ScenarioSpec) -> Result<(), Code> {
    let changes_rows = spec.truncate_when.is_some() || spec.soft_delete || spec.scd != 1;
    if spec.append && (changes_rows || !spec.keys.is_empty()) {
        return Err(Code::InvalidSpec);
    }
    if spec.keys.is_empty() && !spec.append {
        return Err(Code::EmptyKeys);
    }
    if spec.columns.is_some() && spec.except.is_some() {
        return Err(Code::ColumnsAndExcept);
    }
    if spec.truncate_when.is_some() && spec.scd != 1 {
        return Err(Code::TruncateRequiresScd1);
    }
    Ok(())
}

fn source_columns(spec: &ScenarioSpec) -> Result<Vec<SourceColumn>, Code> {
    let declared = spec.declared_count();
    spec.source_columns
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let reserved = tidegate_change::spec::RESERVED.contains(&name.as_str());
            if reserved || name.starts_with("__tidegate_") {
                return Err(Code::ReservedColumn);
            }
            let type_name = spec.types.get(name).ok_or(Code::InvalidSpec)?;
            let data_type = types::parse_type(type_name).map_err(|_| Code::InvalidSpec)?;
            Ok(SourceColumn {
                name: name.clone(),
                data_type,
                declared: i < declared,
            })
        })
        .collect()
}

fn is_stored(spec: &ScenarioSpec, name: &String) -> bool {
    match (&spec.columns, &spec.except) {
        (Some(list), _) => list.contains(name),
        (None, Some(except)) => !except.contains(name),
        (None, None) => spec.columns_to_update.as_ref() != Some(name),
    }
}

/// Structs under `ignore_null_updates` fall into their members, everything else is one leaf.
fn collect_leaves(
    source: usize,
    data_type: &DataType,
    ignore_null: bool,
    path: &mut Vec<usize>,
    leaves: &mut Vec<Leaf>,
) {
    match data_type {
        DataType::Struct(fields) if ignore_null => {
            for (i, field) in fields.iter().enumerate() {
                path.push(i);
                collect_leaves(source, field.data_type(), ignore_null, path, leaves);
                path.pop();
            }
        }
        _ => leaves.push(Leaf {
            source,
            path: path.clone(),
            ignore_null,
        }),
    }
}

fn ready_test(when: &Condition, source: usize, columns: &[SourceColumn]) -> Result<Test, Code> {
    let data_type = &columns[source].data_type;
    let values = when.values().into_iter();
    let values =
        values.map(|json| value::from_json(data_type, json).ok_or(Code::InvalidExpression));
    Ok(Test {
        source,
        values: values.collect::<Result<_, _>>()?,
    })
}

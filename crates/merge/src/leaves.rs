//! The leaves of a table: the smallest parts of a row that have an author of their own (R-T3, R-N2).
//!
//! A payload column is one leaf, except a struct under `ignore_null_updates`, whose fields are leaves of
//! their own, recursively; a struct with only NULL leaves reads NULL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StructArray, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Fields};
use tidegate_change::spec::layout::TableColumn;

use crate::{Error, MergeRules, Result};

/// One leaf.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// Position of its payload column.
    pub(crate) column: usize,
    /// Positions of the nested fields that lead to it; empty for a whole column.
    pub(crate) steps: Vec<usize>,
    /// Its name in `LEAVES`: column and fields joined by dots; dots and backslashes in names are escaped.
    pub(crate) path: String,
    pub(crate) data_type: DataType,
    /// Whether a NULL is not authored (R-N2).
    pub(crate) ignore_null: bool,
    /// First schema number that has it (R-E1).
    pub(crate) since: u32,
}

/// The leaves of a table, column by column in table order.
#[derive(Clone, Debug)]
pub(crate) struct Leaves(Vec<Leaf>);

impl Leaves {
    pub(crate) fn new(payload: &[TableColumn]) -> Self {
        let mut leaves = Vec::new();
        for (column, table_column) in payload.iter().enumerate() {
            let leaf = Leaf {
                column,
                steps: Vec::new(),
                path: escaped(&table_column.name),
                data_type: table_column.data_type.clone(),
                ignore_null: MergeRules::ignores_null(table_column),
                since: table_column.since,
            };
            push_leaves(leaf, &mut leaves);
        }
        Self(leaves)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Leaf> {
        self.0.iter()
    }

    /// Position of the leaf with that path.
    pub(crate) fn position(&self, path: &str) -> Option<usize> {
        self.0.iter().position(|leaf| leaf.path == path)
    }

    /// Puts the leaves of one payload column together again; `parts` yields them in order.
    pub(crate) fn assemble(
        &self,
        column: usize,
        data_type: &DataType,
        parts: &[ArrayRef],
    ) -> Result<ArrayRef> {
        let own = self
            .0
            .iter()
            .zip(parts)
            .filter(|(leaf, _)| leaf.column == column);
        let mut own: Vec<(&[usize], &ArrayRef)> = own
            .map(|(leaf, part)| (leaf.steps.as_slice(), part))
            .collect();
        own.reverse();
        build(data_type, 0, &mut own)
    }
}

fn escaped(name: &str) -> String {
    if name.contains(['.', '\\']) {
        name.replace('\\', "\\\\").replace('.', "\\.")
    } else {
        name.to_owned()
    }
}

fn push_leaves(leaf: Leaf, leaves: &mut Vec<Leaf>) {
    let DataType::Struct(fields) = leaf.data_type.clone() else {
        leaves.push(leaf);
        return;
    };
    if !leaf.ignore_null || fields.is_empty() {
        leaves.push(leaf);
        return;
    }
    for (step, field) in fields.iter().enumerate() {
        let mut steps = leaf.steps.clone();
        steps.push(step);
        let path = format!("{}.{}", leaf.path, escaped(field.name()));
        let data_type = field.data_type().clone();
        push_leaves(
            Leaf {
                steps,
                path,
                data_type,
                ..leaf.clone()
            },
            leaves,
        );
    }
}

/// Builds the value at `depth` from the leaves at the end of `own`, which are in reverse order.
fn build(
    data_type: &DataType,
    depth: usize,
    own: &mut Vec<(&[usize], &ArrayRef)>,
) -> Result<ArrayRef> {
    let missing = || Error::internal("a leaf of a payload column is missing");
    match (own.last(), data_type) {
        (Some((steps, _)), DataType::Struct(fields)) if steps.len() > depth => {
            build_struct(fields, depth, own)
        }
        (Some((_, array)), _) => {
            let array = Arc::clone(array);
            own.pop();
            Ok(array)
        }
        (None, _) => Err(missing()),
    }
}

fn build_struct(
    fields: &Fields,
    depth: usize,
    own: &mut Vec<(&[usize], &ArrayRef)>,
) -> Result<ArrayRef> {
    let columns = fields
        .iter()
        .map(|field| build(field.data_type(), depth + 1, own))
        .collect::<Result<Vec<_>>>()?;
    let mut valid: Option<BooleanBuffer> = None;
    for column in &columns {
        let own_valid = match column.logical_nulls() {
            Some(nulls) => nulls.inner().clone(),
            None => BooleanBuffer::new_set(column.len()),
        };
        valid = Some(match valid {
            Some(valid) => &valid | &own_valid,
            None => own_valid,
        });
    }
    let built = StructArray::try_new(fields.clone(), columns, valid.map(NullBuffer::new))
        .map_err(|e| Error::internal("nested leaves do not fit their column").with_source(e))?;
    Ok(Arc::new(built))
}

impl Leaf {
    /// The leaf's values out of its column's; NULL wherever a struct around it is NULL.
    pub(crate) fn values(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let mut array = Arc::clone(column);
        for step in &self.steps {
            let parent = array
                .as_struct_opt()
                .ok_or_else(|| Error::internal("a nested leaf's column is no struct"))?;
            let child = parent
                .columns()
                .get(*step)
                .ok_or_else(|| Error::internal("a nested leaf's field is missing"))?;
            array = masked(child, parent.nulls())?;
        }
        Ok(array)
    }

    /// As many NULLs of the leaf's type.
    pub(crate) fn nulls(&self, len: usize) -> ArrayRef {
        new_null_array(&self.data_type, len)
    }
}

/// The array with more NULLs.
pub(crate) fn masked(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<ArrayRef> {
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else {
        return Ok(Arc::clone(array));
    };
    let valid = arrow::array::BooleanArray::new(!nulls.inner(), None);
    arrow::compute::nullif(array, &valid)
        .map_err(|e| Error::internal("values cannot be masked").with_source(e))
}

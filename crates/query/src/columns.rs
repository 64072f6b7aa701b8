//! Columns chosen by name.

use arrow::datatypes::Schema;
use tidegate_change::{Code, Error, Result};

/// The positions of named columns: by exact name, else without regard to case where one column matches.
pub(crate) fn positions(schema: &Schema, names: &[String]) -> Result<Vec<usize>> {
    let mut positions = Vec::with_capacity(names.len());
    for name in names {
        let position = position(schema, name)?;
        if positions.contains(&position) {
            let message = format!("column {name} is asked for twice");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        positions.push(position);
    }
    Ok(positions)
}

fn position(schema: &Schema, name: &str) -> Result<usize> {
    let fields = schema.fields();
    if let Some(position) = fields.iter().position(|field| field.name() == name) {
        return Ok(position);
    }
    let lower = name.to_lowercase();
    let mut alike = fields
        .iter()
        .enumerate()
        .filter(|(_, field)| field.name().to_lowercase() == lower);
    if let (Some((position, _)), None) = (alike.next(), alike.next()) {
        return Ok(position);
    }
    let error = Error::new(
        Code::UnknownColumn,
        format!("column {name} is not in the table"),
    );
    let nearest = fields
        .iter()
        .map(|field| {
            (
                strsim::damerau_levenshtein(&field.name().to_lowercase(), &lower),
                field,
            )
        })
        .filter(|(distance, field)| *distance <= field.name().chars().count().div_ceil(3))
        .min_by_key(|(distance, _)| *distance);
    Err(match nearest {
        Some((_, field)) => error.with_hint(format!("did you mean {:?}?", field.name())),
        None => {
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            error.with_hint(format!("the columns are {}", names.join(", ")))
        }
    })
}

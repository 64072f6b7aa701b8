//! CSV as a database dumps it: an empty unquoted cell is NULL, `""` the empty string.

use anyhow::{Result, ensure};

/// A cell; None is NULL.
pub type Cell = Option<String>;

/// Parses a dump into its header and its rows.
///
/// # Errors
/// When a row has another number of cells than the header.
pub fn parse(text: &str) -> Result<(Vec<String>, Vec<Vec<Cell>>)> {
    let mut records = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (record, after) = next_record(rest);
        records.push(record);
        rest = after;
    }
    ensure!(!records.is_empty(), "a dump without header");
    let header: Vec<String> = records
        .remove(0)
        .into_iter()
        .map(Option::unwrap_or_default)
        .collect();
    for (number, record) in records.iter().enumerate() {
        ensure!(
            record.len() == header.len(),
            "row {} has {} cells",
            number + 1,
            record.len()
        );
    }
    Ok((header, records))
}

fn next_record(text: &str) -> (Vec<Cell>, &str) {
    let mut cells = Vec::new();
    let mut rest = text;
    loop {
        let (cell, after) = next_cell(rest);
        cells.push(cell);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                let after = after.strip_prefix('\r').unwrap_or(after);
                return (cells, after.strip_prefix('\n').unwrap_or(after));
            }
        }
    }
}

fn next_cell(text: &str) -> (Cell, &str) {
    let Some(mut rest) = text.strip_prefix('"') else {
        let (cell, after) = text.split_at(text.find([',', '\n', '\r']).unwrap_or(text.len()));
        return ((!cell.is_empty()).then(|| cell.to_owned()), after);
    };
    let mut cell = String::new();
    while let Some((before, after)) = rest.split_once('"') {
        cell.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                cell.push('"');
                rest = more;
            }
            None => return (Some(cell), after),
        }
    }
    cell.push_str(rest);
    (Some(cell), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_the_empty_string_differ() {
        let (header, rows) = parse("a,b\n,\"\"\n\"x\"\"y\",\"l1\nl2\"\n").unwrap();
        assert_eq!(header, ["a", "b"]);
        assert_eq!(rows[0], [None, Some(String::new())]);
        assert_eq!(
            rows[1],
            [Some("x\"y".to_owned()), Some("l1\nl2".to_owned())]
        );
    }
}

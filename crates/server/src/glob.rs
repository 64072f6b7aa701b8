//! Patterns with `*`, `?` and `**` over local files, for shells that do not expand them.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_change::{Error, Result};

/// Whether the text is a pattern.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// The files that a pattern names, sorted.
pub(crate) fn expand(pattern: &str) -> Result<Vec<PathBuf>> {
    let start = if pattern.starts_with('/') {
        PathBuf::from("/")
    } else {
        PathBuf::new()
    };
    let parts: Vec<_> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let mut found = Vec::new();
    walk(&start, &parts, &mut found)?;
    found.sort();
    found.dedup();
    Ok(found)
}

fn walk(directory: &Path, parts: &[&str], found: &mut Vec<PathBuf>) -> Result<()> {
    let Some((part, rest)) = parts.split_first() else {
        return Ok(());
    };
    if !is_pattern(part) {
        let path = directory.join(part);
        return match rest.is_empty() {
            true if path.is_file() => {
                found.push(path);
                Ok(())
            }
            true => Ok(()),
            false => walk(&path, rest, found),
        };
    }
    if *part == "**" {
        walk(directory, rest, found)?;
    }
    for path in entries(directory)? {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.starts_with('.') || !matches(part.as_bytes(), name.as_bytes()) {
            continue;
        }
        if path.is_dir() {
            let rest = if *part == "**" { parts } else { rest };
            walk(&path, rest, found)?;
        } else if rest.is_empty() && *part != "**" {
            found.push(path);
        }
    }
    Ok(())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let shown = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    if !shown.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(shown).map_err(|e| Error::io(shown.display(), e))? {
        let entry = entry.map_err(|e| Error::io(shown.display(), e))?;
        paths.push(directory.join(entry.file_name()));
    }
    Ok(paths)
}

/// Whether a name matches a pattern of one part.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            (0..=name.len()).any(|n| name.get(n..).is_some_and(|tail| matches(rest, tail)))
        }
        (Some((b'?', rest)), Some((_, tail))) => matches(rest, tail),
        (Some((a, rest)), Some((b, tail))) if a == b => matches(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files_in_order() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("d/e")).unwrap();
        for name in ["b.csv", "a.csv", "c.json", "d/x.csv", "d/e/y.csv"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names = |pattern: &str| -> Vec<String> {
            let all = expand(&format!("{}/{pattern}", dir.path().display())).unwrap();
            let below = all
                .iter()
                .map(|path| path.strip_prefix(dir.path()).unwrap());
            below.map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names("*.csv"), ["a.csv", "b.csv"]);
        assert_eq!(names("?.json"), ["c.json"]);
        assert_eq!(
            names("**/*.csv"),
            ["a.csv", "b.csv", "d/e/y.csv", "d/x.csv"]
        );
        assert_eq!(names("d/*.csv"), ["d/x.csv"]);
    }
}

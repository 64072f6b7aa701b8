//! The shape of the sources: crate edges, lengths, names, and words that do not belong here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tidegate_tests::rust_source::{code_of, functions, test_modules, without_tests};
use tidegate_tests::workspace;

/// Most lines of a source file, of a function, of ARCHITECTURE.md.
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const ARCHITECTURE_LINES_MAX: usize = 400;

/// Names that say nothing of what is inside.
const EMPTY_NAMES: [&str; 8] = [
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "misc",
    "shared",
    "types_all",
];

/// Ends of type names that say nothing of what the type is.
const EMPTY_ENDS: [&str; 7] = [
    "Manager", "Helper", "Util", "Utils", "Base", "Impl", "Wrapper",
];

fn fail_on(problems: &[String]) -> Result<()> {
    ensure!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
    Ok(())
}

/// Rust sources of the crates and of `tests`, with their text.
fn rust_sources() -> Result<Vec<(String, String)>> {
    let mut sources = Vec::new();
    for path in workspace::repository_files()? {
        if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(workspace::root().join(&path))?;
            sources.push((path.to_string_lossy().into_owned(), text));
        }
    }
    ensure!(!sources.is_empty(), "no Rust source found");
    Ok(sources)
}

/// A crate's row in ARCHITECTURE.md.
#[derive(Debug)]
struct CrateRow {
    layer: Option<usize>,
    edges: BTreeSet<String>,
}

/// The table of crates in ARCHITECTURE.md: `| layer | crate | purpose | may depend on |`.
fn crate_rows() -> Result<BTreeMap<String, CrateRow>> {
    let text = std::fs::read_to_string(workspace::root().join("crates/ARCHITECTURE.md"))?;
    let mut rows = BTreeMap::new();
    let mut inside = false;
    for line in text.lines() {
        let cells: Vec<&str> = line
            .trim()
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        match cells.as_slice() {
            ["layer", "crate", "purpose", "may depend on"] => inside = true,
            [layer, name, _, edges] if inside && !layer.starts_with('-') => {
                let edges = edges
                    .split(',')
                    .map(|edge| edge.trim().trim_matches('`').to_owned());
                let edges = edges
                    .filter(|edge| !edge.is_empty() && edge != "-")
                    .collect();
                rows.insert(
                    (*name).to_owned(),
                    CrateRow {
                        layer: layer.parse().ok(),
                        edges,
                    },
                );
            }
            [_, _, _, _] => {}
            _ => inside = false,
        }
    }
    ensure!(!rows.is_empty(), "ARCHITECTURE.md has no table of crates");
    Ok(rows)
}

/// Edges between the crates by `cargo metadata`, without those for tests.
fn crate_edges() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let packages = workspace::cargo_metadata()?
        .get("packages")
        .and_then(Value::as_array);
    let mut edges = BTreeMap::new();
    for package in packages.context("no packages")? {
        let name = package
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let Some(own) = name
            .strip_prefix("tidegate-")
            .filter(|own| !matches!(*own, "tests" | "benches"))
        else {
            continue;
        };
        let dependencies = package
            .get("dependencies")
            .and_then(Value::as_array)
            .context("none")?;
        let product = dependencies
            .iter()
            .filter(|dependency| dependency.get("kind").is_none_or(|kind| kind != "dev"))
            .filter_map(|dependency| dependency.get("name")?.as_str()?.strip_prefix("tidegate-"))
            .map(str::to_owned)
            .collect();
        edges.insert(own.to_owned(), product);
    }
    Ok(edges)
}

/// Dependencies that only generated code names.
const BY_GENERATED_CODE: [(&str, &str); 2] = [("rpc", "prost"), ("rpc", "tonic-prost")];

#[test]
fn every_dependency_is_used() -> Result<()> {
    let mut unused = Vec::new();
    for (own, _) in crate_rows()? {
        let directory = workspace::root().join("crates").join(&own);
        let manifest = std::fs::read_to_string(directory.join("Cargo.toml"))?;
        let (_, rest) = manifest
            .split_once("[dependencies]")
            .context("no dependencies")?;
        let listed = rest.lines().take_while(|line| !line.starts_with('['));
        let names = listed.filter_map(|line| line.split(['.', ' ', '=']).next());
        let sources: String = workspace::repository_files()?
            .iter()
            .filter(|path| path.starts_with(Path::new("crates").join(&own).join("src")))
            .map(|path| std::fs::read_to_string(workspace::root().join(path)))
            .collect::<Result<_, _>>()?;
        for name in names.filter(|name| !name.is_empty()) {
            let word = name.replace('-', "_");
            let is_named = ["::", ";", " as "]
                .iter()
                .any(|end| sources.contains(&format!("{word}{end}")));
            if !is_named && !BY_GENERATED_CODE.contains(&(own.as_str(), name)) {
                unused.push(format!("{own}: {name}"));
            }
        }
    }
    fail_on(&unused)
}

/// An edge to a crate allows edges to what that crate lists.
fn allowed(rows: &BTreeMap<String, CrateRow>, name: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![name.to_owned()];
    while let Some(next) = open.pop() {
        for edge in rows.get(&next).into_iter().flat_map(|row| &row.edges) {
            if reached.insert(edge.clone()) {
                open.push(edge.clone());
            }
        }
    }
    reached
}

#[test]
fn crate_edges_are_those_of_the_architecture() -> Result<()> {
    let (rows, edges) = (crate_rows()?, crate_edges()?);
    let mut problems = Vec::new();
    let (listed, found): (BTreeSet<_>, BTreeSet<_>) =
        (rows.keys().collect(), edges.keys().collect());
    problems.extend(
        listed.symmetric_difference(&found).map(|name| {
            format!("crate {name} is in one of ARCHITECTURE.md and the workspace only")
        }),
    );
    for (name, row) in &rows {
        let Some(layer) = row.layer else { continue };
        let used = edges.get(name).cloned().unwrap_or_default();
        let may = allowed(&rows, name);
        problems.extend(
            used.difference(&may)
                .map(|edge| format!("{name} may not depend on {edge}")),
        );
        problems.extend(
            row.edges
                .difference(&used)
                .map(|edge| format!("{name} does not depend on {edge}")),
        );
        for edge in &used {
            let below = rows
                .get(edge)
                .and_then(|row| row.layer)
                .is_some_and(|below| below < layer);
            if !below {
                problems.push(format!(
                    "the edge from {name} to {edge} does not lead downward"
                ));
            }
        }
    }
    fail_on(&problems)
}

#[test]
fn files_are_short() -> Result<()> {
    let mut lengths = Vec::new();
    let mut problems = Vec::new();
    for (path, text) in rust_sources()? {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            problems.push(format!("{path} has {lines} lines"));
        }
        lengths.push(without_tests(&code_of(&text)).trim_end().lines().count());
    }
    lengths.sort_unstable();
    let at = |share: usize| {
        lengths
            .get((lengths.len() - 1) * share / 100)
            .copied()
            .unwrap_or(0)
    };
    let (median, p90) = (at(50), at(90));
    println!(
        "{} files, without tests: median {median} lines, p90 {p90}",
        lengths.len()
    );
    let architecture = std::fs::read_to_string(workspace::root().join("crates/ARCHITECTURE.md"))?;
    if architecture.lines().count() > ARCHITECTURE_LINES_MAX {
        problems.push("ARCHITECTURE.md is too long".to_owned());
    }
    fail_on(&problems)
}

#[test]
fn functions_are_short() -> Result<()> {
    let mut problems = Vec::new();
    for (path, text) in rust_sources()? {
        for function in functions(&code_of(&text)) {
            if function.lines > FUNCTION_LINES_MAX {
                let (name, line, lines) = (function.name, function.line, function.lines);
                problems.push(format!("{path}:{line}: {name} has {lines} lines"));
            }
        }
    }
    fail_on(&problems)
}

#[test]
fn names_say_what_is_inside() -> Result<()> {
    let mut problems = Vec::new();
    for path in workspace::repository_files()? {
        let named = path
            .iter()
            .filter_map(|part| Path::new(part).file_stem()?.to_str());
        for name in named.filter(|name| EMPTY_NAMES.contains(name)) {
            if path.starts_with("crates") {
                problems.push(format!("{}: the name {name} says nothing", path.display()));
            }
        }
    }
    for (path, text) in rust_sources()? {
        let code = code_of(&text);
        for keyword in ["struct ", "enum ", "trait ", "type "] {
            for (at, _) in code.match_indices(keyword) {
                let name: String = code[at + keyword.len()..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric())
                    .collect();
                if EMPTY_ENDS.iter().any(|end| name.ends_with(end)) {
                    problems.push(format!("{path}: the name {name} says nothing"));
                }
            }
        }
    }
    fail_on(&problems)
}

#[test]
fn product_code_neither_prints_nor_unwraps() -> Result<()> {
    // `cli` owns standard output and standard error.
    let printing = ["println!", "eprintln!", "print!", "eprint!"];
    let panicking = [".unwrap()", "dbg!", "todo!", "unimplemented!", "panic!"];
    let mut problems = Vec::new();
    let sources = rust_sources()?;
    let of_tests: Vec<String> = sources
        .iter()
        .flat_map(|(path, text)| test_modules(path, &code_of(text)))
        .collect();
    for (path, text) in sources {
        let product = path.starts_with("crates/") && path.contains("/src/");
        let stem = path.trim_end_matches(".rs");
        let of_test = |module: &String| stem == module || path.starts_with(&format!("{module}/"));
        let of_tests = stem.ends_with("_tests") || of_tests.iter().any(of_test);
        if !product || of_tests || path.starts_with("crates/simulation/") {
            continue;
        }
        let code = without_tests(&code_of(&text));
        for (number, line) in code.lines().enumerate() {
            let prints =
                !path.starts_with("crates/cli/") && printing.iter().any(|word| is_word(line, word));
            let panics = panicking.iter().any(|word| is_word(line, word));
            if prints || panics {
                problems.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    fail_on(&problems)
}

fn is_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().last();
        word.starts_with('.') || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Words that belong to a machine, to a host of packages, or to unfinished work. They are written here in
/// two halves, so that this file does not hold them.
const FOREIGN_WORDS: [(&str, &str); 14] = [
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    (".cargo/", "registry"),
    ("TO", "DO"),
    ("FIX", "ME"),
    ("<<<<", "<<<"),
    (">>>>", ">>>"),
    ("pypi.", "org"),
    ("repo1.", "maven"),
    ("deb.", "debian"),
    ("crates.", "io/api"),
    ("index.", "crates"),
    ("files.", "pythonhosted"),
];

#[test]
fn no_file_holds_foreign_words() -> Result<()> {
    let mut problems = Vec::new();
    for path in workspace::repository_files()? {
        if path.starts_with("tests/captures") || path.ends_with("Cargo.lock") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(workspace::root().join(&path)) else {
            continue;
        };
        for (first, second) in FOREIGN_WORDS {
            if let Some(at) = text.find(&format!("{first}{second}")) {
                let line = text[..at].matches('\n').count() + 1;
                problems.push(format!("{}:{line}: {first}{second}", path.display()));
            }
        }
    }
    fail_on(&problems)
}

#[test]
fn the_top_level_is_as_fixed() -> Result<()> {
    let known = [
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
        "LICENSE",
        "README.md",
        "crates",
        "proto",
        "deploy",
        "benches",
        "tests",
    ];
    for path in workspace::repository_files()? {
        let first = path
            .iter()
            .next()
            .and_then(|part| part.to_str())
            .context("a path without name")?;
        if !first.starts_with('.') && !known.contains(&first) {
            bail!("{first} does not belong to the top level");
        }
    }
    Ok(())
}

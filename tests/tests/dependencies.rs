//! What the workspace builds on: one version of what must be one, known second versions, free licences.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tidegate_tests::workspace;

/// Crates whose types cross crate borders: a second version would not fit.
const SINGLE: [&str; 11] = [
    "arrow",
    "arrow-array",
    "arrow-schema",
    "parquet",
    "object_store",
    "tonic",
    "prost",
    "rustls",
    "datafusion",
    "tokio",
    "bytes",
];

/// Second versions that the dependencies bring and that no choice of ours avoids, with the reason.
const SEVERAL: [(&str, &str); 18] = [
    (
        "base64",
        "object_store is on 0.22, parquet and arrow on 0.23",
    ),
    (
        "chrono-tz",
        "openraft's display-more is on 0.8, arrow on 0.10",
    ),
    ("cpufeatures", "openraft's quorum-set and blake3 differ"),
    ("foldhash", "follows hashbrown"),
    ("getrandom", "ring, rand and tempfile are on three majors"),
    ("hashbrown", "dashmap, lru and indexmap are on three majors"),
    ("itertools", "datafusion and delta_kernel differ"),
    ("phf", "follows chrono-tz"),
    ("phf_shared", "follows phf"),
    ("prettyplease", "tonic-build and prost-build differ"),
    ("num-bigint", "arrow and parquet differ"),
    ("rand", "object_store and proptest differ"),
    ("rand_core", "follows rand"),
    ("reqwest", "object_store and delta_kernel differ"),
    ("syn", "macros move one by one"),
    ("unicode-width", "protox's miette is on 0.1"),
    ("zstd", "tonic is on 0.14, arrow and parquet on 0.13"),
    ("zstd-safe", "follows zstd"),
];

/// Licences that ask for no more than Apache-2.0 does.
const FREE: [&str; 14] = [
    "Apache-2.0",
    "MIT",
    "MIT-0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    "BSL-1.0",
    "Unlicense",
    "Unicode-3.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
];

fn packages() -> Result<&'static Vec<Value>> {
    workspace::cargo_metadata()?
        .get("packages")
        .and_then(Value::as_array)
        .context("no packages")
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[test]
fn no_second_version_comes_in_unnoticed() -> Result<()> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages()? {
        versions
            .entry(text(package, "name"))
            .or_default()
            .insert(text(package, "version"));
    }
    for name in SINGLE {
        ensure!(
            versions.get(name).is_none_or(|found| found.len() == 1),
            "{name}: {:?}",
            versions[name]
        );
    }
    let found: BTreeSet<&str> = versions
        .iter()
        .filter(|(_, found)| found.len() > 1)
        .map(|(name, _)| *name)
        .collect();
    let known: BTreeSet<&str> = SEVERAL.iter().map(|(name, _)| *name).collect();
    let unknown: Vec<_> = found
        .difference(&known)
        .map(|name| (*name, &versions[name]))
        .collect();
    ensure!(
        unknown.is_empty(),
        "second versions without a reason: {unknown:?}"
    );
    let gone: Vec<_> = known.difference(&found).collect();
    ensure!(
        gone.is_empty(),
        "listed as second versions, but single: {gone:?}"
    );
    Ok(())
}

#[test]
fn every_licence_is_free() -> Result<()> {
    for package in packages()? {
        let licence = text(package, "license");
        ensure!(
            is_free(licence),
            "{}: {licence:?} is not on the list",
            text(package, "name")
        );
    }
    Ok(())
}

#[test]
fn versions_are_written_once() -> Result<()> {
    for package in packages()? {
        if !text(package, "name").starts_with("tidegate-") {
            continue;
        }
        let manifest = std::fs::read_to_string(text(package, "manifest_path"))?;
        let dependencies = manifest
            .split_once("dependencies]")
            .map_or("", |(_, rest)| rest);
        for line in dependencies.lines().filter(|line| line.contains('=')) {
            let inherits = line.contains("workspace = true");
            ensure!(
                inherits,
                "{}: {line}: versions stand in the workspace",
                text(package, "name")
            );
        }
    }
    Ok(())
}

/// Whether an SPDX expression can be met by free licences; `/` is the old form of `OR`.
fn is_free(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let free = alternatives(&tokens, &mut at);
    free && at == tokens.len()
}

fn alternatives(tokens: &[&str], at: &mut usize) -> bool {
    let mut free = conjunction(tokens, at);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        free |= conjunction(tokens, at);
    }
    free
}

fn conjunction(tokens: &[&str], at: &mut usize) -> bool {
    let mut free = licence(tokens, at);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        free &= licence(tokens, at);
    }
    free
}

fn licence(tokens: &[&str], at: &mut usize) -> bool {
    let Some(first) = tokens.get(*at) else {
        return false;
    };
    *at += 1;
    if *first == "(" {
        let free = alternatives(tokens, at);
        *at += 1;
        return free;
    }
    if tokens.get(*at) == Some(&"WITH") {
        let name = format!("{first} WITH {}", tokens.get(*at + 1).unwrap_or(&""));
        *at += 2;
        return FREE.contains(&name.as_str());
    }
    FREE.contains(first)
}

#[test]
fn licence_expressions_are_understood() {
    assert!(is_free("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(is_free("GPL-3.0 OR MIT"));
    assert!(is_free("MIT/Apache-2.0"));
    assert!(!is_free("GPL-3.0 AND MIT"));
    assert!(!is_free(""));
}

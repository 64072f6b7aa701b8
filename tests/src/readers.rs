//! The other readers against Tidegate: all versions and feeds of all tables of a directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use arrow::datatypes::DataType;
use serde_json::Value;
use tidegate_change::TableVersion;
use tidegate_change::spec::{FeedMode, ResolvedSpec};
use tidegate_server::Reader;
use tokio::runtime::Builder;

use crate::embedded::{changes_of, rows_of};
use crate::harness::FeedRequest;
use crate::{kernel, value, workspace};

/// Compares with deltalake, DuckDB and Polars, by `interop/check.py`.
///
/// # Errors
/// What they read otherwise.
pub fn check_python(local: &Path) -> Result<()> {
    let output = Command::new(workspace::python()?)
        .arg(workspace::tests_dir("interop/check.py"))
        .arg(workspace::binary()?)
        .arg(local)
        .output()?;
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let problems = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the readers differ:\n{problems}");
    Ok(())
}

/// Compares with delta_kernel.
///
/// # Errors
/// What it reads otherwise.
pub fn check_kernel(local: &Path) -> Result<()> {
    let mut problems = Vec::new();
    let mut compared = 0;
    let reader = Reader::open(local)?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    for table in runtime.block_on(reader.list())? {
        let name = &table.name;
        let resolved = runtime.block_on(reader.resolved(name))?;
        let types = types_of(&resolved)?;
        let location = Path::new(&table.location);
        for version in 0..=table.version.0 {
            let own = runtime.block_on(rows_of(&reader, name, Some(TableVersion(version))))?;
            let what = format!("{name} version {version}");
            compare(
                &types,
                &what,
                &own,
                kernel::rows(location, version),
                &mut problems,
            );
            compared += 1;
        }
        if resolved.spec.change_data_feed == FeedMode::True {
            let all = FeedRequest::Range {
                from: Some(0),
                to: None,
                allow_out_of_range: false,
            };
            let mut own = runtime.block_on(changes_of(&reader, name, all))?;
            for row in &mut own {
                row.as_object_mut()
                    .context("a change is no object")?
                    .remove("_commit_timestamp");
            }
            let found = kernel::changes(location, table.version.0);
            compare(&types, &format!("{name} feed"), &own, found, &mut problems);
        }
    }
    ensure!(compared > 0, "there is no table to compare");
    if !problems.is_empty() {
        bail!("delta_kernel differs:\n{}", problems.join("\n"));
    }
    Ok(())
}

fn compare(
    types: &BTreeMap<String, DataType>,
    what: &str,
    own: &[Value],
    found: Result<Vec<Value>>,
    problems: &mut Vec<String>,
) {
    let difference = found.and_then(|found| {
        Ok(value::bag_difference(
            &value::bag(types, own)?,
            &value::bag(types, &found)?,
        ))
    });
    match difference {
        Ok(None) => {}
        Ok(Some(difference)) => problems.push(format!("{what}:\n{difference}")),
        Err(error) => problems.push(format!("{what}: {error:#}")),
    }
}

/// Types of all columns that rows and changes of a table have.
fn types_of(resolved: &ResolvedSpec) -> Result<BTreeMap<String, DataType>> {
    let schema = resolved.layout()?.table_schema();
    let mut types: BTreeMap<String, DataType> = schema
        .fields()
        .iter()
        .map(|field| (field.name().clone(), field.data_type().clone()))
        .collect();
    types.insert("_change_type".to_owned(), DataType::Utf8);
    types.insert("_commit_version".to_owned(), DataType::Int64);
    Ok(types)
}

//! Recorded change streams with their source's contents at several moments, and the comparison of a table
//! with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use arrow::datatypes::DataType;
use serde_json::Value;
use tidegate_change::TableSpec;

use crate::csv::{self, Cell};
use crate::difference::{Difference, WHOLE_ROW, shown};
use crate::harness::{EventFile, Harness};
use crate::postgres::{self, Kind};
use crate::workspace;

/// A moment of a capture: the dump, and how many records led to it.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Folder of the dump, which names the moment.
    pub name: &'static str,
    /// Records from the start; None is all.
    pub records: Option<usize>,
}

/// A recorded stream.
#[derive(Clone, Copy, Debug)]
pub struct Capture {
    /// Its name in the expected differences and among the specs.
    pub name: &'static str,
    /// Its folder below `tests/captures`, with the dumps.
    folder: &'static str,
    /// The stream, below the folder.
    events: &'static str,
    /// Folder of the dumps below the folder.
    truth: &'static str,
    /// The moments, in order; the last one is the end.
    pub stages: &'static [Stage],
    /// Whether a table is given the records of its topic alone; else all, of which its spec picks its own.
    by_topic: bool,
}

const fn stage(name: &'static str, records: Option<usize>) -> Stage {
    Stage { name, records }
}

/// Debezium's defaults.
pub const PG_DEFAULT: Capture = Capture {
    name: "pg_default",
    folder: "small-pg",
    events: "pg_default/events.sch.jsonl.zst",
    truth: "truth",
    stages: &[
        stage("0_after_snapshot", Some(65)),
        stage("1_after_dml", Some(291)),
        stage("2_after_ddl", Some(376)),
        stage("3_after_incremental", Some(441)),
        stage("5_final", None),
    ],
    by_topic: false,
};

/// Decimals, times and intervals as text.
pub const PG_STRING: Capture = Capture {
    name: "pg_string",
    folder: "small-pg",
    events: "pg_string/events.sch.jsonl.zst",
    truth: "truth",
    stages: &[
        stage("0_after_snapshot", Some(54)),
        stage("1_after_dml", Some(277)),
        stage("2_after_ddl", Some(359)),
        stage("3_after_incremental", Some(405)),
        stage("5_final", None),
    ],
    by_topic: false,
};

/// Many records without their schema.
pub const LARGE_PG: Capture = Capture {
    name: "large-pg",
    folder: "large-pg",
    events: "events.nosch.jsonl.zst",
    truth: "",
    stages: &[
        stage("truth_mid", Some(191_080)),
        stage("truth_final", None),
    ],
    by_topic: true,
};

/// A table of a capture with its spec, and what its columns are at the source.
#[derive(Clone, Debug)]
pub struct CapturedTable {
    /// The parsed spec.
    pub spec: TableSpec,
    /// The spec as written.
    pub text: String,
    kinds: BTreeMap<String, Kind>,
}

impl Capture {
    fn path(&self, below: &str) -> PathBuf {
        workspace::tests_dir("captures")
            .join(self.folder)
            .join(below)
    }

    fn specs(&self) -> PathBuf {
        workspace::tests_dir("captures/specs").join(self.folder)
    }

    /// The records, one a line.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn lines(&self) -> Result<Vec<String>> {
        let file = std::fs::File::open(self.path(self.events))?;
        let bytes = zstd::decode_all(file)?;
        Ok(String::from_utf8(bytes)?
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// The tables that have a spec. A spec named `<table>.<capture>.yaml` stands for this capture alone,
    /// one named `<table>.<other>.yaml` for another.
    ///
    /// # Errors
    /// When a spec cannot be read.
    pub fn tables(&self) -> Result<Vec<CapturedTable>> {
        let mut paths: BTreeMap<String, PathBuf> = BTreeMap::new();
        for entry in std::fs::read_dir(self.specs())? {
            let path = entry?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .context("no name")?;
            let parts: Vec<&str> = name.split('.').collect();
            match parts.as_slice() {
                [table, "yaml"] => drop(paths.entry((*table).to_owned()).or_insert(path)),
                [table, capture, "yaml"] if *capture == self.name => {
                    paths.insert((*table).to_owned(), path);
                }
                _ => {}
            }
        }
        ensure!(!paths.is_empty(), "no spec for {}", self.name);
        paths.values().map(|path| self.table(path)).collect()
    }

    /// A table without key, whose spec lies beside those of the tables with one.
    ///
    /// # Errors
    /// When the spec cannot be read.
    pub fn appended(&self, table: &str) -> Result<CapturedTable> {
        self.table(&self.specs().join("append").join(format!("{table}.yaml")))
    }

    fn table(&self, path: &Path) -> Result<CapturedTable> {
        let text = std::fs::read_to_string(path)?;
        let spec = TableSpec::from_yaml(&text).with_context(|| format!("{}", path.display()))?;
        let kinds_file = std::fs::read_to_string(self.specs().join("kinds.json"))?;
        let mut all: BTreeMap<String, BTreeMap<String, Kind>> = serde_json::from_str(&kinds_file)?;
        let kinds = all
            .remove(&format!("{}.{}", spec.name, self.name))
            .unwrap_or_default();
        let mut kinds_of_both = all.remove(&spec.name).unwrap_or_default();
        kinds_of_both.extend(kinds);
        Ok(CapturedTable {
            spec,
            text,
            kinds: kinds_of_both,
        })
    }

    /// The spec that replaces a table's after a stage, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn altered_spec(&self, table: &str, after: Stage) -> Result<Option<String>> {
        let path = self
            .specs()
            .join(format!("{table}.after.{}.yaml", after.name));
        if path.try_exists()? {
            Ok(Some(std::fs::read_to_string(path)?))
        } else {
            Ok(None)
        }
    }

    /// The moment at the end.
    #[must_use]
    pub fn last_stage(&self) -> Stage {
        self.stages.last().copied().unwrap_or(stage("", None))
    }

    /// The records that a table is given.
    #[must_use]
    pub fn records_for<'a>(&self, table: &CapturedTable, lines: &'a [String]) -> Vec<&'a str> {
        let topic = format!(
            ".{}",
            table.spec.source.table.as_deref().unwrap_or_default()
        );
        let mut records: Vec<&str> = lines.iter().map(String::as_str).collect();
        if self.by_topic {
            records.retain(|line| topic_of(line).ends_with(&topic));
        }
        records
    }

    /// Creates a table and applies the capture to it, a batch a stage; what differs at each of them.
    ///
    /// # Errors
    /// When Tidegate refuses something or a dump cannot be read.
    pub fn replay(
        &self,
        tidegate: &dyn Harness,
        table: &CapturedTable,
        lines: &[String],
    ) -> Result<Vec<Difference>> {
        let name = &table.spec.name;
        tidegate.create(&table.text)?;
        let mut differences = Vec::new();
        let mut applied = 0;
        for stage in self.stages {
            let until = stage.records.unwrap_or(lines.len());
            let records = self.records_for(table, lines.get(applied..until).context("too short")?);
            applied = until;
            let file = EventFile::json_lines("events.jsonl", records);
            tidegate
                .apply(name, stage.name, &[file])
                .with_context(|| format!("{name}, {}", stage.name))?;
            differences.extend(self.differences(*stage, table, &tidegate.read(name, None)?)?);
            if let Some(spec) = self.altered_spec(name, *stage)? {
                tidegate.alter(name, &spec)?;
            }
        }
        Ok(differences)
    }

    /// Compares a table with the source's dump of a moment. A moment without a dump of the table is one at
    /// which the source did not have it.
    ///
    /// # Errors
    /// When the dump or a row cannot be read.
    pub fn differences(
        &self,
        stage: Stage,
        table: &CapturedTable,
        rows: &[Value],
    ) -> Result<Vec<Difference>> {
        let source = table.by_key(self.dump(stage, table)?)?;
        let found = rows.iter().map(|object| table.row(object));
        let found = table.by_key(found.collect::<Result<_>>()?)?;
        let mut differences = Vec::new();
        let difference = |key: &str, column: &str, source: &str, found: &str| Difference {
            set: self.name.to_owned(),
            stage: stage.name.to_owned(),
            table: table.spec.name.clone(),
            key: key.to_owned(),
            column: column.to_owned(),
            source: shown(source),
            found: shown(found),
        };
        for (key, row) in &source {
            let Some(held) = found.get(key) else {
                differences.push(difference(key, WHOLE_ROW, "a row", "no row"));
                continue;
            };
            for (column, form) in row {
                let in_table = held.get(column).map_or("no column", String::as_str);
                if in_table != form {
                    differences.push(difference(key, column, form, in_table));
                }
            }
        }
        for key in found.keys().filter(|key| !source.contains_key(*key)) {
            differences.push(difference(key, WHOLE_ROW, "no row", "a row"));
        }
        Ok(differences)
    }

    /// Compares a table without key with the source's dump of a moment: the rows that only one of them has,
    /// equal rows as often as they are.
    ///
    /// # Errors
    /// When the dump or a row cannot be read.
    pub fn uncommon_rows(
        &self,
        stage: Stage,
        table: &CapturedTable,
        rows: &[Value],
    ) -> Result<Vec<String>> {
        let mut counts: BTreeMap<Row, i64> = BTreeMap::new();
        for row in self.dump(stage, table)? {
            *counts.entry(row).or_default() += 1;
        }
        for object in rows {
            *counts.entry(table.row(object)?).or_default() -= 1;
        }
        let uncommon = counts.iter().filter(|(_, count)| **count != 0);
        Ok(uncommon
            .map(|(row, count)| match count.is_positive() {
                true => format!("{count} only at the source: {row:?}"),
                false => format!("{} only in the table: {row:?}", -count),
            })
            .collect())
    }

    /// The source's rows at a moment, in canonical form.
    fn dump(&self, stage: Stage, table: &CapturedTable) -> Result<Vec<Row>> {
        let source = table
            .spec
            .source
            .table
            .as_deref()
            .context("source.table is missing")?;
        let name = source.replace(' ', "_");
        let folder = Path::new(self.truth).join(stage.name);
        let plain = self.path(&folder.join(format!("{name}.csv")).to_string_lossy());
        let zipped = plain.with_extension("csv.zst");
        let text = if zipped.try_exists()? {
            String::from_utf8(zstd::decode_all(std::fs::File::open(zipped)?)?)?
        } else if plain.try_exists()? {
            std::fs::read_to_string(plain)?
        } else {
            return Ok(Vec::new());
        };
        let (header, records) = csv::parse(&text)?;
        let columns: Vec<&str> = header.iter().map(|name| table.renamed(name)).collect();
        records
            .iter()
            .map(|record| table.source_row(&columns, record))
            .collect()
    }
}

fn topic_of(line: &str) -> &str {
    let named = line
        .split_once("\"topic\":\"")
        .and_then(|(_, rest)| rest.split_once('"'));
    named.map_or("", |(topic, _)| topic)
}

/// The values of a row in canonical form, by column.
type Row = BTreeMap<String, String>;

/// Rows by canonical key.
type Rows = BTreeMap<String, Row>;

impl CapturedTable {
    fn renamed<'a>(&'a self, source: &'a str) -> &'a str {
        self.spec
            .source
            .columns
            .get(source)
            .map_or(source, String::as_str)
    }

    fn kind(&self, column: &str) -> Kind {
        self.kinds.get(column).copied().unwrap_or_default()
    }

    fn data_type(&self, column: &str) -> Result<DataType> {
        let declared = self
            .spec
            .schema
            .iter()
            .flatten()
            .find(|declared| declared.name == column);
        let declared =
            declared.with_context(|| format!("{} lacks column {column}", self.spec.name))?;
        Ok(declared.data_type()?)
    }

    fn key_of(&self, row: &Row) -> Result<String> {
        let values = self.spec.keys.iter().map(|key| {
            // The dump may be older than a key column, which then has its default.
            row.get(key)
                .cloned()
                .or_else(|| self.default_of(key))
                .with_context(|| format!("no {key}"))
        });
        Ok(values.collect::<Result<Vec<_>>>()?.join(" "))
    }

    fn default_of(&self, column: &str) -> Option<String> {
        let declared = self
            .spec
            .schema
            .iter()
            .flatten()
            .find(|declared| declared.name == column)?;
        declared.default.as_ref().map(ToString::to_string)
    }

    fn source_row(&self, columns: &[&str], record: &[Cell]) -> Result<Row> {
        let mut row = Row::new();
        for (column, cell) in columns.iter().zip(record) {
            let data_type = self.data_type(column)?;
            row.insert(
                (*column).to_owned(),
                postgres::of_source(self.kind(column), &data_type, cell),
            );
        }
        Ok(row)
    }

    /// A row as `read` prints it.
    fn row(&self, object: &Value) -> Result<Row> {
        let mut row = Row::new();
        for (column, printed) in object.as_object().context("a row is no object")? {
            let form = postgres::of_table(self.kind(column), &self.data_type(column)?, printed)
                .with_context(|| format!("{}, column {column}", self.spec.name))?;
            row.insert(column.clone(), form);
        }
        Ok(row)
    }

    fn by_key(&self, rows: Vec<Row>) -> Result<Rows> {
        let mut by_key = Rows::new();
        for row in rows {
            let key = self.key_of(&row)?;
            ensure!(
                by_key.insert(key.clone(), row).is_none(),
                "key {key} has two rows"
            );
        }
        Ok(by_key)
    }
}

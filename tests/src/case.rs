//! Scenario cases of the merge rules: one JSON file a case, discovered on disk.
//!
//! A case becomes a table spec and batches of JSON lines; what comes out is compared as typed bags:
//! the rows at the end, the feed of every batch, refusals, rejects and reads.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use arrow::datatypes::{DataType, Field};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};
use tidegate_change::types::parse_type;

use crate::harness::{Answer, EventFile, FeedRequest, Harness};
use crate::value::{self, Bag};

/// A case as its file says it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its id, by which failures are named.
    pub id: String,
    /// Whether order, batching and duplication must not matter.
    pub order_free: bool,
    spec: Value,
    batches: Vec<Value>,
    reads: Vec<Value>,
    expect: Value,
}

/// All cases of a folder, by id.
///
/// # Errors
/// When a file is no case, or there is none.
pub fn discover(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json") {
            let text = std::fs::read_to_string(&path)?;
            cases.push(Case::parse(&text).with_context(|| format!("{}", path.display()))?);
        }
    }
    ensure!(!cases.is_empty(), "no case in {}", folder.display());
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(cases)
}

impl Case {
    fn parse(text: &str) -> Result<Self> {
        let mut file: Map<String, Value> = serde_json::from_str(text)?;
        let mut field = |name: &str| file.remove(name).with_context(|| format!("no {name}"));
        let id = field("id")?.as_str().context("id is no text")?.to_owned();
        let order_free = field("order_free")?
            .as_bool()
            .context("order_free is no boolean")?;
        let (spec, batches, expect) = (field("spec")?, field("batches")?, field("expect")?);
        let reads = file.remove("reads").unwrap_or_else(|| json!([]));
        let batches = batches.as_array().context("batches is no list")?.clone();
        let reads = reads.as_array().context("reads is no list")?.clone();
        Ok(Self {
            id,
            order_free,
            spec,
            batches,
            reads,
            expect,
        })
    }

    /// Whether the spec or a batch of the case is refused.
    #[must_use]
    pub fn expects_refusal(&self) -> bool {
        self.expect
            .get("error")
            .is_some_and(|error| !error.is_null())
    }

    /// Whether a batch of the case says what time it is.
    #[must_use]
    pub fn sets_the_clock(&self) -> bool {
        let at = |batch: &Value| batch.get("at").is_some_and(|at| !at.is_null());
        self.batches.iter().any(at)
    }

    fn table(&self) -> String {
        self.id.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    }

    fn source_columns(&self) -> Vec<String> {
        strings(self.spec.get("source_columns"))
    }

    fn events(&self, batch: &Value) -> Result<Vec<Value>> {
        let events = batch.get("events").and_then(Value::as_array);
        Ok(events
            .with_context(|| format!("case {}: a batch without events", self.id))?
            .clone())
    }

    /// The types of all columns that rows, feed and reads may have.
    fn types(&self) -> Result<BTreeMap<String, DataType>> {
        let declared = self
            .spec
            .get("types")
            .and_then(Value::as_object)
            .context("no types")?;
        let mut types = BTreeMap::new();
        for (name, written) in declared {
            types.insert(
                name.clone(),
                parse_type(written.as_str().context("a type is text")?)?,
            );
        }
        let of = |types: &BTreeMap<String, DataType>, name: &str| {
            types
                .get(name)
                .cloned()
                .with_context(|| format!("column {name} has no type"))
        };
        let sequence = match self.spec.get("sequence_by") {
            Some(Value::String(name)) => Some(of(&types, name)?),
            Some(list @ Value::Array(_)) => {
                let members = strings(Some(list)).into_iter().map(|name| {
                    let data_type = of(&types, &name)?;
                    Ok(Field::new(name, data_type, true))
                });
                Some(DataType::Struct(
                    members.collect::<Result<Vec<_>>>()?.into(),
                ))
            }
            _ => None,
        };
        if let Some(sequence) = sequence {
            types.insert("deleted_at".to_owned(), sequence);
        }
        types.insert("is_deleted".to_owned(), DataType::Boolean);
        types.insert("_change_type".to_owned(), DataType::Utf8);
        types.insert("_commit_version".to_owned(), DataType::Int64);
        Ok(types)
    }

    /// The table spec of the case, as JSON.
    ///
    /// # Errors
    /// When the case asks for what no spec says.
    pub fn table_spec(&self) -> Result<String> {
        let case = self.spec.as_object().context("spec is no object")?;
        let mut spec = Map::new();
        spec.insert("name".to_owned(), json!(self.table()));
        spec.insert("schema".to_owned(), self.schema()?);
        spec.insert("change_data_feed".to_owned(), json!(true));
        if self.lacks_columns()? {
            spec.insert("absent_fields".to_owned(), json!("keep"));
        }
        for (name, asked) in case {
            let (field, value) = match name.as_str() {
                "source_columns" | "types" => continue,
                "keys"
                | "sequence_by"
                | "ignore_null_updates"
                | "columns_to_update"
                | "on_invalid"
                | "on_truncate"
                | "source" => (name.as_str(), asked.clone()),
                "scd" => ("stored_as_scd_type", asked.clone()),
                "columns" => ("column_list", asked.clone()),
                "except" => ("except_column_list", asked.clone()),
                "delete_when" => ("apply_as_deletes", json!(condition(asked)?)),
                "truncate_when" => ("apply_as_truncates", json!(condition(asked)?)),
                "track_history" => match asked.get("except") {
                    Some(except) => ("track_history_except_column_list", except.clone()),
                    None => ("track_history_column_list", asked.clone()),
                },
                "soft_delete" => (
                    "delete_mode",
                    json!(if is_true(asked) { "soft" } else { "hard" }),
                ),
                "insert_only" => (
                    "mode",
                    json!(if is_true(asked) { "insert_only" } else { "cdc" }),
                ),
                "append" => ("mode", json!(if is_true(asked) { "append" } else { "cdc" })),
                "tombstone_retention_s" => ("tombstone_retention", json!(format!("{asked}s"))),
                "late_after_gc" => {
                    let applied = asked.as_str() == Some("apply");
                    (
                        "late_after_retention",
                        json!(if applied { "apply" } else { "quarantine" }),
                    )
                }
                other => bail!("case {}: spec field {other} has no counterpart", self.id),
            };
            spec.insert(field.to_owned(), value);
        }
        Ok(Value::Object(spec).to_string())
    }

    fn schema(&self) -> Result<Value> {
        let types = self.spec.get("types").context("no types")?;
        let columns = self.source_columns().into_iter().map(|name| {
            let written = types
                .get(&name)
                .with_context(|| format!("column {name} has no type"))?;
            Ok(json!({"name": name, "type": written}))
        });
        Ok(Value::Array(columns.collect::<Result<_>>()?))
    }

    /// Whether some event lacks a source column; events inside an envelope are not looked at.
    fn lacks_columns(&self) -> Result<bool> {
        if self.spec.get("source").is_some() {
            return Ok(false);
        }
        let columns = self.source_columns();
        for batch in &self.batches {
            for event in self.events(batch)? {
                if columns.iter().any(|column| event.get(column).is_none()) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Runs the case as it is written.
    ///
    /// # Errors
    /// What came out otherwise than expected.
    pub fn run(&self, tidegate: &dyn Harness) -> Result<()> {
        let table = self.table();
        let refusal = self.expect.get("error").filter(|error| !error.is_null());
        if let Err(refused) = tidegate.create(&self.table_spec()?) {
            return self.check_refusal(refusal, None, &refused.code, &refused.message);
        }
        ensure!(
            refusal.is_none_or(|error| error.get("batch").is_some_and(|batch| !batch.is_null())),
            "the spec was taken, {} was expected",
            refusal
                .and_then(|error| error.get("code"))
                .unwrap_or(&Value::Null)
        );
        for (number, batch) in self.batches.iter().enumerate() {
            tidegate.set_clock(batch.get("at").and_then(Value::as_i64));
            let applied = apply(
                tidegate,
                &table,
                &format!("batch-{number}"),
                &self.events(batch)?,
            );
            match applied {
                Ok(result) => {
                    let version = result.get("version").and_then(Value::as_i64);
                    let expected = i64::try_from(number)? + 1;
                    ensure!(
                        version == Some(expected),
                        "batch {number} is version {version:?}"
                    );
                    self.check_not_refused(refusal, number)?;
                }
                Err(refused) => {
                    self.check_refusal(refusal, Some(number), &refused.code, &refused.message)?;
                    break;
                }
            }
        }
        self.check_rows(tidegate)?;
        self.check_feed(tidegate)?;
        self.check_rejects(tidegate)?;
        self.check_reads(tidegate)
    }

    /// Runs the case with its events shuffled, split into other batches and some of them twice.
    ///
    /// # Errors
    /// When the rows at the end are others.
    pub fn run_shuffled(&self, tidegate: &dyn Harness, seed: u64) -> Result<()> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut events = Vec::new();
        for batch in &self.batches {
            events.extend(self.events(batch)?);
        }
        let again: Vec<Value> = events
            .iter()
            .filter(|_| random.random_bool(0.3))
            .cloned()
            .collect();
        events.extend(again);
        events.shuffle(&mut random);
        tidegate.create(&self.table_spec()?)?;
        let mut rest = events.as_slice();
        let mut number = 0;
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(random.random_range(1..=rest.len()));
            apply(tidegate, &self.table(), &format!("part-{number}"), batch)?;
            number += 1;
            rest = after;
        }
        self.check_rows(tidegate)
            .with_context(|| format!("seed {seed}"))
    }

    fn check_not_refused(&self, refusal: Option<&Value>, number: usize) -> Result<()> {
        let at = refusal
            .and_then(|error| error.get("batch"))
            .and_then(Value::as_u64);
        ensure!(
            at != Some(number as u64),
            "batch {number} of {} was taken",
            self.id
        );
        Ok(())
    }

    fn check_refusal(
        &self,
        expected: Option<&Value>,
        batch: Option<usize>,
        code: &str,
        message: &str,
    ) -> Result<()> {
        let found = json!({"batch": batch, "code": code});
        ensure!(
            expected == Some(&found),
            "{}: refused with {found}: {message}",
            self.id
        );
        Ok(())
    }

    fn check_rows(&self, tidegate: &dyn Harness) -> Result<()> {
        if self
            .expect
            .pointer("/error/batch")
            .is_some_and(Value::is_null)
        {
            return Ok(());
        }
        let found = tidegate.read(&self.table(), None)?;
        self.compare("rows", self.expect.get("rows"), &found)
    }

    fn check_feed(&self, tidegate: &dyn Harness) -> Result<()> {
        for (number, expected) in list(self.expect.get("cdf")).iter().enumerate() {
            let version = Some(i64::try_from(number)? + 1);
            let request = FeedRequest::Range {
                from: version,
                to: version,
                allow_out_of_range: false,
            };
            let mut found = tidegate.changes(&self.table(), request)?;
            for row in &mut found {
                let object = row.as_object_mut().context("a change is no object")?;
                object.remove("_commit_version");
                object.remove("_commit_timestamp");
            }
            self.compare(&format!("feed of batch {number}"), Some(expected), &found)?;
        }
        Ok(())
    }

    fn check_rejects(&self, tidegate: &dyn Harness) -> Result<()> {
        let mut expected = strings(self.expect.get("rejects"));
        let rejects = tidegate.rejects(&self.table())?;
        let reason = |row: &Value| row.get("reason").and_then(Value::as_str).map(str::to_owned);
        let mut found: Vec<String> = rejects.iter().filter_map(reason).collect();
        expected.sort();
        found.sort();
        ensure!(
            expected == found,
            "rejects are {found:?}, expected {expected:?}"
        );
        Ok(())
    }

    fn check_reads(&self, tidegate: &dyn Harness) -> Result<()> {
        for (number, read) in self.reads.iter().enumerate() {
            let what = format!("read {number}");
            let request = request(read).context(what.clone())?;
            let expected = read.get("expect");
            let code = expected
                .and_then(|expect| expect.get("error"))
                .and_then(Value::as_str);
            match (tidegate.changes(&self.table(), request), code) {
                (Ok(mut found), None) => {
                    for row in &mut found {
                        row.as_object_mut()
                            .context("no object")?
                            .remove("_commit_timestamp");
                    }
                    self.compare(&what, expected, &found)?;
                }
                (Ok(_), Some(code)) => bail!("{what} succeeded, {code} was expected"),
                (Err(refused), Some(code)) => {
                    ensure!(
                        refused.code == code,
                        "{what}: {refused}, {code} was expected"
                    );
                }
                (Err(refused), None) => bail!("{what}: {refused}"),
            }
        }
        Ok(())
    }

    fn compare(&self, what: &str, expected: Option<&Value>, found: &[Value]) -> Result<()> {
        let types = self.types()?;
        let expected: Bag = value::bag(&types, &list(expected)).with_context(|| what.to_owned())?;
        let found = value::bag(&types, found).with_context(|| format!("{what} as found"))?;
        match value::bag_difference(&expected, &found) {
            None => Ok(()),
            Some(difference) => bail!("{what} differ:\n{difference}"),
        }
    }
}

fn apply(tidegate: &dyn Harness, table: &str, batch_id: &str, events: &[Value]) -> Answer<Value> {
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    let file = EventFile::json_lines("events.jsonl", lines.iter().map(String::as_str));
    tidegate.apply(table, batch_id, &[file])
}

fn request(read: &Value) -> Result<FeedRequest> {
    let object = read.as_object().context("a read is no object")?;
    let number = |name: &str| object.get(name).and_then(Value::as_i64);
    let known: &[&str] = match read.get("kind").and_then(Value::as_str) {
        Some("cdf") => &["kind", "expect", "start", "end", "out_of_range_ok"],
        Some("stream") => &["kind", "expect", "start", "checkpoint"],
        other => bail!("reads of kind {other:?} have no counterpart"),
    };
    if let Some(field) = object.keys().find(|field| !known.contains(&field.as_str())) {
        bail!("read field {field} has no counterpart");
    }
    Ok(match read.get("kind").and_then(Value::as_str) {
        Some("stream") => FeedRequest::Stream {
            from: number("start"),
            after: number("checkpoint"),
        },
        _ => FeedRequest::Range {
            from: number("start"),
            to: number("end"),
            allow_out_of_range: object.get("out_of_range_ok").is_some_and(is_true),
        },
    })
}

fn is_true(value: &Value) -> bool {
    value == &Value::Bool(true)
}

fn list(value: Option<&Value>) -> Vec<Value> {
    value.and_then(Value::as_array).cloned().unwrap_or_default()
}

fn strings(value: Option<&Value>) -> Vec<String> {
    list(value)
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// The SQL of `{col, eq}` or `{col, in}`.
fn condition(asked: &Value) -> Result<String> {
    let column = asked
        .get("col")
        .and_then(Value::as_str)
        .context("a condition without col")?;
    let values = match (asked.get("eq"), asked.get("in")) {
        (Some(one), None) => vec![one.clone()],
        (None, Some(many)) => list(Some(many)),
        _ => bail!("a condition has eq or in"),
    };
    let literals: Vec<String> = values.iter().map(literal).collect();
    Ok(format!(
        "\"{}\" IN ({})",
        column.replace('"', "\"\""),
        literals.join(", ")
    ))
}

fn literal(value: &Value) -> String {
    match value.as_str() {
        Some(text) => format!("'{}'", text.replace('\'', "''")),
        None => value.to_string(),
    }
}

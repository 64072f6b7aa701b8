//! Other writers of a table: what they commit is taken in, or the table is put into quarantine with the
//! reason (commit protocol, "Foreign commits").

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::foreign::{Appender, BlindWriter, KernelWriter};
use tidegate_tests::harness::{EventFile, Harness};
use tidegate_tests::readers;

const TABLE: &str = "shared";

/// A directory with one table, and where the table lies.
struct Shared {
    tidegate: InProcess,
    path: PathBuf,
    batches: std::cell::Cell<u32>,
}

impl Shared {
    fn new(more: &Value) -> Result<Self> {
        let tidegate = InProcess::new()?;
        let mut spec = json!({
            "name": TABLE,
            "schema": [
                {"name": "id", "type": "long"}, {"name": "op", "type": "string"},
                {"name": "seq", "type": "long"}, {"name": "note", "type": "string"},
                {"name": "n", "type": "long"},
            ],
            "keys": ["id"], "sequence_by": "seq", "apply_as_deletes": "op = 'D'",
            "except_column_list": ["op", "seq"], "change_data_feed": true,
        });
        let fields = more.as_object().context("fields are an object")?.clone();
        spec.as_object_mut()
            .context("a spec is an object")?
            .extend(fields);
        tidegate.create(&spec.to_string())?;
        let path = tidegate.local().join("lake").join(TABLE);
        Ok(Self {
            tidegate,
            path,
            batches: std::cell::Cell::new(0),
        })
    }

    fn apply(&self, events: &[Value]) -> Result<Value> {
        self.batches.set(self.batches.get() + 1);
        let lines: Vec<String> = events.iter().map(Value::to_string).collect();
        let file = EventFile::json_lines("events.jsonl", lines.iter().map(String::as_str));
        let batch = format!("batch-{}", self.batches.get());
        Ok(self.tidegate.apply(TABLE, &batch, &[file])?)
    }

    fn rows(&self) -> Result<Vec<Value>> {
        let mut rows = self.tidegate.read(TABLE, None)?;
        rows.sort_by_key(|row| row["id"].as_i64());
        Ok(rows)
    }

    /// Applies a batch that must be refused, and that again, since the table takes no writes any more.
    fn refuses(&self, code: &str, why: &str) -> Result<()> {
        for code in [code, "QUARANTINED"] {
            let file = EventFile::json_lines("e.jsonl", [r#"{"id":1,"op":"U","seq":99,"n":1}"#]);
            let refusal = match self.tidegate.apply(TABLE, "refused", &[file]) {
                Ok(answer) => anyhow::bail!("{code} was expected: {answer}"),
                Err(refusal) => refusal,
            };
            ensure!(refusal.code == code, "{code} was expected: {refusal}");
            ensure!(
                refusal.message.contains(why),
                "no reason {why:?}: {refusal}"
            );
        }
        Ok(())
    }

    fn readers_agree(&self) -> Result<()> {
        readers::check_python(self.tidegate.local())?;
        readers::check_kernel(self.tidegate.local())
    }
}

fn up(id: i64, seq: i64, n: i64) -> Value {
    json!({"id": id, "op": "U", "seq": seq, "note": "event", "n": n})
}

fn del(id: i64, seq: i64) -> Value {
    json!({"id": id, "op": "D", "seq": seq})
}

fn row(id: i64, n: i64) -> Value {
    json!({"id": id, "note": "foreign", "n": n})
}

fn numbers(rows: &[Value]) -> Vec<(i64, i64)> {
    let number = |row: &Value, name: &str| row[name].as_i64().unwrap_or(i64::MIN);
    rows.iter()
        .map(|row| (number(row, "id"), number(row, "n")))
        .collect()
}

#[test]
fn appended_rows_are_kept_until_an_event_names_them() -> Result<()> {
    let shared = Shared::new(&json!({}))?;
    shared.apply(&[up(1, 10, 1), up(2, 10, 2)])?;
    let kernel = KernelWriter::new(&shared.path)?;
    kernel.append(&[row(100, 0), row(101, 0), row(102, 0)])?;
    BlindWriter::new(&shared.path).append(&[row(200, 0)])?;
    shared.apply(&[up(100, -7, 5), del(101, -7), up(1, 9, 9)])?;
    ensure!(numbers(&shared.rows()?) == [(1, 1), (2, 2), (100, 5), (102, 0), (200, 0)]);
    // The event that deleted a row of others is remembered like any other.
    shared.apply(&[up(101, -8, 5), up(102, 1, 6)])?;
    ensure!(numbers(&shared.rows()?) == [(1, 1), (2, 2), (100, 5), (102, 6), (200, 0)]);
    ensure!(shared.tidegate.conflicts().integrated == 1);
    shared.readers_agree()
}

#[test]
fn appended_rows_that_have_no_place_end_in_quarantine() -> Result<()> {
    let taken = "in the table already";
    let cases: [(&[Value], &str); 4] = [
        (&[row(7, 0), row(1, 0)], taken),
        (&[row(7, 0), row(7, 1)], "two rows"),
        (
            &[json!({"id": null, "note": "x", "n": 1})],
            "column id is NULL",
        ),
        (&[row(3, 0)], "events deleted"),
    ];
    for (rows, why) in cases {
        let shared = Shared::new(&json!({}))?;
        shared.apply(&[up(1, 10, 1), up(3, 10, 1)])?;
        shared.apply(&[del(3, 11)])?;
        BlindWriter::new(&shared.path).append(rows)?;
        shared.refuses("FOREIGN_DUPLICATE", why)?;
    }
    let shared = Shared::new(&json!({"apply_as_truncates": "op = 'T'"}))?;
    shared.apply(&[up(1, 10, 1), json!({"id": 0, "op": "T", "seq": 5})])?;
    BlindWriter::new(&shared.path).append(&[row(7, 0)])?;
    shared.refuses("FOREIGN_REWRITE", "truncated")
}

#[test]
fn rewritten_rows_keep_their_sequences() -> Result<()> {
    for data_change in [false, true] {
        let shared = Shared::new(&json!({}))?;
        shared.apply(&[up(1, 10, 1), up(2, 10, 2), up(3, 10, 3), up(4, 10, 4)])?;
        shared.apply(&[up(2, 11, 2), del(4, 12)])?;
        let blind = BlindWriter::new(&shared.path);
        blind.replace(&shared.rows()?, data_change)?;
        // Late, equal with a lesser payload, equal with a greater one, and a late one of a deleted key.
        shared.apply(&[up(1, 9, 90), up(2, 11, 1), up(3, 10, 91), up(4, 11, 92)])?;
        ensure!(numbers(&shared.rows()?) == [(1, 1), (2, 2), (3, 91)]);
        shared.readers_agree()?;
    }
    Ok(())
}

#[test]
fn rows_that_others_change_or_delete_keep_the_sequence_of_what_was_there() -> Result<()> {
    let shared = Shared::new(&json!({}))?;
    shared.apply(&(1..=6).map(|id| up(id, 10, id)).collect::<Vec<_>>())?;
    let blind = BlindWriter::new(&shared.path);
    blind.replace(&[row(1, 50), row(2, 50), row(3, 50), row(9, 50)], true)?;
    // 1 to 3 changed, 4 to 6 went, 9 came.
    shared.apply(&[up(1, 10, 99), up(2, 11, 99), up(3, 9, 99)])?;
    shared.apply(&[up(4, 9, 99), up(5, 11, 99), up(9, 1, 99)])?;
    let expected = [(1, 50), (2, 99), (3, 50), (5, 99), (9, 99)];
    ensure!(numbers(&shared.rows()?) == expected, "{:?}", shared.rows()?);
    shared.readers_agree()
}

#[test]
fn what_cannot_be_told_ends_in_quarantine() -> Result<()> {
    // Files that a vacuum took away.
    let shared = Shared::new(&json!({}))?;
    shared.apply(&[up(1, 10, 1)])?;
    let blind = BlindWriter::new(&shared.path);
    let old = blind.live()?;
    blind.replace(&shared.rows()?, false)?;
    for add in old {
        std::fs::remove_file(shared.path.join(add["path"].as_str().context("a path")?))?;
    }
    shared.refuses("FOREIGN_REWRITE", "sequences of rows that others removed")?;
    // Metadata and protocol.
    for (kind, field, what) in [
        ("metaData", "description", "changed the metadata"),
        ("protocol", "minReaderVersion", "needs reader version"),
    ] {
        let shared = Shared::new(&json!({}))?;
        shared.apply(&[up(1, 10, 1)])?;
        let blind = BlindWriter::new(&shared.path);
        let first = blind.actions(0)?;
        let mut action = first
            .iter()
            .find(|a| a.get(kind).is_some())
            .context(kind)?
            .clone();
        action[kind][field] = match kind {
            "metaData" => json!("changed"),
            _ => json!(4),
        };
        blind.commit_next("SET", &[action])?;
        shared.refuses("FOREIGN_REWRITE", what)?;
    }
    // What a commit keeps for Tidegate alone.
    let shared = Shared::new(&json!({}))?;
    shared.apply(&[up(1, 10, 1)])?;
    let domain = json!({"domain": "tidegate.progress", "configuration": "{}", "removed": false});
    BlindWriter::new(&shared.path).commit_next("SET", &[json!({"domainMetadata": domain})])?;
    shared.refuses("FOREIGN_REWRITE", "tidegate.progress")?;
    // Deletes of a table that has none.
    let shared = Shared::new(&json!({"mode": "insert_only", "apply_as_deletes": null}))?;
    shared.apply(&[up(1, 10, 1), up(2, 10, 2)])?;
    BlindWriter::new(&shared.path).replace(&[row(1, 1)], true)?;
    shared.refuses("FOREIGN_REWRITE", "cannot remember")
}

#[test]
fn a_lost_index_and_a_lost_catalog_are_no_hindrance() -> Result<()> {
    let shared = Shared::new(&json!({}))?;
    shared.apply(&[up(1, 10, 1), up(2, 10, 2)])?;
    let blind = BlindWriter::new(&shared.path);
    blind.replace(&[row(1, 50)], true)?;
    std::fs::remove_dir_all(shared.path.join("_tidegate/index"))?;
    shared.apply(&[up(1, 9, 9), up(2, 9, 9)])?;
    ensure!(numbers(&shared.rows()?) == [(1, 50)]);
    // Another directory that takes the table, whose newest commits are others'.
    blind.append(&[row(7, 7)])?;
    blind.replace(&[row(1, 50), row(7, 8)], true)?;
    let other = InProcess::new()?;
    copy(&shared.path, &other.local().join("lake").join(TABLE))?;
    other.adopt(TABLE)?;
    let file = EventFile::json_lines("e.jsonl", [r#"{"id":7,"op":"U","seq":1,"note":"x","n":3}"#]);
    other.apply(TABLE, "after", &[file])?;
    let mut rows = other.read(TABLE, None)?;
    rows.sort_by_key(|row| row["id"].as_i64());
    ensure!(numbers(&rows) == [(1, 50), (7, 3)], "{rows:?}");
    readers::check_kernel(other.local())
}

fn copy(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(std::fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

#[test]
fn rows_that_others_add_to_a_table_without_key_need_nothing() -> Result<()> {
    let more = json!({"mode": "append", "keys": [], "sequence_by": null, "apply_as_deletes": null});
    let shared = Shared::new(&more)?;
    let event = |n: i64| json!({"id": n, "note": "event", "n": n});
    shared.apply(&[event(1), event(2)])?;
    let blind = BlindWriter::new(&shared.path);
    blind.append(&[row(3, 3), row(3, 3)])?;
    shared.apply(&[event(4)])?;
    std::fs::remove_dir_all(shared.path.join("_tidegate/index"))?;
    shared.apply(&[event(5)])?;
    let expected = [(1, 1), (2, 2), (3, 3), (3, 3), (4, 4), (5, 5)];
    ensure!(numbers(&shared.rows()?) == expected, "{:?}", shared.rows()?);
    shared.readers_agree()?;
    blind.replace(&shared.rows()?, false)?;
    shared.refuses("FOREIGN_REWRITE", "append table")
}

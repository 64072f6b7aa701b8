//! `make-tables DIRECTORY`: tables of many kinds, made by the binary for readers that are not written in
//! Rust: those of a capture, and some that test storage: clustered, partitioned, without change files,
//! soft-deleting.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tidegate_tests::binary::Binary;
use tidegate_tests::capture::PG_DEFAULT;
use tidegate_tests::harness::{EventFile, Harness};

fn main() -> Result<()> {
    let directory = std::env::args_os()
        .nth(1)
        .context("make-tables DIRECTORY")?;
    let tidegate = Binary::at(Path::new(&directory))?;
    let lines = PG_DEFAULT.lines()?;
    for table in PG_DEFAULT.tables()? {
        PG_DEFAULT.replay(&tidegate, &table, &lines)?;
    }
    for (name, fields) in [
        ("accounts", json!({})),
        ("accounts_shared", json!({})),
        ("accounts_vacuumed", json!({})),
        ("accounts_altered", json!({})),
        ("accounts_inferred", json!({"change_data_feed": "inferred"})),
        ("accounts_partitioned", json!({"partition_by": ["owner"]})),
        ("accounts_soft", json!({"delete_mode": "soft"})),
    ] {
        make_accounts(&tidegate, name, &fields)?;
    }
    Ok(())
}

/// A table of three batches: inserts, then updates, deletes and a move between owners, then more inserts.
fn make_accounts(tidegate: &dyn Harness, name: &str, fields: &Value) -> Result<()> {
    let mut spec = json!({
        "name": name,
        "schema": [
            {"name": "id", "type": "long"},
            {"name": "op", "type": "string"},
            {"name": "seq", "type": "long"},
            {"name": "owner", "type": "string"},
            {"name": "balance", "type": "decimal(12,2)"},
        ],
        "keys": ["id"],
        "sequence_by": "seq",
        "apply_as_deletes": "op = 'D'",
        "except_column_list": ["op", "seq"],
        "absent_fields": "keep",
        "change_data_feed": true,
    });
    let wanted = fields.as_object().context("fields are an object")?.clone();
    spec.as_object_mut()
        .context("a spec is an object")?
        .extend(wanted);
    tidegate.create(&spec.to_string())?;
    let upsert = |id: u64, seq: u64, owner: u64| {
        let balance = format!("{id}.{:02}", seq % 100);
        json!({"id": id, "op": "U", "seq": seq, "owner": format!("owner-{owner}"), "balance": balance})
    };
    let delete = |id: u64, seq: u64| json!({"id": id, "op": "D", "seq": seq});
    let first: Vec<Value> = (0..2_000).map(|id| upsert(id, 1, id % 3)).collect();
    let second = (100..400)
        .map(|id| upsert(id, 2, (id + 1) % 3))
        .chain((400..500).map(|id| delete(id, 2)));
    let third = (2_000..2_500)
        .map(|id| upsert(id, 3, id % 4))
        .chain((450..460).map(|id| upsert(id, 3, 0)));
    for (number, events) in [first, second.collect(), third.collect()]
        .iter()
        .enumerate()
    {
        let lines: Vec<String> = events.iter().map(Value::to_string).collect();
        let file = EventFile::json_lines("events.jsonl", lines.iter().map(String::as_str));
        tidegate.apply(name, &format!("batch-{number}"), &[file])?;
    }
    Ok(())
}

//! What the README shows works: its first command, and its example word for word.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_tests::binary::Binary;
use tidegate_tests::harness::{EventFile, Harness};
use tidegate_tests::workspace;

fn readme() -> Result<String> {
    Ok(std::fs::read_to_string(
        workspace::root().join("README.md"),
    )?)
}

/// The first block of the README in a language.
fn block(text: &str, language: &str) -> Result<String> {
    let start = text
        .find(&format!("```{language}\n"))
        .context("no such block")?;
    let body = text
        .get(start..)
        .and_then(|rest| rest.split_once('\n'))
        .context("no body")?
        .1;
    Ok(body
        .split_once("```")
        .context("the block does not end")?
        .0
        .to_owned())
}

#[test]
fn the_commands_are_the_documented_ones() -> Result<()> {
    let text = readme()?;
    for command in ["cargo run --bin tidegate -- demo", "tests/run"] {
        ensure!(
            text.contains(&format!("```sh\n{command}\n```")),
            "the README lacks {command}"
        );
    }
    Ok(())
}

#[test]
fn the_demo_shows_both_days() -> Result<()> {
    let tidegate = Binary::new()?;
    let printed = String::from_utf8(tidegate.run(&["demo"])?)?;
    for row in [
        ["C101", "Amit Kumar", "Bangalore", "Gold"],
        ["C102", "Priya Rao", "Pune", "Silver"],
        ["C103", "Mukesh Sen", "Delhi", "Platinum"],
        ["C105", "Ravi Sharma", "Chennai", "Silver"],
    ] {
        let has_row = printed
            .lines()
            .any(|line| row.iter().all(|value| line.contains(value)));
        ensure!(has_row, "the demo lacks {row:?}:\n{printed}");
    }
    let watermark = ["2026-05-02 14:00:00", "2026-05-02T14:00:00"];
    ensure!(
        watermark.iter().any(|text| printed.contains(text)),
        "no watermark:\n{printed}"
    );
    for word in [
        "update_preimage",
        "update_postimage",
        "inserted",
        "updated",
        "deleted",
    ] {
        ensure!(printed.contains(word), "the demo lacks {word}:\n{printed}");
    }
    Ok(())
}

#[test]
fn the_example_works() -> Result<()> {
    let text = readme()?;
    let tidegate = Binary::new()?;
    tidegate.create(&block(&text, "yaml")?)?;
    let events = block(&text, "json")?;
    let file = EventFile {
        name: "changes.jsonl".to_owned(),
        bytes: events.into_bytes(),
    };
    let result = tidegate.apply("clients", "first", std::slice::from_ref(&file))?;
    ensure!(result.get("events") == Some(&json!(4)), "{result}");
    let rows = tidegate.read("clients", None)?;
    let cities: Vec<&Value> = rows.iter().filter_map(|row| row.get("city")).collect();
    ensure!(cities == [&json!("Bangalore")], "{rows:?}");
    let again = tidegate.apply("clients", "again", &[file])?;
    for counter in ["inserted", "updated", "deleted"] {
        ensure!(again.get(counter) == Some(&json!(0)), "{again}");
    }
    Ok(())
}

#[test]
fn the_table_from_debezium_works() -> Result<()> {
    let text = readme()?;
    let (_, after) = text
        .split_once("## A table from Debezium")
        .context("no such part")?;
    let tidegate = Binary::new()?;
    tidegate.create(&block(after, "yaml")?)?;
    let value = |op: &str, amount: &str, lsn: u64| {
        let row = json!({"id": 7, "amount": amount, "created": 1_767_225_600_000_000_u64});
        let source =
            json!({"connector": "postgresql", "schema": "public", "table": "orders", "lsn": lsn});
        json!({"before": null, "after": row, "op": op, "source": source, "ts_ms": 0})
    };
    // The unscaled integers 1234 and 1235, of which the second is the later.
    let lines = format!("{}\n{}\n", value("u", "BNM=", 20), value("c", "BNI=", 10));
    let file = EventFile {
        name: "orders-0.jsonl".to_owned(),
        bytes: lines.into_bytes(),
    };
    tidegate.apply("orders", "first", &[file])?;
    let rows = tidegate.read("orders", None)?;
    let expected = json!({"id": 7, "amount": "12.35", "created": "2026-01-01T00:00:00.000000Z"});
    ensure!(json!(rows) == json!([expected]), "{rows:?}");
    Ok(())
}

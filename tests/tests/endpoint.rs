//! A node that runs, driven by the command line, by two clients at once, by a client that knows only what
//! reflection tells, and by a client of Arrow Flight.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_change::clock::{Clock, SystemClock};
use tidegate_tests::binary::Binary;
use tidegate_tests::case::{self, Case};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::harness::{EventFile, Harness};
use tidegate_tests::served::{Recorded, Served};
use tidegate_tests::workspace::{self, output_of};

fn spec(table: &str) -> String {
    format!(
        "name: {table}\nkeys: [id]\nsequence_by: seq\nchange_data_feed: true\nschema:\n  - {{name: id, type: long}}\n  - {{name: seq, type: long}}\n  - {{name: city, type: string}}\n"
    )
}

fn events(count: i64) -> EventFile {
    let lines: Vec<String> = (0..count)
        .map(|n| json!({"id": n, "seq": 1, "city": format!("city {n}")}).to_string())
        .collect();
    EventFile::json_lines("events.jsonl", lines.iter().map(String::as_str))
}

/// Runs a case against the node and in this process, and compares every answer.
fn check(case: &Case, served: &Served) -> Result<()> {
    let against = Recorded::new(served.client()?);
    case.run(&against)?;
    let embedded = Recorded::new(InProcess::new()?);
    case.run(&embedded)?;
    let (found, expected) = (against.answers(), embedded.answers());
    let differs = found.iter().zip(&expected).find(|(a, b)| a != b);
    ensure!(
        found.len() == expected.len() && differs.is_none(),
        "the node answers otherwise than the library: {differs:?}"
    );
    Ok(())
}

#[test]
fn every_case_passes_against_one_node_with_the_answers_of_embedded_mode() -> Result<()> {
    let served = Served::start()?;
    let mut failures = Vec::new();
    let cases = case::discover(&workspace::tests_dir("cases"))?;
    for case in &cases {
        // The node has one clock for all tables.
        served.client()?.set_clock(None);
        if let Err(error) = check(case, &served) {
            failures.push(format!("{}: {error:#}", case.id));
        }
    }
    ensure!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    Ok(())
}

#[test]
fn two_clients_with_one_batch_get_one_version_and_the_same_answer() -> Result<()> {
    let served = Served::start()?;
    served.client()?.create(&spec("t"))?;
    let file = [events(20_000)];
    let results = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| Ok(served.client()?.apply("t", "run-1", &file)?)))
            .collect();
        let answers = clients.into_iter().map(|client| match client.join() {
            Ok(answer) => answer,
            Err(_) => Err(anyhow::anyhow!("a client panicked")),
        });
        answers.collect::<Result<Vec<Value>>>()
    })?;
    let first = results.first().context("no client")?;
    ensure!(results.iter().all(|result| result == first), "{results:?}");
    ensure!(first.get("version") == Some(&json!(1)), "{first}");
    let other = served.client()?.apply("t", "run-1", &[events(3)]);
    let code = other.err().map(|refusal| refusal.code);
    ensure!(
        code.as_deref() == Some("BATCH_CONTENT_MISMATCH"),
        "{code:?}"
    );
    Ok(())
}

#[test]
fn a_client_that_knows_only_what_reflection_tells_does_the_whole_flow() -> Result<()> {
    let served = Served::start()?;
    let mut client = Command::new(workspace::python()?);
    client
        .arg(workspace::tests_dir("interop/reflect.py"))
        .arg(served.address())
        .arg(served.directory());
    output_of(&mut client).map(drop)
}

#[test]
fn a_client_of_arrow_flight_puts_and_gets() -> Result<()> {
    let served = Served::start()?;
    for table in ["columns", "records"] {
        served.client()?.create(&spec(table))?;
    }
    let mut client = Command::new(workspace::python()?);
    client
        .arg(workspace::tests_dir("interop/flight.py"))
        .arg(served.address());
    output_of(&mut client).map(drop)
}

/// A `tidegate serve` of its own process.
struct Process {
    child: Child,
    endpoint: String,
}

impl Process {
    fn start(local: &Path) -> Result<Self> {
        let mut command = Command::new(workspace::binary()?);
        command
            .arg("--local")
            .arg(local)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env_remove("TIDEGATE_ENDPOINT")
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stderr = child.stderr.take().context("no standard error")?;
        let mut line = String::new();
        BufReader::new(stderr).read_line(&mut line)?;
        let endpoint = line.trim().strip_prefix("serving on ");
        let endpoint = endpoint
            .with_context(|| format!("it says {line:?}"))?
            .to_owned();
        Ok(Self { child, endpoint })
    }

    /// Asks it to stop and returns its exit code.
    fn stop(mut self) -> Result<Option<i32>> {
        output_of(Command::new("kill").args(["-TERM", &self.child.id().to_string()]))?;
        Ok(self.child.wait()?.code())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_process_serves_stops_within_ten_seconds_under_load_and_goes_on() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let local = scratch.path().join("data");
    let process = Process::start(&local)?;
    let client = Binary::against(&process.endpoint)?;
    client.create(&spec("t"))?;
    client.apply("t", "first", &[events(10)])?;
    let load = {
        let path = scratch.path().join("load.jsonl");
        std::fs::write(&path, events(200_000).bytes)?;
        let mut command = client.command()?;
        command
            .args(["apply", "t"])
            .arg(&path)
            .args(["--batch-id", "load", "-o", "json"]);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?
    };
    wait_until(|| {
        Ok(client
            .output(&["batch", "show", "t", "load"])?
            .status
            .success())
    })?;
    let started_ns = SystemClock.monotonic_ns();
    ensure!(process.stop()? == Some(0), "the stop failed");
    let took = Duration::from_nanos(SystemClock.monotonic_ns() - started_ns);
    ensure!(took < Duration::from_secs(10), "the stop took {took:?}");
    drop(load.wait_with_output()?);
    let down = client.output(&["read", "t"])?;
    ensure!(down.status.code() == Some(4), "{down:?}");
    // Whatever became of the load, the same batch again is in exactly one version.
    let process = Process::start(&local)?;
    let client = Binary::against(&process.endpoint)?;
    let result = client.apply(
        "t",
        "load",
        &[EventFile {
            name: "load.jsonl".to_owned(),
            bytes: events(200_000).bytes,
        }],
    )?;
    ensure!(result.get("version") == Some(&json!(2)), "{result}");
    let history = client.run(&["table", "history", "t", "-o", "json"])?;
    let history: Vec<Value> = serde_json::from_slice(&history)?;
    ensure!(history.len() == 3, "{history:?}");
    ensure!(process.stop()? == Some(0), "the second stop failed");
    Ok(())
}

fn wait_until(is_so: impl Fn() -> Result<bool>) -> Result<()> {
    for _ in 0..600 {
        if is_so()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("it does not come to be")
}

#[test]
fn a_wait_that_runs_out_of_time_exits_with_3_and_the_batch_goes_on() -> Result<()> {
    let served = Served::start()?;
    let client = served.client()?;
    client.create(&spec("t"))?;
    let path = served.directory().join("events.jsonl");
    std::fs::write(&path, events(100_000).bytes)?;
    let url = format!("file://{}", path.display());
    let binary = client.binary();
    let waited = binary.output(&["apply", "t", &url, "--batch-id", "b", "--timeout", "1ms"])?;
    ensure!(waited.status.code() == Some(3), "{waited:?}");
    let text = String::from_utf8_lossy(&waited.stderr).into_owned();
    ensure!(text.contains("error[TIMED_OUT]"), "{text}");
    let done = binary.run(&["batch", "wait", "t", "b", "-o", "json"])?;
    let done: Value = serde_json::from_slice(&done)?;
    ensure!(done.get("inserted") == Some(&json!(100_000)), "{done}");
    let taken = binary.run(&[
        "apply",
        "t",
        &url,
        "--batch-id",
        "b",
        "--no-wait",
        "-o",
        "json",
    ])?;
    let taken: Value = serde_json::from_slice(&taken)?;
    ensure!(taken.get("batch_id") == Some(&json!("b")), "{taken}");
    Ok(())
}

/// What each command prints, and its exit code, with what differs by nature left out.
fn printed(binary: &Binary, arguments: &[&str]) -> Result<String> {
    let output = binary.output(arguments)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(format!("{:?}\n{text}{errors}", output.status.code()))
}

#[test]
fn commands_print_the_same_as_on_a_local_directory() -> Result<()> {
    let served = Served::start()?;
    let client = served.client()?;
    let local = Binary::new()?;
    for harness in [&local, client.binary()] {
        harness.create(&spec("t"))?;
        harness.apply("t", "a", &[events(3)])?;
    }
    let commands: [&[&str]; 15] = [
        &["read", "t", "--order", "--limit", "2"],
        &[
            "read",
            "t",
            "--order",
            "--where",
            "id > 0",
            "--columns",
            "city",
            "-o",
            "csv",
        ],
        &["read", "t", "--version", "0", "-o", "json"],
        &["read", "t", "--version", "9"],
        &["read", "t", "--version", "x"],
        &["read", "t", "--columns", "town"],
        &["read", "t", "--where", "id >"],
        &["read", "nope"],
        &["changes", "t"],
        &["changes", "t", "--from", "7"],
        &["changes", "t", "--from", "1", "--to", "0"],
        &["rejects", "t", "-o", "csv"],
        &["apply", "t", "/nowhere/x.jsonl"],
        &["table", "drop", "nope", "--yes"],
        &["batch", "show", "t", "nope"],
    ];
    for command in commands {
        let (found, expected) = (
            printed(client.binary(), command)?,
            printed(&local, command)?,
        );
        ensure!(
            found == expected,
            "{command:?}:\n{found}instead of\n{expected}"
        );
    }
    Ok(())
}

//! Three metadata nodes as real processes, with a stream of batches through all that can befall them.
//!
//! `TIDEGATE_TEST_KILLS=50` kills that many leaders under load and prints how long the stream stood still.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_tests::binary::Binary;
use tidegate_tests::cluster::{Cluster, require_refusal};
use tidegate_tests::harness::{EventFile, Harness};
use tidegate_tests::ledger::{self, Signals, TABLE, wait_for_progress};
use tidegate_tests::workspace;

/// Leaders that the gate kills under load.
const KILLS: usize = 3;
/// Sets another number.
const KILLS_VARIABLE: &str = "TIDEGATE_TEST_KILLS";

fn endpoints(cluster: &Cluster, nodes_count: usize) -> Vec<String> {
    (0..nodes_count)
        .map(|n| cluster.endpoints_from(n))
        .collect()
}

#[test]
fn every_node_of_three_takes_any_call() -> Result<()> {
    let cluster = Cluster::start(3)?;
    cluster.client(0)?.create(&ledger::spec())?;
    let event = |n: u64| {
        EventFile::json_lines(
            "a.jsonl",
            [json!({"id": n, "seq": 1, "n": n}).to_string().as_str()],
        )
    };
    for n in 0..3 {
        let result = cluster
            .client(n)?
            .apply(TABLE, &format!("b{n}"), &[event(n as u64)])?;
        ensure!(result.get("version") == Some(&json!(n + 1)), "{result}");
        // What one node acknowledged every other one shows at once.
        for reader in 0..3 {
            let rows = cluster.client(reader)?.read(TABLE, None)?;
            ensure!(rows.len() == n + 1, "node {reader} shows {rows:?}");
        }
    }
    let again = cluster.client(2)?.apply(TABLE, "b0", &[event(0)])?;
    ensure!(again.get("version") == Some(&json!(1)), "{again}");
    let other = cluster.client(1)?.apply(TABLE, "b0", &[event(7)]);
    let code = other.err().map(|refusal| refusal.code);
    ensure!(
        code.as_deref() == Some("BATCH_CONTENT_MISMATCH"),
        "{code:?}"
    );
    let shown = cluster
        .client(1)?
        .run(&["batch", "show", TABLE, "b2", "-o", "json"])?;
    let shown: Value = serde_json::from_slice(&shown)?;
    ensure!(shown.get("version") == Some(&json!(3)), "{shown}");
    Ok(())
}

#[test]
fn one_batch_at_all_nodes_at_once_is_one_version_with_one_answer() -> Result<()> {
    let cluster = Cluster::start(3)?;
    cluster.client(0)?.create(&ledger::spec())?;
    for round in 0..4_u64 {
        let id = format!("b{round}");
        let lines: Vec<String> = (0..500)
            .map(|n| json!({"id": n, "seq": round, "n": round}).to_string())
            .collect();
        let file = [EventFile::json_lines(
            "a.jsonl",
            lines.iter().map(String::as_str),
        )];
        let answers = std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..3)
                .map(|n| {
                    let (cluster, id, file) = (&cluster, &id, &file);
                    scope.spawn(move || Ok(cluster.client(n)?.apply(TABLE, id, file)?))
                })
                .collect();
            let answers = submitters
                .into_iter()
                .map(|submitter| match submitter.join() {
                    Ok(answer) => answer,
                    Err(_) => Err(anyhow::anyhow!("a submitter panicked")),
                });
            answers.collect::<Result<Vec<Value>>>()
        })?;
        let first = answers.first().context("no answer")?;
        ensure!(first.get("version") == Some(&json!(round + 1)), "{first}");
        ensure!(answers.iter().all(|answer| answer == first), "{answers:?}");
    }
    Ok(())
}

/// What befalls the cluster, one after the other, while the stream runs.
fn befall(cluster: &mut Cluster, signals: &Signals) -> Result<()> {
    wait_for_progress(signals, 3)?;
    // Fault 5: a leader that is paused and comes back believing that it leads.
    let paused = cluster.leader()?;
    cluster.signal(paused, "-STOP")?;
    std::thread::sleep(Duration::from_secs(3));
    wait_for_progress(signals, 1)?;
    cluster.signal(paused, "-CONT")?;
    cluster.wait_for_voters(3)?;
    wait_for_progress(signals, 3)?;
    // Fault 2: all at once.
    for number in 0..3 {
        cluster.kill(number)?;
    }
    for number in 0..3 {
        cluster.launch(number)?;
    }
    cluster.wait_for_voters(3)?;
    wait_for_progress(signals, 3)?;
    // Faults 10 and 11: one after the other is asked to stop, and starts again.
    for number in 0..3 {
        let code = cluster.terminate(number)?;
        ensure!(code == Some(0), "node {number} ended with {code:?}");
        wait_for_progress(signals, 1)?;
        cluster.launch(number)?;
        cluster.wait_for_voters(3)?;
    }
    wait_for_progress(signals, 3)?;
    // Fault 34: a node without its directory is a new one; the old id never comes back.
    let (lost, old) = (0, cluster.node_id(0)?);
    cluster.kill(lost)?;
    cluster.forget_data(lost)?;
    cluster.launch(lost)?;
    let new = cluster.node_id(lost)?;
    ensure!(new != old, "an id was issued twice");
    cluster.wait_for_voters(3)?;
    let old = old.to_string();
    cluster.client(1)?.run(&["cluster", "remove", &old])?;
    require_refusal(
        &cluster.client(2)?,
        &["cluster", "add", &old, "http://127.0.0.1:1"],
        "FENCED",
    )?;
    wait_for_progress(signals, 3)?;
    // A node that is removed while it runs stops by itself, and comes back as another.
    let removed = cluster.node_id(2)?.to_string();
    cluster.client(1)?.run(&["cluster", "remove", &removed])?;
    let code = cluster.wait_for_end(2)?;
    ensure!(code == Some(1), "the removed node ended with {code:?}");
    cluster.forget_data(2)?;
    cluster.launch(2)?;
    cluster.wait_for_voters(3)?;
    wait_for_progress(signals, 3)?;
    Ok(())
}

#[test]
fn a_stream_of_batches_survives_pauses_crashes_restarts_and_a_new_node() -> Result<()> {
    let mut cluster = Cluster::start(3)?;
    cluster.client(1)?.create(&ledger::spec())?;
    let (nodes, directory) = (endpoints(&cluster, 3), cluster.directory().to_owned());
    let streamed = ledger::beside(nodes, directory, |signals| befall(&mut cluster, signals));
    let acknowledged = streamed.with_context(|| cluster.logs())?;
    ledger::check(&cluster.client(2)?, &acknowledged).with_context(|| cluster.logs())
}

#[test]
fn leaders_that_are_killed_under_load_lose_and_double_nothing() -> Result<()> {
    let kills = match std::env::var(KILLS_VARIABLE) {
        Ok(text) => text.parse()?,
        Err(_) => KILLS,
    };
    let mut cluster = Cluster::start(3)?;
    cluster.client(0)?.create(&ledger::spec())?;
    let (nodes, directory) = (endpoints(&cluster, 3), cluster.directory().to_owned());
    let mut gaps_ms = Vec::new();
    let streamed = ledger::beside(nodes, directory, |signals| {
        for _ in 0..kills {
            wait_for_progress(signals, 3)?;
            let leader = cluster.leader()?;
            cluster.kill(leader)?;
            gaps_ms.push(wait_for_progress(signals, 1)?);
            cluster.launch(leader)?;
            cluster.wait_for_voters(3)?;
        }
        Ok(())
    });
    let acknowledged = streamed.with_context(|| cluster.logs())?;
    ledger::check(&cluster.client(1)?, &acknowledged).with_context(|| cluster.logs())?;
    gaps_ms.sort_unstable();
    let at = |share: usize| gaps_ms.get((gaps_ms.len() - 1) * share / 100).copied();
    println!(
        "{} leaders killed, {} batches acknowledged, gap until the next one: p50 {:?} ms, p99 {:?} ms, all {gaps_ms:?}",
        gaps_ms.len(),
        acknowledged.len(),
        at(50),
        at(99)
    );
    ensure!(gaps_ms.len() == kills, "not all leaders were killed");
    Ok(())
}

#[test]
fn a_node_of_another_cluster_is_refused_with_the_reason() -> Result<()> {
    let cluster = Cluster::start(1)?;
    let mut other = Cluster::start(1)?;
    ensure!(other.terminate(0)? == Some(0), "it does not stop");
    other.join(&cluster)?;
    let code = other.wait_for_end(0)?;
    ensure!(code == Some(2), "it ended with {code:?}");
    let said = other.logs();
    ensure!(said.contains("belongs to cluster"), "{said}");
    Ok(())
}

#[test]
fn one_command_runs_a_cluster_on_this_machine_and_ends_it() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let data = scratch.path().join("cluster");
    let deploy = workspace::root().join("deploy/local");
    let log = std::fs::File::create(scratch.path().join("said"))?;
    let mut run = Command::new(deploy.join("run"))
        .args([
            "--meta",
            "3",
            "--workers",
            "1",
            "--port",
            "19420",
            "--binary",
        ])
        .arg(workspace::binary()?)
        .arg("--data")
        .arg(&data)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let said = || std::fs::read_to_string(scratch.path().join("said")).unwrap_or_default();
    let patience = Duration::from_millis(100);
    let mut looks_left = 600;
    while !said().contains("endpoints:") && looks_left > 0 && run.try_wait()?.is_none() {
        std::thread::sleep(patience);
        looks_left -= 1;
    }
    let served = serve_once(&said());
    let mut stop = Command::new(deploy.join("stop"));
    let stopped = workspace::output_of(stop.arg("--data").arg(&data));
    let code = run.wait()?.code();
    served.with_context(said)?;
    stopped.with_context(said)?;
    ensure!(code == Some(0), "it ended with {code:?}: {}", said());
    let logs = std::fs::read_dir(data.join("logs"))?.count();
    ensure!(logs == 4, "{logs} logs");
    Ok(())
}

/// A batch through a worker's port, which says who takes it, and a read at all endpoints.
fn serve_once(said: &str) -> Result<()> {
    let endpoints = said
        .lines()
        .find_map(|line| line.strip_prefix("endpoints:"));
    let endpoints = endpoints.context("it prints no endpoints")?.trim();
    Binary::against(endpoints)?.create(&ledger::spec())?;
    let worker = Binary::against("http://127.0.0.1:19520")?;
    let event = EventFile::json_lines("a.jsonl", [r#"{"id": 1, "seq": 1, "n": 1}"#]);
    let result = worker.apply(TABLE, "b1", &[event])?;
    ensure!(result.get("version") == Some(&json!(1)), "{result}");
    for endpoint in endpoints.split(',') {
        let rows = Binary::against(endpoint)?.read(TABLE, None)?;
        ensure!(rows.len() == 1, "{endpoint} shows {rows:?}");
    }
    Ok(())
}

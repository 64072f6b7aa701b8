//! Lakes in object stores, by the real S3 client: against an S3 of another make, and against a small one that
//! goes wrong on demand (faults 40, 41, 43, 45, 48 and 49 of the matrix).

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tidegate_server::config::{S3, SecretPlace, Span, Stores};
use tidegate_tests::binary::Binary;
use tidegate_tests::case;
use tidegate_tests::embedded::InProcess;
use tidegate_tests::harness::{EventFile, Harness, Refusal};
use tidegate_tests::s3::{BUCKET, Fault, Moto, Stub, variables};
use tidegate_tests::workspace;

const SPEC: &str = "name: t\nkeys: [id]\nsequence_by: seq\n";
/// Cases of which one is run against the store.
const CASES_EACH: usize = 7;
/// Rows of the batch whose process is killed.
const ROWS: u64 = 4_000;
/// Times after which it is killed, milliseconds.
const KILLED_AFTER_MS: [u64; 7] = [20, 40, 70, 110, 170, 300, 600];

fn stores(stub: &Stub, patience_ms: u64) -> Result<(Stores, tempfile::NamedTempFile)> {
    let secret = tempfile::NamedTempFile::new()?;
    std::fs::write(secret.path(), "secret-of-the-test\n")?;
    let place = SecretPlace::parse(&format!("file:{}", secret.path().display()))?;
    let s3 = S3 {
        endpoint: Some(stub.endpoint()),
        region: Some("us-east-1".to_owned()),
        allow_http: true,
        access_key_id: Some(place.clone()),
        secret_access_key: Some(place),
        ..S3::default()
    };
    let stores = Stores {
        patience: Span::from_ms(patience_ms),
        s3,
        ..Stores::default()
    };
    Ok((stores, secret))
}

fn lake() -> String {
    format!("s3://{BUCKET}/lake")
}

/// A table in the stub's lake, and what keeps its secret.
fn on_stub(stub: &Stub, patience_ms: u64) -> Result<(InProcess, tempfile::NamedTempFile)> {
    let (stores, secret) = stores(stub, patience_ms)?;
    let tidegate = InProcess::in_lake(&lake(), stores)?;
    tidegate.create(SPEC)?;
    Ok((tidegate, secret))
}

fn events(batch: u64) -> Vec<EventFile> {
    let line = format!("{{\"id\":{batch},\"seq\":{batch}}}");
    vec![EventFile::json_lines("e.jsonl", [line.as_str()])]
}

/// Applies two batches around a fault; both must be in, once, in the first two versions.
fn two_batches(fault: Fault, method: &'static str, key: &'static str, times: u64) -> Result<()> {
    let stub = Stub::start()?;
    let (tidegate, _secret) = on_stub(&stub, 20_000)?;
    stub.poison(fault, method, key, times);
    for batch in [1, 2] {
        let result = tidegate.apply("t", &format!("b{batch}"), &events(batch))?;
        ensure!(result["version"] == batch, "{fault:?}: {result}");
    }
    ensure!(
        stub.hits(fault) == times,
        "{fault:?}: {} hits",
        stub.hits(fault)
    );
    ensure!(tidegate.read("t", None)?.len() == 2);
    ensure!(stub.keys("_tidegate/staged").is_empty());
    Ok(())
}

#[test]
fn fault_40_an_own_success_that_answers_412_is_no_conflict() -> Result<()> {
    two_batches(
        Fault::DoneThenError,
        "PUT",
        "_delta_log/00000000000000000001.json",
        1,
    )
}

#[test]
fn fault_41_a_conflict_without_effect_leaves_no_hole() -> Result<()> {
    two_batches(
        Fault::Conflict,
        "PUT",
        "_delta_log/00000000000000000001.json",
        3,
    )
}

#[test]
fn fault_43_a_store_that_asks_to_slow_down_is_waited_for() -> Result<()> {
    two_batches(Fault::SlowDown, "PUT", "", 3)?;
    two_batches(Fault::SlowDown, "GET", "", 4)
}

#[test]
fn fault_43_a_storm_longer_than_patience_ends_in_a_code_and_loses_nothing() -> Result<()> {
    let stub = Stub::start()?;
    let (tidegate, _secret) = on_stub(&stub, 1_000)?;
    stub.poison(Fault::SlowDown, "PUT", "_delta_log", 1_000);
    let refusal = tidegate.apply("t", "b1", &events(1)).unwrap_err();
    assert_eq!(refusal.code, "IO", "{refusal}");
    assert!(
        stub.hits(Fault::SlowDown) < 200,
        "the storm is answered by a storm"
    );
    stub.heal();
    assert_eq!(tidegate.apply("t", "b1", &events(1))?["version"], 1);
    assert_eq!(tidegate.read("t", None)?.len(), 1);
    Ok(())
}

#[test]
fn fault_45_a_cut_body_gives_the_rows_or_a_code() -> Result<()> {
    let stub = Stub::start()?;
    let (tidegate, _secret) = on_stub(&stub, 1_000)?;
    for batch in [1, 2, 3] {
        tidegate.apply("t", &format!("b{batch}"), &events(batch))?;
    }
    for (key, times) in [
        (".parquet", 1),
        (".parquet", 50),
        (".json", 1),
        (".json", 50),
    ] {
        stub.poison(Fault::CutBody, "GET", key, times);
        match tidegate.read("t", None) {
            Ok(rows) => ensure!(rows.len() == 3, "{key}: {} rows", rows.len()),
            Err(Refusal { code, .. }) => ensure!(code == "IO" || code == "CORRUPT", "{code}"),
        }
        stub.heal();
        ensure!(tidegate.read("t", None)?.len() == 3);
    }
    ensure!(stub.hits(Fault::CutBody) > 4);
    Ok(())
}

#[test]
fn fault_48_a_store_that_ignores_conditions_is_refused() -> Result<()> {
    let stub = Stub::start()?;
    stub.ignore_conditions();
    let (stores, _secret) = stores(&stub, 5_000)?;
    let error = InProcess::in_lake(&lake(), stores).unwrap_err();
    let code = error
        .downcast_ref::<tidegate_change::Error>()
        .map(tidegate_change::Error::code);
    assert_eq!(code, Some(tidegate_change::Code::UnsafeStore), "{error:#}");
    assert!(stub.keys("").is_empty(), "the probe leaves nothing");
    Ok(())
}

#[test]
fn fault_49_no_access_in_mid_commit_keeps_the_batch_prepared() -> Result<()> {
    let stub = Stub::start()?;
    let (tidegate, _secret) = on_stub(&stub, 5_000)?;
    stub.poison(Fault::Denied, "PUT", "_delta_log", 1_000);
    let refusal = tidegate.apply("t", "b1", &events(1)).unwrap_err();
    assert_eq!(refusal.code, "PERMISSION_DENIED", "{refusal}");
    assert!(refusal.message.contains("outcome"), "{refusal}");
    assert!(!refusal.message.contains("secret-of-the-test"));
    stub.heal();
    assert_eq!(tidegate.apply("t", "b1", &events(1))?["version"], 1);
    assert_eq!(tidegate.apply("t", "b2", &events(2))?["version"], 2);
    assert_eq!(tidegate.read("t", None)?.len(), 2);
    Ok(())
}

/// What needs the S3 of another make, one after the other, so that it is started once.
#[test]
fn a_lake_on_s3_is_like_any_other() -> Result<()> {
    let moto = Moto::start()?;
    cases_pass(&moto).context("cases")?;
    objects_are_sources(&moto).context("sources")?;
    a_killed_batch_is_in_once(&moto).context("kill -9")?;
    another_reader_sees_the_rows(&moto).context("deltalake")
}

fn cases_pass(moto: &Moto) -> Result<()> {
    let cases = case::discover(&workspace::tests_dir("cases"))?;
    for case in cases.iter().step_by(CASES_EACH) {
        let lake = format!("s3://{BUCKET}/cases/{}", case.id);
        let tidegate = Binary::in_lake(&lake, variables(&moto.endpoint()))?;
        case.run(&tidegate).with_context(|| case.id.clone())?;
    }
    Ok(())
}

fn objects_are_sources(moto: &Moto) -> Result<()> {
    moto.put("in/b.jsonl", b"{\"id\":1,\"seq\":2}\n")?;
    moto.put(
        "in/a.jsonl",
        b"{\"id\":1,\"seq\":1}\n{\"id\":2,\"seq\":1}\n",
    )?;
    let lake = format!("s3://{BUCKET}/sources");
    let tidegate = Binary::in_lake(&lake, variables(&moto.endpoint()))?;
    tidegate.create(SPEC)?;
    let prefix = format!("s3://{BUCKET}/in/");
    let arguments = ["--quiet", "apply", "t", &prefix, "--output", "json"];
    let result: Value = serde_json::from_slice(&tidegate.run(&arguments)?)?;
    ensure!(result["events"] == 3, "{result}");
    let again: Value = serde_json::from_slice(&tidegate.run(&arguments)?)?;
    ensure!(
        again["version"] == 1,
        "the same objects are the same batch: {again}"
    );
    ensure!(tidegate.read("t", None)?.len() == 2);
    let gone = tidegate.run(&["apply", "t", &format!("s3://{BUCKET}/none.jsonl")]);
    ensure!(gone.is_err_and(|refusal| refusal.code == "NOT_FOUND"));
    Ok(())
}

fn a_killed_batch_is_in_once(moto: &Moto) -> Result<()> {
    let lines: String = (0..ROWS)
        .map(|n| format!("{{\"id\":{n},\"seq\":1}}\n"))
        .collect();
    let file = tempfile::Builder::new().suffix(".jsonl").tempfile()?;
    std::fs::write(file.path(), lines)?;
    let source = file.path().to_string_lossy().into_owned();
    let mut killed = 0;
    for (n, after_ms) in KILLED_AFTER_MS.into_iter().enumerate() {
        let lake = format!("s3://{BUCKET}/killed/{n}");
        let tidegate = Binary::in_lake(&lake, variables(&moto.endpoint()))?;
        tidegate.create(SPEC)?;
        let arguments = ["--quiet", "apply", "t", source.as_str()];
        let mut process = tidegate
            .command()?
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(after_ms));
        killed += u32::from(process.try_wait()?.is_none());
        process.kill()?;
        process.wait()?;
        let again = [&arguments[..], &["--output", "json"]].concat();
        let result: Value = serde_json::from_slice(&tidegate.run(&again)?)?;
        ensure!(
            result["version"] == 1,
            "killed after {after_ms} ms: {result}"
        );
        ensure!(tidegate.read("t", None)?.len() as u64 == ROWS);
    }
    ensure!(killed > 1, "the batch was always faster than the signal");
    Ok(())
}

fn another_reader_sees_the_rows(moto: &Moto) -> Result<()> {
    let lake = format!("s3://{BUCKET}/read");
    let tidegate = Binary::in_lake(&lake, variables(&moto.endpoint()))?;
    tidegate.create(SPEC)?;
    for batch in [1, 2, 3] {
        tidegate.apply("t", &format!("b{batch}"), &events(batch))?;
    }
    let output = Command::new(workspace::python()?)
        .arg(workspace::tests_dir("interop/bucket.py"))
        .arg(format!("{lake}/t"))
        .envs(variables(&moto.endpoint()))
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(
        rows == serde_json::json!([[1, 1], [2, 2], [3, 3]]),
        "{rows}"
    );
    Ok(())
}

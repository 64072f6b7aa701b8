//! Runs random histories against the model:
//! `histories [--path merge|embedded|spilling] [--from SEED] [--count N] [--failures N] | --seed SEED | --file FILE`.

#![expect(clippy::print_stdout, reason = "a command line prints")]

use std::process::ExitCode;

use tidegate_simulation::Scenario;
use tidegate_simulation::property::{Path, run, run_seeds};

/// Histories after which a line is printed.
const REPORT_EVERY: u64 = 10_000;

struct Arguments {
    path: Path,
    from: u64,
    count: u64,
    failures: usize,
    file: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        path: Path::Merge,
        from: 0,
        count: 100_000,
        failures: 1,
        file: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{word}: {e}"));
        match word.as_str() {
            "--path" => {
                arguments.path =
                    Path::from_name(&value).ok_or_else(|| format!("no path {value}"))?;
            }
            "--from" => arguments.from = number()?,
            "--count" => arguments.count = number()?,
            "--seed" => (arguments.from, arguments.count) = (number()?, 1),
            "--failures" => arguments.failures = value.parse().map_err(|e| format!("{e}"))?,
            "--file" => arguments.file = Some(value),
            _ => return Err(format!("no option {word}")),
        }
    }
    Ok(arguments)
}

fn run_all(arguments: &Arguments) -> Result<bool, String> {
    if let Some(file) = &arguments.file {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        let history: Scenario = serde_json::from_str(&text).map_err(|e| format!("{file}: {e}"))?;
        run(arguments.path, &history)?;
        println!("{file}: model and product agree");
        return Ok(true);
    }
    let end = arguments.from.saturating_add(arguments.count);
    let (mut failures, mut open) = (0, 0);
    let mut start = arguments.from;
    while start < end && failures < arguments.failures {
        let stop = end.min(start.saturating_add(REPORT_EVERY));
        let survey = run_seeds(arguments.path, start..stop, arguments.failures - failures);
        for failure in survey.failures {
            println!("{}", failure.report(arguments.path));
            failures += 1;
        }
        open += survey.open;
        start = stop;
        println!(
            "{} histories, {failures} failures, {open} compared up to open rules only",
            start - arguments.from
        );
    }
    Ok(failures == 0)
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| run_all(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            println!("{message}");
            ExitCode::FAILURE
        }
    }
}

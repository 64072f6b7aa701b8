//! Runs the simulated commit path: `commits [--from SEED] [--count N] [--failures N] | --seed SEED`.

#![expect(clippy::print_stdout, reason = "a command line prints")]

use std::process::ExitCode;

use tidegate_simulation::commits::{Report, run};

/// Histories after which a line is printed.
const REPORT_EVERY: u64 = 500;

struct Arguments {
    from: u64,
    count: u64,
    failures: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        from: 0,
        count: 5_000,
        failures: 1,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value"))?;
        let number = value.parse::<u64>().map_err(|e| format!("{word}: {e}"))?;
        match word.as_str() {
            "--from" => arguments.from = number,
            "--count" => arguments.count = number,
            "--seed" => (arguments.from, arguments.count) = (number, 1),
            "--failures" => arguments.failures = number,
            _ => return Err(format!("no option {word}")),
        }
    }
    Ok(arguments)
}

fn run_all(arguments: &Arguments) -> bool {
    let mut all = Report::default();
    let mut failures = 0;
    for n in 0..arguments.count {
        match run(arguments.from.saturating_add(n)) {
            Ok(report) => all.add(&report),
            Err(violation) => {
                println!("{violation}");
                failures += 1;
                if failures >= arguments.failures {
                    break;
                }
            }
        }
        if (n + 1) % REPORT_EVERY == 0 {
            println!("{} histories, {failures} failures", n + 1);
        }
    }
    println!("{all}");
    failures == 0
}

fn main() -> ExitCode {
    match arguments() {
        Ok(arguments) if run_all(&arguments) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            println!("{message}");
            ExitCode::FAILURE
        }
    }
}

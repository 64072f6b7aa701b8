//! What a run came to.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::processes::Usage;
use crate::{Arguments, page, seconds};

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in that version.
    Acknowledged(i64),
    /// Nobody said, in all the time there was.
    Unknown,
}

/// One batch.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Since the run began.
    pub(crate) begun: Duration,
    /// Since the run began.
    pub(crate) ended: Duration,
    pub(crate) events: u64,
    pub(crate) outcome: Outcome,
    /// Tries that failed, by code.
    pub(crate) errors: BTreeMap<&'static str, u64>,
}

impl Record {
    fn is_acknowledged(&self) -> bool {
        matches!(self.outcome, Outcome::Acknowledged(_))
    }
}

/// A run.
#[derive(Debug)]
pub(crate) struct Report {
    arguments: Arguments,
    elapsed: f64,
    pub(crate) acknowledged: u64,
    unknown: u64,
    events: u64,
    /// Of acknowledged batches, ascending, in milliseconds.
    latencies_ms: Vec<f64>,
    /// Acknowledged batches by second.
    batches_by_second: Vec<u64>,
    /// Median latency by second, in milliseconds; 0 where nothing was acknowledged.
    latency_by_second: Vec<f64>,
    /// The longest time without an acknowledgement, in seconds.
    longest_gap: f64,
    errors: BTreeMap<&'static str, u64>,
    usage: Vec<Usage>,
    pub(crate) rows_checked: u64,
    /// What a check found.
    pub(crate) faults: Vec<String>,
}

impl Report {
    pub(crate) fn new(
        arguments: &Arguments,
        records: &[Record],
        elapsed: Duration,
        usage: Vec<Usage>,
    ) -> Self {
        let mut done: Vec<&Record> = records.iter().filter(|r| r.is_acknowledged()).collect();
        done.sort_by_key(|record| record.ended);
        let latency = |record: &Record| seconds(record.ended - record.begun) * 1e3;
        let length = usize::try_from(elapsed.as_secs()).unwrap_or(0) + 1;
        let mut by_second: Vec<Vec<f64>> = vec![Vec::new(); length];
        for record in &done {
            let second = usize::try_from(record.ended.as_secs()).unwrap_or(0);
            if let Some(latencies) = by_second.get_mut(second) {
                latencies.push(latency(record));
            }
        }
        for latencies in &mut by_second {
            latencies.sort_by(f64::total_cmp);
        }
        let mut latencies_ms: Vec<f64> = done.iter().map(|record| latency(record)).collect();
        latencies_ms.sort_by(f64::total_cmp);
        let ends = done.iter().map(|record| seconds(record.ended));
        let gaps = ends.clone().skip(1).zip(ends).map(|(next, end)| next - end);
        let mut errors = BTreeMap::new();
        for (code, count) in records.iter().flat_map(|record| &record.errors) {
            *errors.entry(*code).or_insert(0) += count;
        }
        Self {
            arguments: arguments.clone(),
            elapsed: seconds(elapsed),
            acknowledged: done.len() as u64,
            unknown: (records.len() - done.len()) as u64,
            events: done.iter().map(|record| record.events).sum(),
            batches_by_second: by_second.iter().map(|of| of.len() as u64).collect(),
            latency_by_second: by_second.iter().map(|of| percentile(of, 0.5)).collect(),
            latencies_ms,
            longest_gap: gaps.fold(0.0, f64::max),
            errors,
            usage,
            rows_checked: 0,
            faults: Vec::new(),
        }
    }

    fn rate(&self, count: u64) -> f64 {
        float(count) / self.elapsed.max(1e-9)
    }

    fn cpu_seconds(&self) -> f64 {
        self.usage.iter().map(|usage| usage.cpu_seconds).sum()
    }

    fn cpu_micros_an_event(&self) -> f64 {
        self.cpu_seconds() * 1e6 / float(self.events.max(1))
    }

    fn to_json(&self) -> serde_json::Value {
        let quantiles = QUANTILES.map(|(name, q)| (name, percentile(&self.latencies_ms, q)));
        let quantiles: BTreeMap<_, _> = quantiles.into_iter().collect();
        let usage: Vec<_> = self
            .usage
            .iter()
            .map(|usage| {
                json!({"pid": usage.pid, "cpu_seconds": usage.cpu_seconds, "peak_mib": usage.peak_mib})
            })
            .collect();
        json!({
            "tables": self.arguments.tables,
            "clients": self.arguments.clients,
            "events_a_batch": self.arguments.events,
            "keys": self.arguments.keys,
            "seconds": self.elapsed,
            "batches_acknowledged": self.acknowledged,
            "batches_unknown": self.unknown,
            "events": self.events,
            "batches_a_second": self.rate(self.acknowledged),
            "events_a_second": self.rate(self.events),
            "latency_ms": quantiles,
            "longest_gap_seconds": self.longest_gap,
            "errors": self.errors,
            "processes": usage,
            "cpu_micros_an_event": self.cpu_micros_an_event(),
            "rows_checked": self.rows_checked,
            "faults": self.faults,
            "batches_by_second": self.batches_by_second,
            "median_latency_ms_by_second": self.latency_by_second,
        })
    }

    /// Writes `report.json` and `report.html`.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.to_json())?;
        let page = page::page(
            &self.to_string(),
            &self.batches_by_second,
            &self.latency_by_second,
            &self.latencies_ms,
        );
        for (name, text) in [("report.json", json), ("report.html", page)] {
            let path = directory.join(name);
            std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
        }
        Ok(())
    }
}

const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = &self.arguments;
        writeln!(
            f,
            "{} clients, {} tables, {} events a batch, {:.1} s",
            arguments.clients, arguments.tables, arguments.events, self.elapsed
        )?;
        writeln!(
            f,
            "batches     {} acknowledged ({:.1}/s), {} unknown",
            self.acknowledged,
            self.rate(self.acknowledged),
            self.unknown
        )?;
        writeln!(
            f,
            "events      {} ({:.0}/s)",
            self.events,
            self.rate(self.events)
        )?;
        write!(f, "latency ms ")?;
        for (name, q) in QUANTILES {
            write!(f, " {name} {:.1}", percentile(&self.latencies_ms, q))?;
        }
        writeln!(
            f,
            "\nlongest gap {:.2} s without an acknowledgement",
            self.longest_gap
        )?;
        write!(f, "errors     ")?;
        for (code, count) in &self.errors {
            write!(f, " {code} {count}")?;
        }
        writeln!(f, "{}", if self.errors.is_empty() { " none" } else { "" })?;
        for usage in &self.usage {
            writeln!(
                f,
                "process {}  {:.2} CPU s, peak {:.0} MiB",
                usage.pid, usage.cpu_seconds, usage.peak_mib
            )?;
        }
        if !self.usage.is_empty() {
            writeln!(
                f,
                "CPU         {:.1} µs an event",
                self.cpu_micros_an_event()
            )?;
        }
        writeln!(
            f,
            "check       {} rows, {} faults",
            self.rows_checked,
            self.faults.len()
        )
    }
}

/// The value below which a share of sorted values lies; 0 for none.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank lies between 0 and the last"
    )]
    let rank = (share * float(last as u64)).ceil() as usize;
    sorted.get(rank.min(last)).copied().unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts lie below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

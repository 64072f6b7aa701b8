//! CPU time and memory of other processes, from Linux's `/proc`.

use std::fs;

use anyhow::{Context, Result};

/// Clock ticks of a second in `/proc`, the same on every Linux.
const TICKS_A_SECOND: f64 = 100.0;

/// What some processes used so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    by_id: Vec<Usage>,
}

/// What one process used.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) pid: u32,
    /// Seconds, user and system.
    pub(crate) cpu_seconds: f64,
    /// The most memory it ever had.
    pub(crate) peak_mib: f64,
}

impl Processes {
    pub(crate) fn read(pids: &[u32]) -> Result<Self> {
        let by_id = pids.iter().map(|pid| Usage::read(*pid));
        Ok(Self {
            by_id: by_id.collect::<Result<_>>()?,
        })
    }

    /// What was used between two readings of the same processes.
    pub(crate) fn since(&self, before: &Self) -> Result<Vec<Usage>> {
        self.by_id
            .iter()
            .map(|now| {
                let earlier = before.by_id.iter().find(|usage| usage.pid == now.pid);
                let earlier = earlier.context("a process that was not there before")?;
                Ok(Usage {
                    cpu_seconds: now.cpu_seconds - earlier.cpu_seconds,
                    ..now.clone()
                })
            })
            .collect()
    }
}

impl Usage {
    fn read(pid: u32) -> Result<Self> {
        let of = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).with_context(|| path.clone())
        };
        let stat = of("stat")?;
        // The name of the program, in parentheses, may hold blanks.
        let (_, fields) = stat.rsplit_once(')').context("/proc: no program name")?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks = ticks.map(|field| field.parse::<f64>().context("/proc: no number"));
        let cpu_seconds = ticks.sum::<Result<f64>>()? / TICKS_A_SECOND;
        let status = of("status")?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.split_whitespace().next());
        let kib: f64 = kib.context("/proc: no VmHWM")?.parse()?;
        Ok(Self {
            pid,
            cpu_seconds,
            peak_mib: kib / 1024.0,
        })
    }
}

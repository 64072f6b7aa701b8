//! Bars on standard error that show how far a batch is; nothing where it is no terminal.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate_client::v1;
use tidegate_server::{BatchObserver, BatchPhase, BatchProgress};

use crate::context::Context;

const READING: &str =
    "{spinner} {prefix}: reading {bar:24} {bytes}/{total_bytes}, {msg} events, {eta} left";
const READING_STREAM: &str = "{spinner} {prefix}: reading {bytes}, {msg} events, {elapsed}";
const MERGING: &str =
    "{spinner} {prefix}: merging {bar:24} {pos}/{len} buckets, {msg} events, {eta} left";
const COMMITTING: &str = "{spinner} {prefix}: committing {msg} events, {elapsed}";
/// How often what is shown moves on by itself.
const TICK: Duration = Duration::from_millis(120);

/// Shows a batch until it is finished; warnings also where no bar is shown.
#[derive(Debug)]
pub(crate) struct BatchBars {
    bars: Option<Arc<Bars>>,
    is_quiet: bool,
}

/// Tells warnings alone.
#[derive(Debug)]
struct Warnings;

impl BatchObserver for Warnings {
    fn observe(&self, _: BatchProgress) {}

    fn warn(&self, text: &str) {
        write_warning(text);
    }
}

/// Talk that nobody can hear is no reason to fail.
fn write_warning(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "warning: {text}");
}

#[derive(Debug)]
struct Bars {
    bar: ProgressBar,
    /// What is shown, to change the form of the bar only where it must.
    shown: Mutex<Option<&'static str>>,
}

impl BatchBars {
    /// Begins to show a batch of a table.
    pub(crate) fn start(context: &Context, table: &str) -> Self {
        let is_quiet = context.is_quiet();
        if !context.shows_progress() {
            return Self {
                bars: None,
                is_quiet,
            };
        }
        let bars = Bars::new(ProgressDrawTarget::stderr(), table);
        bars.bar.enable_steady_tick(TICK);
        Self {
            bars: Some(Arc::new(bars)),
            is_quiet,
        }
    }

    /// Who is told how far the batch is.
    pub(crate) fn observer(&self) -> Option<Arc<dyn BatchObserver>> {
        match &self.bars {
            Some(bars) => Some(Arc::clone(bars) as Arc<dyn BatchObserver>),
            None if self.is_quiet => None,
            None => Some(Arc::new(Warnings)),
        }
    }

    /// Shows how far a cluster says that a batch is.
    pub(crate) fn show(&self, progress: &v1::BatchProgress) {
        if let Some(bars) = &self.bars {
            bars.observe(told(progress));
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn finish(self) {
        if let Some(bars) = &self.bars {
            bars.bar.finish_and_clear();
        }
    }
}

impl Bars {
    fn new(target: ProgressDrawTarget, table: &str) -> Self {
        Self {
            bar: ProgressBar::with_draw_target(None, target).with_prefix(table.to_owned()),
            shown: Mutex::new(None),
        }
    }

    fn show(&self, template: &'static str) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown == Some(template) {
            return;
        }
        *shown = Some(template);
        self.bar.reset();
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }
}

impl BatchObserver for Bars {
    fn observe(&self, progress: BatchProgress) {
        let (template, position, length) = match (progress.phase, progress.bytes_total) {
            (BatchPhase::Reading, Some(total)) => (READING, progress.bytes_read, Some(total)),
            (BatchPhase::Reading, None) => (READING_STREAM, progress.bytes_read, None),
            (BatchPhase::Merging, _) => {
                let total = u64::from(progress.buckets_total);
                (MERGING, u64::from(progress.buckets_merged), Some(total))
            }
            (BatchPhase::Committing, _) => (COMMITTING, 0, None),
        };
        self.show(template);
        match length {
            Some(length) => self.bar.set_length(length),
            None => self.bar.unset_length(),
        }
        self.bar.set_position(position);
        self.bar
            .set_message(HumanCount(progress.events_read).to_string());
    }

    fn warn(&self, text: &str) {
        self.bar.suspend(|| write_warning(text));
    }
}

/// What a cluster tells, as this process would tell it of a batch of its own.
fn told(progress: &v1::BatchProgress) -> BatchProgress {
    BatchProgress {
        phase: match progress.phase.as_str() {
            "merge" => BatchPhase::Merging,
            "commit" => BatchPhase::Committing,
            _ => BatchPhase::Reading,
        },
        events_read: progress.events_read_count,
        bytes_read: progress.source_bytes_read,
        bytes_total: Some(progress.source_bytes_total).filter(|total| *total > 0),
        buckets_merged: progress.buckets_merged_count,
        buckets_total: progress.buckets_total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_tells_is_shown_like_what_happens_here() {
        let progress = v1::BatchProgress {
            phase: "merge".into(),
            events_read_count: 7,
            source_bytes_read: 10,
            source_bytes_total: 0,
            buckets_merged_count: 1,
            buckets_total: 4,
        };
        let shown = told(&progress);
        assert_eq!(shown.phase, BatchPhase::Merging);
        assert_eq!((shown.events_read, shown.bytes_total), (7, None));
        assert_eq!((shown.buckets_merged, shown.buckets_total), (1, 4));
    }

    #[test]
    fn the_bar_follows_the_phases() {
        for template in [READING, READING_STREAM, MERGING, COMMITTING] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
        let bars = Bars::new(ProgressDrawTarget::hidden(), "orders");
        let reading = BatchProgress {
            events_read: 12_345,
            bytes_read: 70,
            bytes_total: Some(100),
            ..BatchProgress::default()
        };
        bars.observe(reading);
        assert_eq!((bars.bar.position(), bars.bar.length()), (70, Some(100)));
        assert_eq!(bars.bar.message(), "12,345");
        bars.observe(BatchProgress {
            phase: BatchPhase::Merging,
            buckets_merged: 3,
            buckets_total: 16,
            ..reading
        });
        assert_eq!((bars.bar.position(), bars.bar.length()), (3, Some(16)));
        bars.observe(BatchProgress {
            phase: BatchPhase::Committing,
            ..reading
        });
        assert_eq!(bars.bar.length(), None);
        assert_eq!(bars.bar.prefix(), "orders");
    }
}

//! How far a batch is, from what all its workers tell.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_apply::{BatchObserver, BatchPhase, BatchProgress};

/// Shows the sum of several calls as one progress.
#[derive(Debug)]
pub(super) struct Board {
    observer: Option<Arc<dyn BatchObserver>>,
    calls: Mutex<Vec<BatchProgress>>,
    phase: BatchPhase,
    /// Events read by an earlier phase.
    events: u64,
    buckets: u32,
}

/// One call on a board.
#[derive(Debug)]
struct Line {
    board: Arc<Board>,
    number: usize,
}

impl Board {
    /// A board for a phase.
    pub(super) fn new(
        observer: Option<&Arc<dyn BatchObserver>>,
        phase: BatchPhase,
        events: u64,
        buckets: u32,
    ) -> Arc<Self> {
        Arc::new(Self {
            observer: observer.map(Arc::clone),
            calls: Mutex::default(),
            phase,
            events,
            buckets,
        })
    }

    /// Who sees one more call.
    pub(super) fn line(self: &Arc<Self>) -> Arc<dyn BatchObserver> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(BatchProgress::default());
        Arc::new(Line {
            board: Arc::clone(self),
            number: calls.len() - 1,
        })
    }

    fn sum(&self, calls: &[BatchProgress]) -> BatchProgress {
        let total = |of: fn(&BatchProgress) -> u64| calls.iter().map(of).sum::<u64>();
        let shares = calls.iter().map(|call| {
            u64::from(call.buckets_merged) * u64::from(self.buckets)
                / u64::from(call.buckets_total.max(1))
        });
        let merged = shares.sum::<u64>() / (calls.len() as u64).max(1);
        BatchProgress {
            phase: self.phase,
            events_read: self.events.max(total(|call| call.events_read)),
            bytes_read: total(|call| call.bytes_read),
            bytes_total: calls.iter().map(|call| call.bytes_total).sum(),
            buckets_merged: u32::try_from(merged).unwrap_or(u32::MAX),
            buckets_total: self.buckets,
        }
    }
}

impl BatchObserver for Line {
    fn observe(&self, progress: BatchProgress) {
        let Some(observer) = &self.board.observer else {
            return;
        };
        let sum = {
            let calls = &self.board.calls;
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(own) = calls.get_mut(self.number) {
                *own = progress;
            }
            self.board.sum(&calls)
        };
        observer.observe(sum);
    }

    fn warn(&self, text: &str) {
        if let Some(observer) = &self.board.observer {
            observer.warn(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<BatchProgress>>);

    impl BatchObserver for Seen {
        fn observe(&self, progress: BatchProgress) {
            self.0.lock().unwrap().push(progress);
        }
    }

    #[test]
    fn calls_are_shown_as_one() {
        let seen = Arc::new(Seen::default());
        let observer: Arc<dyn BatchObserver> = Arc::clone(&seen) as _;
        let board = Board::new(Some(&observer), BatchPhase::Merging, 70, 16);
        let (one, two) = (board.line(), board.line());
        let at = |merged| BatchProgress {
            phase: BatchPhase::Merging,
            buckets_merged: merged,
            buckets_total: 16,
            ..BatchProgress::default()
        };
        one.observe(at(16));
        two.observe(at(8));
        let last = *seen.0.lock().unwrap().last().unwrap();
        assert_eq!((last.buckets_merged, last.buckets_total), (12, 16));
        assert_eq!(last.events_read, 70);
    }
}

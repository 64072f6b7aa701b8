//! The places before and after every operation of store and log.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Gives way once, so that whoever polls may let another task, or a fault, come first.
#[derive(Debug, Default)]
pub struct Pause {
    is_over: bool,
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Ready(());
        }
        self.is_over = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A fault that is forced at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// The operation is not done, and fails.
    Fails,
    /// The operation is done, and fails.
    AnswerLost,
    /// The operation fails, and is done some operations later.
    Late,
}

/// Counts the points that are passed, from when it is armed.
#[derive(Debug, Default)]
pub struct Points {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_armed: bool,
    seen: Vec<String>,
    at: Option<usize>,
    forced: Option<Forced>,
    is_reached: bool,
}

impl Points {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts from now on, and notes when the point of that number is reached; a fault is forced there.
    pub fn arm(&self, at: Option<usize>, forced: Option<Forced>) {
        *self.state() = State {
            is_armed: true,
            at,
            forced,
            ..State::default()
        };
    }

    /// Counts no more.
    pub fn disarm(&self) {
        self.state().is_armed = false;
    }

    /// Whether the point was reached.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.state().is_reached
    }

    /// The points that were passed, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.state().seen.clone()
    }

    /// Passes a point; gives way there.
    pub async fn pass(&self, label: impl FnOnce() -> String) -> Option<Forced> {
        let forced = self.note(label);
        Pause::default().await;
        forced
    }

    fn note(&self, label: impl FnOnce() -> String) -> Option<Forced> {
        let mut state = self.state();
        if !state.is_armed {
            return None;
        }
        let number = state.seen.len();
        state.seen.push(label());
        if state.at != Some(number) {
            return None;
        }
        state.is_reached = true;
        state.forced
    }
}

//! When a call is made again, and after which pause.

use std::error::Error as StdError;
use std::time::Duration;

use tidegate_change::{Code, Error, Random};
use tidegate_rpc::status::{error_of, is_decided, leader_of, retry_delay_of};
use tonic::{ConnectError, Status, TimeoutExpired};

/// First pause; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Leaders that a call is sent to before it is given up.
const REDIRECTS_MAX: u32 = 8;

/// Whether a call may be made again when nothing is known of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the same twice is the same once.
    Always,
    /// Only when it did not reach a node, or the node says that it did nothing.
    WhenNotDone,
}

/// What to do after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Talk to this node at once.
    Redirect(String),
    /// Make the call again after that pause.
    Again(Duration),
    /// Tell the user.
    GiveUp,
}

/// The tries of one call.
#[derive(Debug)]
pub(crate) struct Tries<'a> {
    repeat: Repeat,
    retry_for: Duration,
    random: &'a dyn Random,
    waited: Duration,
    pause: Duration,
    redirects_count: u32,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(repeat: Repeat, retry_for: Duration, random: &'a dyn Random) -> Self {
        Self {
            repeat,
            retry_for,
            random,
            waited: Duration::ZERO,
            pause: PAUSE_MIN,
            redirects_count: 0,
        }
    }

    /// Decides after a failure.
    pub(crate) fn next(&mut self, status: &Status) -> Next {
        if let Some(leader) = leader_of(status).filter(|_| self.redirects_count < REDIRECTS_MAX) {
            self.redirects_count += 1;
            return Next::Redirect(leader);
        }
        if !self.may_repeat(status) || self.waited >= self.retry_for {
            return Next::GiveUp;
        }
        let asked = retry_delay_of(status).unwrap_or_default();
        let pause = self.jittered(self.pause.max(asked.min(PAUSE_MAX)));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.waited += pause;
        Next::Again(pause)
    }

    fn may_repeat(&self, status: &Status) -> bool {
        let code = error_of(status).code();
        // Trying again does not make room, and the holder of a directory keeps it.
        if matches!(
            code,
            Code::StorageFull | Code::DirectoryHeld | Code::TimedOut
        ) {
            return false;
        }
        match self.repeat {
            Repeat::Always if is_decided(status) => retry_delay_of(status).is_some(),
            Repeat::Always => is_lost(status),
            Repeat::WhenNotDone if is_decided(status) => {
                matches!(code, Code::Unavailable | Code::NotLeader)
            }
            Repeat::WhenNotDone => did_not_arrive(status),
        }
    }

    /// Between half and all of a pause, so that callers who failed together do not come back together.
    fn jittered(&self, pause: Duration) -> Duration {
        let share = self.random.next_u64() % 512;
        let milli = u32::try_from(512 + share).unwrap_or(1_024);
        pause * milli / 1_024
    }
}

/// The error of a failed call to a node.
pub(crate) fn error_at(address: &str, status: &Status) -> Error {
    let mut cause = status.source();
    while let Some(source) = cause {
        if source.is::<TimeoutExpired>() {
            return Error::new(Code::TimedOut, format!("{address} did not answer in time"));
        }
        cause = source.source();
    }
    if is_lost(status) {
        let message = format!("{address} does not answer");
        let reason = std::io::Error::other(status.message().to_owned());
        return Error::new(Code::Unavailable, message)
            .with_hint("is `tidegate serve` running there?")
            .with_source(reason);
    }
    error_of(status)
}

/// Whether the connection did not open, or broke: nothing is known of the call but that there is no answer.
pub(crate) fn is_lost(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(source) = cause {
        if source.is::<TimeoutExpired>() {
            return false;
        }
        cause = source.source();
    }
    // What a node answers has no cause on this side.
    !is_decided(status) && (status.code() == tonic::Code::Unavailable || status.source().is_some())
}

/// Whether no node can have seen the call.
fn did_not_arrive(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(source) = cause {
        if source.is::<ConnectError>() {
            return true;
        }
        cause = source.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use tidegate_change::clock::SystemRandom;
    use tidegate_rpc::status::{not_leader, status_of};

    use super::*;

    fn next(repeat: Repeat, status: &Status) -> Next {
        Tries::new(repeat, Duration::from_secs(1), &SystemRandom).next(status)
    }

    #[test]
    fn what_may_have_been_done_is_repeated_only_where_that_does_no_harm() {
        let lost = Status::unavailable("connection reset");
        assert!(matches!(next(Repeat::Always, &lost), Next::Again(_)));
        assert_eq!(next(Repeat::WhenNotDone, &lost), Next::GiveUp);
        let stops = status_of(&Error::new(Code::Unavailable, "the node stops"));
        assert!(matches!(next(Repeat::WhenNotDone, &stops), Next::Again(_)));
    }

    #[test]
    fn refusals_are_final() {
        for code in [
            Code::InvalidSpec,
            Code::TableNotFound,
            Code::StorageFull,
            Code::Internal,
        ] {
            let status = status_of(&Error::new(code, "x"));
            assert_eq!(next(Repeat::Always, &status), Next::GiveUp, "{code}");
        }
    }

    #[test]
    fn the_leader_is_followed_a_bounded_number_of_times() {
        let mut tries = Tries::new(Repeat::WhenNotDone, Duration::ZERO, &SystemRandom);
        let status = not_leader(Some("http://b:1"));
        for _ in 0..REDIRECTS_MAX {
            assert_eq!(tries.next(&status), Next::Redirect("http://b:1".into()));
        }
        assert_eq!(tries.next(&status), Next::GiveUp);
    }

    #[test]
    fn pauses_grow_until_the_patience_is_over() {
        let mut tries = Tries::new(Repeat::Always, Duration::from_secs(3), &SystemRandom);
        let lost = Status::unavailable("x");
        let mut pauses = Vec::new();
        while let Next::Again(pause) = tries.next(&lost) {
            pauses.push(pause);
        }
        assert!(pauses.len() > 4 && pauses.len() < 20, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= PAUSE_MAX));
        assert!(pauses[0] <= PAUSE_MIN && pauses[0] >= PAUSE_MIN / 2);
    }
}

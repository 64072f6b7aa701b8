//! Time and randomness come from outside, so that every decision can be simulated.

use std::fmt::Debug;

/// Where the time comes from.
pub trait Clock: Debug + Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// Nanoseconds on a clock that never goes back; for durations only.
    fn monotonic_ns(&self) -> u64;
}

/// Where randomness comes from.
pub trait Random: Debug + Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    fn now_ms(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    fn monotonic_ns(&self) -> u64 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let start = START.get_or_init(std::time::Instant::now);
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands still at a given time, as `TIDEGATE_CLOCK` asks for.
#[derive(Clone, Copy, Debug)]
pub struct FixedClock {
    /// Milliseconds since the Unix epoch.
    pub now_ms: i64,
}

impl Clock for FixedClock {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn monotonic_ns(&self) -> u64 {
        SystemClock.monotonic_ns()
    }
}

/// Randomness of the operating system, by way of the hasher keys of the standard library.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u64(SystemClock.monotonic_ns());
        hasher.write_u32(std::process::id());
        hasher.write_i64(SystemClock.now_ms());
        hasher.finish()
    }
}

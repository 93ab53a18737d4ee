//! Defines the clocks of drivers, and waits for a point in time.
//!
//! Drivers read the time from a [`Clock`], so that tests can run drivers in virtual time, which the
//! tests' targets advance.

use std::time::{Duration, Instant};

/// Time as a driver sees it.
pub trait Clock {
    /// The current time.
    fn now(&self) -> Instant;

    /// Returns at `moment`, or as soon after it as the machine can; at once if it has passed.
    fn wait_until(&self, moment: Instant);
}

/// The machine's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// A sleeping thread may wake up this much late; the rest of a wait is spent polling the clock.
const WAKE_LATE: Duration = Duration::from_micros(80);

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait_until(&self, moment: Instant) {
        let left = moment.saturating_duration_since(Instant::now());
        if left > WAKE_LATE {
            std::thread::sleep(left - WAKE_LATE);
        }
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_never_ends_early_and_a_past_moment_is_not_waited_for() {
        let begun = Instant::now();
        SystemClock.wait_until(begun + Duration::from_micros(500));
        assert!(begun.elapsed() >= Duration::from_micros(500));
        let begun = Instant::now();
        SystemClock.wait_until(begun - Duration::from_millis(1));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

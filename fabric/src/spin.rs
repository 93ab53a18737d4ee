//! Decides how long a thread polls for messages before it sleeps.
//!
//! Polling reacts faster than sleeping, but occupies a processor. A process with a quota of less
//! than one processor loses that time for its work, and may be throttled in the middle of it. A
//! thread that waits long for its next message polls in vain each time: [`Spin`] notices that from
//! how long the thread slept afterwards, as hypervisors do for idle processors (KVM's
//! `halt_poll_ns`).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

static IS_ALLOWED: AtomicBool = AtomicBool::new(true);

/// Sets for the whole process whether its threads may poll before they sleep. By default they may.
pub fn allow_spinning(is_allowed: bool) {
    IS_ALLOWED.store(is_allowed, Ordering::Relaxed);
}

/// How long a thread may poll that wants to poll for `time`: not at all if the process must not.
#[must_use]
pub fn spin_time(time: Duration) -> Duration {
    if IS_ALLOWED.load(Ordering::Relaxed) { time } else { Duration::ZERO }
}

/// As [`spin_time`], in microseconds.
pub(crate) fn spin_time_us(time_us: u64) -> Duration {
    spin_time(Duration::from_micros(time_us))
}

/// The polling time of one thread, adapted to whether polling was worthwhile recently.
#[derive(Debug, Clone)]
pub struct Spin {
    longest: Duration,
    time: Duration,
}

impl Spin {
    /// Polls for at most `longest`, and for that long at first.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        Self { longest, time: longest }
    }

    /// How long to poll now.
    #[must_use]
    pub fn time(&self) -> Duration {
        spin_time(self.time)
    }

    /// Reports that the thread has polled in vain and has then slept for `slept`. A short sleep
    /// means that polling longer would have been better: a sleep of at most twice `longest` doubles
    /// the polling time (in a virtual machine, waking up takes about as long as polling). A longer
    /// sleep halves it, down to zero.
    pub fn slept(&mut self, slept: Duration) {
        let least = self.longest / 16;
        self.time = if slept <= self.longest * 2 {
            (self.time * 2).clamp(least, self.longest)
        } else if self.time > least {
            self.time / 2
        } else {
            Duration::ZERO
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(16);

    #[test]
    fn a_thread_that_polls_in_vain_soon_sleeps_at_once_and_one_that_is_woken_at_once_polls_again() {
        let mut spin = Spin::new(LONGEST);
        assert_eq!(spin.time(), LONGEST);
        for _ in 0..5 {
            spin.slept(LONGEST * 3);
        }
        assert_eq!(spin.time(), Duration::ZERO);
        spin.slept(LONGEST * 2);
        assert_eq!(spin.time(), LONGEST / 16);
        for _ in 0..4 {
            spin.slept(LONGEST);
        }
        assert_eq!(spin.time(), LONGEST);
    }

    #[test]
    fn one_long_sleep_among_short_ones_halves_the_time_and_no_more() {
        let mut spin = Spin::new(LONGEST);
        spin.slept(LONGEST * 100);
        assert_eq!(spin.time(), LONGEST / 2);
        spin.slept(Duration::ZERO);
        spin.slept(Duration::ZERO);
        assert_eq!(spin.time(), LONGEST);
    }
}

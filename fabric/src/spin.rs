//! Does this process wait for messages by asking again and again, or by sleeping at once?
//!
//! Asking is quicker, and takes a processor. Where a quota leaves a process less than one, what it
//! spends on asking it lacks for work, and is held back in the middle of it. And a thread whose
//! next message is far away asks in vain each time: [`Spin`] sees that by how long it slept
//! afterwards, as hypervisors do for processors that have nothing to do (KVM's `halt_poll_ns`).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

static IS_ALLOWED: AtomicBool = AtomicBool::new(true);

/// Says for the whole process whether its threads may ask again and again before they sleep. They
/// may unless it was said.
pub fn allow_spinning(is_allowed: bool) {
    IS_ALLOWED.store(is_allowed, Ordering::Relaxed);
}

/// How long a thread may ask that would do so for `time`.
#[must_use]
pub fn spin_time(time: Duration) -> Duration {
    if IS_ALLOWED.load(Ordering::Relaxed) { time } else { Duration::ZERO }
}

/// The same for microseconds.
pub(crate) fn spin_time_us(time_us: u64) -> Duration {
    spin_time(Duration::from_micros(time_us))
}

/// How long one thread asks before it sleeps: as long as asking has paid of late.
#[derive(Debug, Clone)]
pub struct Spin {
    longest: Duration,
    time: Duration,
}

impl Spin {
    /// For at most so long, and for that at first.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        Self { longest, time: longest }
    }

    /// How long to ask now.
    #[must_use]
    pub fn time(&self) -> Duration {
        spin_time(self.time)
    }

    /// The thread has asked in vain, and has then slept so long. Who is woken at once had better
    /// gone on asking: a sleep that is no longer than asking twice at the longest (to be woken
    /// takes as long as to ask, in a virtual machine) makes it longer, any other one shorter, down
    /// to nothing.
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
    fn who_asks_in_vain_soon_sleeps_at_once_and_who_is_woken_at_once_asks_again() {
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

//! Does this process wait for messages by asking again and again, or by sleeping at once?
//!
//! Asking is quicker, and takes a processor. Where a quota leaves a process less than one, what it spends on asking it lacks for work,
//! and is held back in the middle of it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

static IS_ALLOWED: AtomicBool = AtomicBool::new(true);

/// Says for the whole process whether its threads may ask again and again before they sleep. They may unless it was said.
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

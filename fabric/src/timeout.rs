//! Converts durations to the timeouts of system calls.

use std::time::Duration;

use rustix::event::Timespec;

use crate::limits::POLL_TIME_MAX;

/// The timeout of a wait for `time`. A longer one than [`POLL_TIME_MAX`] is cut to it: the caller
/// looks at its clock when it wakes up, and waits again.
#[must_use]
pub fn poll_timeout(time: Duration) -> Timespec {
    Timespec::try_from(time.min(POLL_TIME_MAX)).expect("an hour fits a timespec")
}

//! Limits how much is logged about callers that are turned away.
//!
//! Invariants
//! - In each period at most `COMPLAINTS_MAX` lines are written about single callers, and one line
//!   with the number of the others.

use std::time::Instant;

use crate::{
    error::ConnectError,
    limits::{COMPLAINTS_MAX, COMPLAINTS_PERIOD},
};

/// The log lines of the current period.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    since: Option<Instant>,
    said: u32,
    suppressed: u64,
}

impl Complaints {
    /// Logs that a caller was turned away, unless the period has used its lines.
    pub(super) fn log(&mut self, error: &ConnectError, now: Instant) {
        if self.admits(now) {
            tracing::warn!(%error, "a caller was turned away");
        }
    }

    /// Whether one more line may be written now. Counts the line or its suppression.
    fn admits(&mut self, now: Instant) -> bool {
        self.end_period_if_over(now);
        self.since.get_or_insert(now);
        let admits = self.said < COMPLAINTS_MAX;
        if admits {
            self.said += 1;
        } else {
            self.suppressed += 1;
        }
        admits
    }

    /// When [`Self::end_period_if_over`] will log something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.filter(|_| self.suppressed > 0).map(|since| since + COMPLAINTS_PERIOD)
    }

    /// Ends the period if it is over. Logs and returns how many callers were not named in it.
    pub(super) fn end_period_if_over(&mut self, now: Instant) -> u64 {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= COMPLAINTS_PERIOD;
        if !self.since.is_some_and(is_over) {
            return 0;
        }
        let Self { suppressed, .. } = std::mem::take(self);
        if suppressed > 0 {
            let seconds = COMPLAINTS_PERIOD.as_secs();
            tracing::warn!(suppressed, seconds, "further callers were turned away and are not named");
        }
        suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_callers_gets_a_few_lines_and_the_count_of_the_others() {
        let (mut complaints, now) = (Complaints::default(), Instant::now());
        let admitted = (0..10_000).filter(|_| complaints.admits(now)).count();
        assert_eq!(admitted, COMPLAINTS_MAX as usize);
        let over = now + COMPLAINTS_PERIOD;
        assert_eq!((complaints.deadline(), complaints.end_period_if_over(now)), (Some(over), 0));
        assert_eq!(complaints.end_period_if_over(over), 10_000 - u64::from(COMPLAINTS_MAX));
        assert!(complaints.admits(over), "a new period has begun");
        assert_eq!(
            (complaints.deadline(), complaints.end_period_if_over(over + COMPLAINTS_PERIOD)),
            (None, 0)
        );
    }
}

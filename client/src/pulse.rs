//! When does a node owe a sign of life, and since when is it unresponsive?
//!
//! ```text
//! a request is owed, nothing heard for KEEPALIVE_PERIOD -> keep-alive (a status request, which the node's reactor answers itself)
//!      -> no answer and no other message for so long -> unresponsive; any message ends that
//! ```
//!
//! Invariants
//! - A node that owes nothing is asked nothing, and is not unresponsive.
//! - What had come before a deadline is seen before it is judged: silence is measured up to the
//!   last poll, not up to now.
//! - A node whose requests take long is not unresponsive: its reactor answers keep-alives
//!   meanwhile.

use std::time::{Duration, Instant};

use crate::limits::{KEEPALIVE_PERIOD, LATENESS_ADDED_MAX, LATENESS_FACTOR};

/// The signs of life of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pulse {
    /// When something was heard last, or the node began to owe something.
    heard: Instant,
    /// When the keep-alive was sent that is not answered.
    asked: Option<Instant>,
}

impl Pulse {
    pub(crate) fn new(now: Instant) -> Self {
        Self { heard: now, asked: None }
    }

    /// A message has come.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The keep-alive was answered.
    pub(crate) fn answered(&mut self) {
        self.asked = None;
    }

    /// A keep-alive was sent.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// The node owed nothing, and does from now on.
    pub(crate) fn owes(&mut self, now: Instant) {
        if self.asked.is_none() {
            self.heard = now;
        }
    }

    /// When a keep-alive is to be sent, if none is on its way.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.asked.is_none().then(|| self.heard + KEEPALIVE_PERIOD)
    }

    /// When the node is unresponsive that may take `time` to answer a keep-alive, if one is on its
    /// way.
    pub(crate) fn silent_at(&self, time: Duration) -> Option<Instant> {
        self.asked.map(|asked| asked.max(self.heard) + time)
    }

    /// For how long nothing has been heard.
    pub(crate) fn silent(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }
}

/// How late this process has been to run, of late: a measure of how busy the machine is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lateness {
    late: Duration,
    at: Instant,
}

impl Lateness {
    pub(crate) fn new(now: Instant) -> Self {
        Self { late: Duration::ZERO, at: now }
    }

    /// This process ran so much later than it wanted to.
    pub(crate) fn note(&mut self, late: Duration, now: Instant) {
        if late >= self.now(now) {
            *self = Self { late, at: now };
        }
    }

    /// What is left of it: half after each second.
    fn now(&self, now: Instant) -> Duration {
        let seconds = now.saturating_duration_since(self.at).as_secs();
        self.late / 2_u32.pow(u32::try_from(seconds.min(30)).unwrap_or(30))
    }

    /// A time for an answer, longer on a machine where this process is late itself.
    pub(crate) fn lengthen(&self, time: Duration, now: Instant) -> Duration {
        time + (self.now(now) * LATENESS_FACTOR).min(LATENESS_ADDED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::KEEPALIVE_TIME_MAX;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_node_is_unresponsive_only_after_a_keep_alive_went_unanswered() {
        let begun = Instant::now();
        let mut pulse = Pulse::new(begun);
        assert_eq!(
            (pulse.due(), pulse.silent_at(KEEPALIVE_TIME_MAX)),
            (Some(begun + KEEPALIVE_PERIOD), None)
        );
        pulse.asked(begun + 300 * MS);
        assert_eq!(pulse.silent_at(KEEPALIVE_TIME_MAX), Some(begun + 300 * MS + KEEPALIVE_TIME_MAX));
        assert_eq!((pulse.due(), pulse.silent(begun + 800 * MS)), (None, 800 * MS));
    }

    #[test]
    fn any_message_is_a_sign_of_life_and_an_answer_ends_the_question() {
        let begun = Instant::now();
        let mut pulse = Pulse::new(begun);
        pulse.asked(begun + 300 * MS);
        pulse.heard(begun + 900 * MS);
        assert_eq!(pulse.silent_at(KEEPALIVE_TIME_MAX), Some(begun + 900 * MS + KEEPALIVE_TIME_MAX));
        pulse.answered();
        assert_eq!(pulse.silent_at(KEEPALIVE_TIME_MAX), None);
        assert_eq!(pulse.due(), Some(begun + 900 * MS + KEEPALIVE_PERIOD));
    }

    #[test]
    fn a_node_that_owed_nothing_for_long_has_its_time_from_the_next_request_on() {
        let begun = Instant::now();
        let mut pulse = Pulse::new(begun);
        pulse.owes(begun + 60_000 * MS);
        assert_eq!(pulse.due(), Some(begun + 60_000 * MS + KEEPALIVE_PERIOD));
        // But an open question is not asked anew by asking for more.
        pulse.asked(begun + 60_300 * MS);
        pulse.owes(begun + 60_900 * MS);
        assert_eq!(pulse.silent_at(KEEPALIVE_TIME_MAX), Some(begun + 60_300 * MS + KEEPALIVE_TIME_MAX));
    }

    #[test]
    fn who_is_late_itself_gives_nodes_more_time_for_a_while_and_not_without_end() {
        let begun = Instant::now();
        let mut lateness = Lateness::new(begun);
        assert_eq!(lateness.lengthen(KEEPALIVE_TIME_MAX, begun), KEEPALIVE_TIME_MAX);
        lateness.note(100 * MS, begun);
        lateness.note(10 * MS, begun);
        assert_eq!(lateness.lengthen(KEEPALIVE_TIME_MAX, begun), KEEPALIVE_TIME_MAX + 800 * MS);
        assert_eq!(lateness.lengthen(KEEPALIVE_TIME_MAX, begun + 2_000 * MS), KEEPALIVE_TIME_MAX + 200 * MS);
        lateness.note(3_600_000 * MS, begun);
        assert_eq!(lateness.lengthen(KEEPALIVE_TIME_MAX, begun), KEEPALIVE_TIME_MAX + LATENESS_ADDED_MAX);
    }
}

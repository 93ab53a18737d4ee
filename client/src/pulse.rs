//! Decides when to send a keep-alive to a node, and when a node that does not answer it is
//! unresponsive.
//!
//! ```text
//! the node owes a reply and has sent nothing for KEEPALIVE_PERIOD -> keep-alive: a status request, which the node's reactor answers itself
//!   -> no answer and no other message for a given time            -> the node is unresponsive, until any message arrives
//! ```
//!
//! Invariants
//! - A node that owes no reply gets no keep-alive, and is not unresponsive.
//! - Messages that arrived before a deadline are taken into account: silence is measured up to the
//!   last poll, not up to now.
//! - A node whose requests take long is not unresponsive: its reactor answers keep-alives
//!   meanwhile.

use std::time::{Duration, Instant};

use crate::limits::{KEEPALIVE_PERIOD, LATENESS_ADDED_MAX, LATENESS_FACTOR};

/// The keep-alive state of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pulse {
    /// When the last message was heard, or the node began to owe something.
    heard_at: Instant,
    /// When the unanswered keep-alive was sent.
    keepalive_at: Option<Instant>,
}

impl Pulse {
    pub(crate) fn new(now: Instant) -> Self {
        Self { heard_at: now, keepalive_at: None }
    }

    /// A message has come.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// The keep-alive was answered.
    pub(crate) fn keepalive_answered(&mut self) {
        self.keepalive_at = None;
    }

    /// A keep-alive was sent.
    pub(crate) fn keepalive_sent(&mut self, now: Instant) {
        self.keepalive_at = Some(now);
    }

    /// The node owed nothing before, and does from now on.
    pub(crate) fn begin_owing(&mut self, now: Instant) {
        if self.keepalive_at.is_none() {
            self.heard_at = now;
        }
    }

    /// When to send a keep-alive, if none is outstanding.
    pub(crate) fn keepalive_due(&self) -> Option<Instant> {
        self.keepalive_at.is_none().then(|| self.heard_at + KEEPALIVE_PERIOD)
    }

    /// When the node becomes unresponsive if it may take `time` to answer a keep-alive; `None` if
    /// no keep-alive is outstanding.
    pub(crate) fn unresponsive_at(&self, time: Duration) -> Option<Instant> {
        self.keepalive_at.map(|asked| asked.max(self.heard_at) + time)
    }

    /// How long nothing has been heard.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard_at)
    }
}

/// How late this process ran recently: a measure of how busy the machine is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lateness {
    late: Duration,
    at: Instant,
}

impl Lateness {
    pub(crate) fn new(now: Instant) -> Self {
        Self { late: Duration::ZERO, at: now }
    }

    /// Records that this process ran `late` later than it wanted to.
    pub(crate) fn note(&mut self, late: Duration, now: Instant) {
        if late >= self.now(now) {
            *self = Self { late, at: now };
        }
    }

    /// The recorded lateness, halved after each second.
    fn now(&self, now: Instant) -> Duration {
        let seconds = now.saturating_duration_since(self.at).as_secs();
        let halvings = u32::try_from(seconds.min(30)).expect("the halvings: at most 30");
        self.late / 2_u32.pow(halvings)
    }

    /// A time limit for an answer, longer if this process is late itself.
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
            (pulse.keepalive_due(), pulse.unresponsive_at(KEEPALIVE_TIME_MAX)),
            (Some(begun + KEEPALIVE_PERIOD), None)
        );
        pulse.keepalive_sent(begun + 300 * MS);
        assert_eq!(pulse.unresponsive_at(KEEPALIVE_TIME_MAX), Some(begun + 300 * MS + KEEPALIVE_TIME_MAX));
        assert_eq!((pulse.keepalive_due(), pulse.silence(begun + 800 * MS)), (None, 800 * MS));
    }

    #[test]
    fn any_message_is_a_sign_of_life_and_an_answer_ends_the_question() {
        let begun = Instant::now();
        let mut pulse = Pulse::new(begun);
        pulse.keepalive_sent(begun + 300 * MS);
        pulse.heard(begun + 900 * MS);
        assert_eq!(pulse.unresponsive_at(KEEPALIVE_TIME_MAX), Some(begun + 900 * MS + KEEPALIVE_TIME_MAX));
        pulse.keepalive_answered();
        assert_eq!(pulse.unresponsive_at(KEEPALIVE_TIME_MAX), None);
        assert_eq!(pulse.keepalive_due(), Some(begun + 900 * MS + KEEPALIVE_PERIOD));
    }

    #[test]
    fn a_node_that_owed_nothing_for_long_has_its_time_from_the_next_request_on() {
        let begun = Instant::now();
        let mut pulse = Pulse::new(begun);
        pulse.begin_owing(begun + 60_000 * MS);
        assert_eq!(pulse.keepalive_due(), Some(begun + 60_000 * MS + KEEPALIVE_PERIOD));
        // But an open question is not asked anew by asking for more.
        pulse.keepalive_sent(begun + 60_300 * MS);
        pulse.begin_owing(begun + 60_900 * MS);
        assert_eq!(pulse.unresponsive_at(KEEPALIVE_TIME_MAX), Some(begun + 60_300 * MS + KEEPALIVE_TIME_MAX));
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

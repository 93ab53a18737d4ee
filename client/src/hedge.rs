//! Detects outpaced requests: requests that take far longer than other nodes took for similar ones
//! in the same time.
//!
//! ```text
//! request to node 2        ------------------------------------> outpaced: its pages are also reconstructed, the first result counts
//! similar requests         ------> answered ------> answered     at least OUTPACED_ANSWERS_MIN of them, at other nodes,
//! to other nodes                                                 while the request to node 2 was outstanding
//! ```
//!
//! Invariants
//! - A request is compared only with answers of other nodes that ended while it was outstanding. So
//!   load that slows all nodes outpaces none of them, and there is nothing to configure.
//! - The memory of a request whose caller has stopped waiting stays reserved until its reply has
//!   come or its connection has ended.
//! - A caller stops waiting for a slow node only if it could also proceed without an unavailable
//!   node.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use az::SaturatingAs;
use tokio::sync::oneshot;

use crate::limits::{ANSWERS_KEPT, OUTPACED_ADDED, OUTPACED_ANSWERS_MIN, OUTPACED_FACTOR, SLOW_PERIOD};

/// Notifies a caller that other nodes were faster.
#[derive(Debug)]
pub(crate) struct Hedge {
    /// The size of the request: bytes, or 1 if that is not known.
    pub(crate) weight: u64,
    /// Is notified once when the request is outpaced.
    pub(crate) notice: Option<oneshot::Sender<()>>,
}

impl Hedge {
    pub(crate) fn of(weight: u64) -> (Self, oneshot::Receiver<()>) {
        let (notice, noticed) = oneshot::channel();
        (Self { weight, notice: Some(notice) }, noticed)
    }
}

/// The time that a node took to answer a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerTime {
    /// The node's position.
    pub(crate) node: usize,
    pub(crate) during: &'static str,
    pub(crate) weight: u64,
    pub(crate) asked: Instant,
    pub(crate) ended: Instant,
}

/// The latest answers of all nodes.
#[derive(Debug, Default)]
pub(crate) struct AnswerTimes(VecDeque<AnswerTime>);

impl AnswerTimes {
    pub(crate) fn note(&mut self, answered: AnswerTime) {
        if self.0.len() >= ANSWERS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(answered);
    }

    /// How long a request of this weight, sent at `asked`, may take; `None` if too few similar
    /// requests were answered since.
    pub(crate) fn allow(
        &self,
        node: usize,
        during: &'static str,
        (weight, asked): (u64, Instant),
    ) -> Option<Duration> {
        let alike = self.0.iter().filter(|of| of.node != node && of.during == during && of.ended > asked);
        let scaled = alike.map(|of| {
            let took = of.ended.saturating_duration_since(of.asked);
            let times = weight.div_ceil(of.weight.max(1)).max(1);
            // A larger ratio allows about as much: years.
            took.saturating_mul(times.saturating_as::<u32>())
        });
        let (count, longest) =
            scaled.fold((0, Duration::ZERO), |(count, longest), took| (count + 1, longest.max(took)));
        (count >= OUTPACED_ANSWERS_MIN)
            .then(|| longest.saturating_mul(OUTPACED_FACTOR).saturating_add(OUTPACED_ADDED))
    }
}

/// The time until which a node's pages are reconstructed at once because other nodes were faster.
#[derive(Debug, Default)]
pub(crate) struct SlowUntil(Mutex<Option<Instant>>);

impl SlowUntil {
    pub(crate) fn is_slow(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + SLOW_PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn answers(begun: Instant, took: &[(usize, u64, u32)]) -> AnswerTimes {
        let mut answers = AnswerTimes::default();
        for (node, weight, ms) in took {
            let (asked, ended) = (begun, begun + *ms * MS);
            answers.note(AnswerTime { node: *node, during: "fetch", weight: *weight, asked, ended });
        }
        answers
    }

    #[test]
    fn a_request_is_outpaced_by_the_longest_of_like_answers_of_others() {
        let begun = Instant::now();
        let answers = answers(begun, &[(0, 100, 10), (2, 100, 30), (3, 100, 20), (1, 100, 9_000)]);
        let allowed = answers.allow(1, "fetch", (100, begun));
        assert_eq!(allowed, Some(30 * MS * OUTPACED_FACTOR + OUTPACED_ADDED));
        assert_eq!(answers.allow(1, "process", (100, begun)), None, "nothing like it was answered");
        assert_eq!(answers.allow(1, "fetch", (100, begun + 25 * MS)), None, "only one ended since");
    }

    #[test]
    fn who_asks_for_more_may_take_longer() {
        let begun = Instant::now();
        let answers = answers(begun, &[(0, 100, 10), (2, 1000, 20), (3, 100, 10)]);
        assert_eq!(
            answers.allow(1, "fetch", (1000, begun)),
            Some(100 * MS * OUTPACED_FACTOR + OUTPACED_ADDED)
        );
    }

    #[test]
    fn answers_that_are_remembered_are_bounded() {
        let begun = Instant::now();
        let many: Vec<_> = (0..1000).map(|_| (0, 1, 10)).collect();
        assert_eq!(answers(begun, &many).0.len(), ANSWERS_KEPT);
    }
}

//! Handles a silent node: sends keep-alives, and fails the requests of callers that should not wait
//! any longer.
//!
//! Invariants
//! - A caller that does not need this node gets an error as soon as a keep-alive is not answered in
//!   time; all other callers get it when the node has been silent for longer.
//! - A posted request is never forgotten for that reason: its memory stays reserved until the node
//!   answers or its connection has ended.

use std::time::{Duration, Instant};

use rackscan_fabric::Operation;
use rackscan_format::{
    ids::RequestId,
    message::{Request, RequestMessage},
};

use super::{KEEPALIVE, NodeConnection, Outstanding, Peer, State, answer};
use crate::{
    dial::Dial,
    driver::job::Job,
    hedge::{AnswerTime, AnswerTimes},
    limits::{
        CONNECT_GRACE, EXPIRY_PERIOD, KEEPALIVE_TIME_MAX, OUTPACED_LOOK_PERIOD, REQUESTS_PER_NODE_MAX,
        UNRESPONSIVE_TIME_MAX,
    },
    pulse::Lateness,
};

impl NodeConnection {
    /// Sends a keep-alive to a silent node, and fails requests if it does not answer. All events up
    /// to `now` must have been handled.
    pub(in crate::driver) fn check_silence(&mut self, now: Instant, lateness: &Lateness) {
        if let State::Dialling(since) = self.state {
            let time = lateness.lengthen(CONNECT_GRACE, now);
            if now >= since + time && self.keeps_trying {
                self.mark_unresponsive(since);
                self.give_up_waiting(since, now);
            }
            return;
        }
        if !matches!(self.state, State::Open { .. }) {
            return;
        }
        let silent = self.pulse.silence(now);
        if self.is_owed() && self.pulse.keepalive_due().is_some_and(|due| due <= now) {
            self.keep_alive(now);
        }
        let is_silent =
            |time| self.pulse.unresponsive_at(lateness.lengthen(time, now)).is_some_and(|at| at <= now);
        let (is_soon, is_late) = (is_silent(KEEPALIVE_TIME_MAX), is_silent(UNRESPONSIVE_TIME_MAX));
        if !is_soon {
            return;
        }
        let since = now.checked_sub(silent).unwrap_or(now);
        self.mark_unresponsive(since);
        self.reads.give_up();
        let gives_up = |outstanding: &&mut Outstanding| is_late || outstanding.job.can_go_without;
        for outstanding in self.outstanding.values_mut().filter(gives_up) {
            outstanding.give_up(&self.dial, silent);
        }
        self.give_up_waiting(since, now);
        if self.outstanding.values().filter(|outstanding| outstanding.is_given_up).count()
            > REQUESTS_PER_NODE_MAX
        {
            self.end("it answers keep-alives, but too few requests", Peer::MayWrite);
        }
    }

    /// Notifies callers whose requests are outpaced.
    pub(in crate::driver) fn check_hedges(&mut self, node: usize, now: Instant, answers: &AnswerTimes) {
        for Outstanding { job, asked, .. } in self.outstanding.values_mut() {
            let Some(race) = job.race.as_mut().filter(|race| race.notice.is_some()) else { continue };
            let allowed = answers.allow(node, job.during, (race.weight, *asked));
            if allowed.is_some_and(|allowed| now.saturating_duration_since(*asked) > allowed)
                && let Some(notice) = race.notice.take()
            {
                // The caller may have gone.
                let _ = notice.send(());
            }
        }
    }

    pub(super) fn mark_unresponsive(&self, since: Instant) {
        if self.node_state.mark_unresponsive(since) {
            let (node, address) = (self.dial.node, &self.dial.address);
            tracing::warn!(%node, %address, "a node is unresponsive: it is connected and does not answer");
        }
    }

    /// Fails requests that were not sent: those that other nodes can make up for, and all after too
    /// long a time.
    fn give_up_waiting(&mut self, since: Instant, now: Instant) {
        let silent = now.saturating_duration_since(since);
        let is_late = silent >= UNRESPONSIVE_TIME_MAX;
        while let Some(at) = self.waiting.iter().position(|job| is_late || job.can_go_without) {
            if let Some(job) = self.waiting.remove(at) {
                let error = self.dial.unresponsive(job.during, silent);
                answer(job, Err(error));
            }
        }
    }

    pub(super) fn keep_alive(&mut self, now: Instant) {
        let State::Open { connection, .. } = &mut self.state else { return };
        let message = RequestMessage { id: RequestId(KEEPALIVE), request: Request::Status };
        // A full queue has room again later, and the connection reports its end.
        if let Ok(bytes) = message.encode()
            && connection.post(KEEPALIVE, Operation::Send { bytes: &bytes }).is_ok()
        {
            self.pulse.keepalive_sent(now);
        }
    }

    /// Whether a caller waits for the node.
    pub(super) fn is_owed(&self) -> bool {
        self.reads.are_awaited() || self.outstanding.values().any(|outstanding| !outstanding.is_given_up)
    }

    pub(in crate::driver) fn next_deadline(&self, now: Instant, lateness: &Lateness) -> Option<Instant> {
        let awaited = self.outstanding.values().filter(|outstanding| !outstanding.is_given_up);
        let awaited = awaited.map(|outstanding| &outstanding.job).chain(&self.waiting);
        let is_known = self.node_state.unresponsive_for().is_some();
        let sign = match self.state {
            State::Dialling(since) if self.keeps_trying && !is_known => {
                Some(since + lateness.lengthen(CONNECT_GRACE, now))
            }
            State::Open { .. } if self.is_owed() => {
                let time = if is_known { UNRESPONSIVE_TIME_MAX } else { KEEPALIVE_TIME_MAX };
                let silent_at = self.pulse.unresponsive_at(lateness.lengthen(time, now));
                // An overdue keep-alive that could not be posted is tried again soon.
                self.pulse.keepalive_due().or(silent_at).map(|at| at.max(now + EXPIRY_PERIOD))
            }
            _ => None,
        };
        let is_racing = |job: &Job| job.race.as_ref().is_some_and(|race| race.notice.is_some());
        let race = self.outstanding.values().any(|of| !of.is_given_up && is_racing(&of.job));
        let sign = sign.into_iter().chain(race.then(|| now + OUTPACED_LOOK_PERIOD));
        awaited.map(|job| job.deadline).chain(self.reads.deadline()).chain(sign).min()
    }

    /// Whether there are requests that only the closing cluster waits for.
    pub(in crate::driver) fn has_detached(&self) -> bool {
        // Closing does not wait for a node that does not answer.
        let awaited = self.outstanding.values().filter(|outstanding| !outstanding.is_given_up);
        let jobs = awaited.map(|outstanding| &outstanding.job).chain(&self.waiting);
        let mut jobs = jobs.chain(self.deferred.iter().map(|(_, job)| job));
        self.node_state.unresponsive_for().is_none() && jobs.any(|job| job.answer.is_none())
    }
}

impl Outstanding {
    /// The time that the answer took, if the request is hedged.
    pub(super) fn answered(&self) -> Option<AnswerTime> {
        let weight = self.job.race.as_ref()?.weight;
        let (during, asked, ended) = (self.job.during, self.asked, Instant::now());
        // The caller fills in the node.
        Some(AnswerTime { node: usize::MAX, during, weight, asked, ended })
    }

    /// Tells the caller that the node is unresponsive. The request stays outstanding, and its
    /// memory with it.
    fn give_up(&mut self, dial: &Dial, silent: Duration) {
        if std::mem::replace(&mut self.is_given_up, true) {
            return;
        }
        if let Some(span) = &self.job.span {
            span.suspend();
        }
        // Other callers may send requests meanwhile; they are refused, or wait as this one did.
        self.job.permit = None;
        if let Some(caller) = self.job.answer.take() {
            drop(caller.send(Err(dial.unresponsive(self.job.during, silent))));
        }
    }
}

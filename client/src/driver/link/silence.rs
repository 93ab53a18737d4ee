//! What becomes of requests to a node that says nothing?
//!
//! Invariants
//! - Who can do without the node is told when a keep-alive was not answered in time; all others
//!   when the node has been silent for longer.
//! - Nothing that was posted is forgotten for that: its memory stays the node's until it answers or
//!   its connection has ended.

use std::time::{Duration, Instant};

use rackscan_fabric::Operation;
use rackscan_format::{
    ids::RequestId,
    message::{Request, RequestMessage},
};

use super::{KEEPALIVE, Link, Outstanding, Peer, State, answer};
use crate::{
    ClientError,
    dial::Dial,
    driver::Job,
    limits::{
        CONNECT_GRACE, EXPIRY_PERIOD, KEEPALIVE_TIME_MAX, OUTPACED_LOOK_PERIOD, REQUESTS_PER_NODE_MAX,
        UNRESPONSIVE_TIME_MAX,
    },
    pulse::Lateness,
    race::{Answered, Answers},
};

impl Link {
    /// Asks a node that says nothing whether it is there, and tells callers if it does not answer.
    /// What had come until `now` was seen.
    pub(in crate::driver) fn see_to(&mut self, now: Instant, lateness: &Lateness) {
        if let State::Dialling(since) = self.state {
            let time = lateness.lengthen(CONNECT_GRACE, now);
            if now >= since + time && self.keeps_trying {
                self.is_silent(since);
                self.give_up_waiting(since, now);
            }
            return;
        }
        if !matches!(self.state, State::Up { .. }) {
            return;
        }
        let silent = self.pulse.silent(now);
        if self.is_owed() && self.pulse.due().is_some_and(|due| due <= now) {
            self.keep_alive(now);
        }
        let is_silent = |time| self.pulse.silent_at(lateness.lengthen(time, now)).is_some_and(|at| at <= now);
        let (is_soon, is_late) = (is_silent(KEEPALIVE_TIME_MAX), is_silent(UNRESPONSIVE_TIME_MAX));
        if !is_soon {
            return;
        }
        let since = now.checked_sub(silent).unwrap_or(now);
        self.is_silent(since);
        self.reads.give_up();
        let gives_up = |outstanding: &&mut Outstanding| is_late || outstanding.job.goes_without;
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

    /// Tells callers whose requests are outpaced.
    pub(in crate::driver) fn see_to_races(&mut self, node: usize, now: Instant, answers: &Answers) {
        for Outstanding { job, asked, .. } in self.outstanding.values_mut() {
            let Some(race) = job.race.as_mut().filter(|race| race.notice.is_some()) else { continue };
            let allowed = answers.allow(node, job.during, (race.weight, *asked));
            if allowed.is_some_and(|allowed| now.saturating_duration_since(*asked) > allowed)
                && let Some(notice) = race.notice.take()
            {
                // A caller who has left does not mind.
                let _ = notice.send(());
            }
        }
    }

    pub(super) fn is_silent(&self, since: Instant) {
        if self.away.falls_silent(since) {
            let (node, address) = (self.dial.node, &self.dial.address);
            tracing::warn!(%node, %address, "a node is unresponsive: it takes connections and does not answer");
        }
    }

    /// Requests that were not sent, and that others make up for, or that have waited for too long.
    fn give_up_waiting(&mut self, since: Instant, now: Instant) {
        let silent = now.saturating_duration_since(since);
        let is_late = silent >= UNRESPONSIVE_TIME_MAX;
        while let Some(at) = self.waiting.iter().position(|job| is_late || job.goes_without) {
            if let Some(job) = self.waiting.remove(at) {
                let error = unresponsive(&self.dial, job.during, silent);
                answer(job, Err(error));
            }
        }
    }

    pub(super) fn keep_alive(&mut self, now: Instant) {
        let State::Up { connection, .. } = &mut self.state else { return };
        let message = RequestMessage { id: RequestId(KEEPALIVE), request: Request::Status };
        // A full queue has room again later, and an end is reported by the connection.
        if let Ok(bytes) = message.encode()
            && connection.post(KEEPALIVE, Operation::Send { bytes: &bytes }).is_ok()
        {
            self.pulse.asked(now);
        }
    }

    /// Whether somebody waits for the node.
    pub(super) fn is_owed(&self) -> bool {
        self.reads.are_awaited() || self.outstanding.values().any(|outstanding| !outstanding.is_given_up)
    }

    pub(in crate::driver) fn next_deadline(&self, now: Instant, lateness: &Lateness) -> Option<Instant> {
        let awaited = self.outstanding.values().filter(|outstanding| !outstanding.is_given_up);
        let awaited = awaited.map(|outstanding| &outstanding.job).chain(&self.waiting);
        let is_known = self.away.silent().is_some();
        let sign = match self.state {
            State::Dialling(since) if self.keeps_trying && !is_known => {
                Some(since + lateness.lengthen(CONNECT_GRACE, now))
            }
            State::Up { .. } if self.is_owed() => {
                let time = if is_known { UNRESPONSIVE_TIME_MAX } else { KEEPALIVE_TIME_MAX };
                let silent_at = self.pulse.silent_at(lateness.lengthen(time, now));
                // What is overdue, and could not be done, is tried again before long.
                self.pulse.due().or(silent_at).map(|at| at.max(now + EXPIRY_PERIOD))
            }
            _ => None,
        };
        let is_racing = |job: &Job| job.race.as_ref().is_some_and(|race| race.notice.is_some());
        let race = self.outstanding.values().any(|of| !of.is_given_up && is_racing(&of.job));
        let sign = sign.into_iter().chain(race.then(|| now + OUTPACED_LOOK_PERIOD));
        awaited.map(|job| job.deadline).chain(self.reads.deadline()).chain(sign).min()
    }

    /// Whether there are requests that nobody but the closing cluster waits for.
    pub(in crate::driver) fn has_detached(&self) -> bool {
        // Nobody waits for a node that does not answer.
        let awaited = self.outstanding.values().filter(|outstanding| !outstanding.is_given_up);
        let jobs = awaited.map(|outstanding| &outstanding.job).chain(&self.waiting);
        let mut jobs = jobs.chain(self.deferred.iter().map(|(_, job)| job));
        self.away.silent().is_none() && jobs.any(|job| job.answer.is_none())
    }
}

impl Outstanding {
    /// What others are compared with, if it is.
    pub(super) fn answered(&self) -> Option<Answered> {
        let weight = self.job.race.as_ref()?.weight;
        let (during, asked, ended) = (self.job.during, self.asked, Instant::now());
        // Its owner knows which node this is.
        Some(Answered { node: usize::MAX, during, weight, asked, ended })
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
        // Others may ask meanwhile; they are refused, or wait for the node as this one did.
        self.job.permit = None;
        if let Some(caller) = self.job.answer.take() {
            drop(caller.send(Err(unresponsive(dial, self.job.during, silent))));
        }
    }
}

pub(super) fn unresponsive(dial: &Dial, during: &'static str, silent: Duration) -> ClientError {
    ClientError::Unresponsive { node: dial.node, address: dial.address.clone(), during, silent }
}

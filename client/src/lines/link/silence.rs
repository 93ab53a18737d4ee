//! When is a node lost because it says nothing?
//!
//! Invariants
//! - A node that owes nothing is asked nothing, and is not lost for its silence.

use std::time::Instant;

use rackscan_fabric::Operation;
use rackscan_format::{
    ids::RequestId,
    message::{Request, RequestMessage},
};

use super::{KEEPALIVE, Link, MESSAGE, Owed, State};
use crate::{
    LineEvent,
    limits::{CONNECT_GRACE, CONNECT_TIME_MAX},
    pulse::Lateness,
};

impl Link {
    /// Whether the first attempt to connect has not ended.
    pub(in crate::lines) fn first_dial_goes_on(&self) -> bool {
        self.first_dialled.is_some()
    }

    /// Whether it is being connected to for the first time, and not for too long: then nobody knows
    /// yet whether it is away.
    pub(in crate::lines) fn is_awaited(&self, now: Instant) -> bool {
        // The attempt ends first, and says why.
        self.first_dialled.is_some_and(|since| now < since + CONNECT_TIME_MAX + CONNECT_GRACE)
    }

    /// Nobody waits any longer for the end of the first attempt to connect.
    pub(in crate::lines) fn is_late(&mut self) {
        if let Some(since) = self.first_dialled {
            let seconds = since.elapsed().as_secs_f64();
            self.was_silent = true;
            self.reason = format!(
                "it has been unresponsive for {seconds:.1} s: it does not answer who connects to it, and is still being connected to"
            );
        }
    }

    /// Loses the node if it has been silent for too long, and asks one that says nothing whether it
    /// is there.
    pub(in crate::lines) fn expire(
        &mut self,
        node: usize,
        (now, lateness): (Instant, &Lateness),
        events: &mut Vec<LineEvent>,
    ) {
        let owes = self.outstanding();
        if self.silent_until().is_some_and(|until| until <= now) {
            let reason = format!("it owes {owes} replies and was silent for {:?}", self.patience);
            return self.lose_as(node, &reason, events);
        }
        if owes == 0 || self.up().is_none() {
            return;
        }
        if self.pulse.due().is_some_and(|due| due <= now) {
            self.keep_alive(now);
        }
        let time = lateness.lengthen(self.keepalive_time, now);
        if self.pulse.silent_at(time).is_some_and(|at| at <= now) {
            let seconds = self.pulse.silent(now).as_secs_f64();
            let reason = format!(
                "it has been unresponsive for {seconds:.1} s: it owes {owes} replies and does not answer a keep-alive"
            );
            self.lose_as(node, &reason, events);
            self.was_silent = true;
        }
    }

    /// Whether it is away because it says nothing.
    pub(in crate::lines) fn is_unresponsive(&self) -> bool {
        self.was_silent && self.up().is_none()
    }

    /// Sends a status request, which the node's reactor answers itself; nobody waits for the reply.
    fn keep_alive(&mut self, now: Instant) {
        let message = RequestMessage { id: RequestId(KEEPALIVE), request: Request::Status };
        // A full queue has room again later, and an end is reported by the connection.
        if let Ok(bytes) = message.encode()
            && self.post(MESSAGE, Operation::Send { bytes: &bytes }, false).is_ok()
        {
            self.owed.push(Owed { tag: KEEPALIVE, post: None, forgotten: true });
            self.pulse.asked(now);
        }
    }

    /// Until when it may be silent, if it owes something.
    pub(in crate::lines) fn silent_until(&self) -> Option<Instant> {
        (self.outstanding() > 0).then(|| self.heard + self.patience)
    }

    /// When something is to be done about it even if nothing comes.
    pub(in crate::lines) fn next_deadline(&self, now: Instant, lateness: &Lateness) -> Option<Instant> {
        match self.state {
            State::Up(_) => {
                let until = self.silent_until()?;
                let silent_at = self.pulse.silent_at(lateness.lengthen(self.keepalive_time, now));
                self.pulse.due().or(silent_at).map(|at| at.min(until))
            }
            State::Dialling => None,
            State::Down(at) => Some(at),
        }
    }
}

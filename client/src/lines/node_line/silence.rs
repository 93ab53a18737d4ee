//! Decides when a silent node of `Lines` is lost.
//!
//! Invariants
//! - A node that owes no reply gets no keep-alive, and is not lost because it is silent.

use std::time::Instant;

use rackscan_fabric::Operation;
use rackscan_format::{
    ids::RequestId,
    message::{Request, RequestMessage},
};

use super::{KEEPALIVE, MESSAGE, NodeLine, Owed, State};
use crate::{
    LineEvent,
    limits::{CONNECT_GRACE, CONNECT_TIME_MAX},
    pulse::Lateness,
};

impl NodeLine {
    /// Whether the first dial has not ended.
    pub(in crate::lines) fn first_dial_goes_on(&self) -> bool {
        self.first_dialled.is_some()
    }

    /// Whether the first dial has not ended, and has not lasted too long: then it is not known yet
    /// whether the node is unavailable.
    pub(in crate::lines) fn is_awaited(&self, now: Instant) -> bool {
        // The dial should end before that, and say why.
        self.first_dialled.is_some_and(|since| now < since + CONNECT_TIME_MAX + CONNECT_GRACE)
    }

    /// Stops waiting for the first dial: the node counts as unresponsive until the dial ends.
    pub(in crate::lines) fn give_up_first_dial(&mut self) {
        if let Some(since) = self.first_dialled {
            let seconds = since.elapsed().as_secs_f64();
            self.was_silent = true;
            self.reason = format!(
                "it has been unresponsive for {seconds:.1} s: it does not answer the connection attempt, which goes on"
            );
        }
    }

    /// Loses the node if it has been silent for too long, and sends a keep-alive to a silent node.
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
        if owes == 0 || self.open().is_none() {
            return;
        }
        if self.pulse.keepalive_due().is_some_and(|due| due <= now) {
            self.keep_alive(now);
        }
        let time = lateness.lengthen(self.keepalive_time, now);
        if self.pulse.unresponsive_at(time).is_some_and(|at| at <= now) {
            let seconds = self.pulse.silence(now).as_secs_f64();
            let reason = format!(
                "it has been unresponsive for {seconds:.1} s: it owes {owes} replies and does not answer a keep-alive"
            );
            self.lose_as(node, &reason, events);
            self.was_silent = true;
        }
    }

    /// Whether the node is unavailable because it does not answer.
    pub(in crate::lines) fn is_unresponsive(&self) -> bool {
        self.was_silent && self.open().is_none()
    }

    /// Sends a status request, which the node's reactor answers itself; nobody waits for the reply.
    fn keep_alive(&mut self, now: Instant) {
        let message = RequestMessage { id: RequestId(KEEPALIVE), request: Request::Status };
        // A full queue has room again later, and the connection reports its end.
        if let Ok(bytes) = message.encode()
            && self.post(MESSAGE, Operation::Send { bytes: &bytes }, false).is_ok()
        {
            self.owed.push(Owed { tag: KEEPALIVE, post: None, forgotten: true });
            self.pulse.keepalive_sent(now);
        }
    }

    /// Until when the node may be silent, if it owes something.
    pub(in crate::lines) fn silent_until(&self) -> Option<Instant> {
        (self.outstanding() > 0).then(|| self.heard + self.patience)
    }

    /// The next time at which something must be done for this node even without an event.
    pub(in crate::lines) fn next_deadline(&self, now: Instant, lateness: &Lateness) -> Option<Instant> {
        match self.state {
            State::Open(_) => {
                let until = self.silent_until()?;
                let silent_at = self.pulse.unresponsive_at(lateness.lengthen(self.keepalive_time, now));
                self.pulse.keepalive_due().or(silent_at).map(|at| at.min(until))
            }
            State::Dialling => None,
            State::Down(at) => Some(at),
        }
    }
}

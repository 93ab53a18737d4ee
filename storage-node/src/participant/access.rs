//! Passes requests from any reactor to the participant, which belongs to the first reactor, and
//! passes its replies back.
//!
//! Invariants
//! - The number that identifies a caller is never reused, so replies to a request that has ended
//!   are dropped.
//! - All replies to a request arrive together.
//! - The number of waiting requests is bounded by the requests that reactors have in progress.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use rackscan_ramp::message::{Reply, Request};

use super::{
    arrival::Arrival,
    caller::{Caller, ParticipantRequest, is_answered},
    report::Report,
    service::ParticipantService,
};
use crate::{
    ids::{ConnectionId, TaskIndex},
    message_queue::{Mail, MessageQueue},
    peers::PeerReport,
};

/// The location of the participant, seen from a reactor.
#[derive(Debug)]
enum ParticipantLocation {
    /// The node keeps no keys.
    Absent,
    /// This reactor has the participant.
    Here(Box<ParticipantService>),
    /// This reactor will get the participant when it is recovered.
    Awaited(Arc<Arrival>),
    /// The first reactor has the participant.
    FirstReactor(Arc<MessageQueue>),
}

/// What the first reactor gets at start.
#[derive(Debug)]
pub(crate) enum FirstParticipant {
    /// The participant.
    Here(Box<ParticipantService>),
    /// The place where the recovered participant will be left.
    Awaited(Arc<Arrival>),
}

/// A reactor's access to the participant.
#[derive(Debug)]
pub(crate) struct ParticipantAccess {
    location: ParticipantLocation,
    /// The message queues of all reactors, this one included.
    reactors: Vec<Arc<MessageQueue>>,
    number: u16,
    next: u64,
    /// Requests of this reactor that the participant has not answered yet.
    callers: HashMap<Caller, TaskIndex>,
    /// Answers that were not handed to their requests yet. They are kept by caller: a request may
    /// end before that, and its index may be reused.
    arrived: VecDeque<(Caller, Vec<Reply>)>,
}

impl ParticipantAccess {
    /// The access of the reactor with this number. The first one gets the participant, if the node
    /// keeps keys.
    pub(crate) fn new(
        number: u16,
        participant: Option<FirstParticipant>,
        keeps_keys: bool,
        reactors: Vec<Arc<MessageQueue>>,
    ) -> Self {
        let location = match (participant, reactors.first()) {
            (Some(FirstParticipant::Here(participant)), _) => ParticipantLocation::Here(participant),
            (Some(FirstParticipant::Awaited(arrival)), _) => ParticipantLocation::Awaited(arrival),
            (None, Some(first)) if keeps_keys => ParticipantLocation::FirstReactor(Arc::clone(first)),
            (None, _) => ParticipantLocation::Absent,
        };
        Self { location, reactors, number, next: 0, callers: HashMap::new(), arrived: VecDeque::new() }
    }

    /// Sends messages to the participant on behalf of a request, which gets the replies. Messages
    /// that are not answered have none.
    pub(crate) fn ask(
        &mut self,
        task: TaskIndex,
        connection: ConnectionId,
        messages: Vec<Request>,
    ) -> Caller {
        self.next += 1;
        let caller = Caller::of_request(self.number, self.next);
        if messages.iter().any(is_answered) {
            self.callers.insert(caller, task);
        }
        let asked = ParticipantRequest { caller, connection, messages };
        match &mut self.location {
            // Transactions are refused until the participant is there.
            ParticipantLocation::Absent | ParticipantLocation::Awaited(_) => {}
            ParticipantLocation::Here(_) => self.asked(asked),
            ParticipantLocation::FirstReactor(first) => first.send(Mail::Transact(asked)),
        }
        caller
    }

    /// Drops the replies to this request.
    pub(crate) fn forget(&mut self, caller: Caller) {
        self.callers.remove(&caller);
    }

    /// Takes the recovered participant.
    pub(crate) fn arrived(&mut self) {
        if let ParticipantLocation::Awaited(arrival) = &self.location
            && let Some(participant) = arrival.take()
        {
            participant.shared.set_present();
            self.location = ParticipantLocation::Here(participant);
        }
    }

    /// Passes on what a reactor asks.
    pub(crate) fn asked(&mut self, asked: ParticipantRequest) {
        self.with_participant(|participant| participant.ask(asked));
    }

    /// Passes on a report of the log's thread.
    pub(crate) fn reported(&mut self, report: Report) {
        self.with_participant(|participant| participant.on_log_report(report));
    }

    /// Passes on a report of the thread that talks to other nodes.
    pub(crate) fn heard(&mut self, report: PeerReport) {
        self.with_participant(|participant| participant.on_peer_report(report));
    }

    /// Tells the participant that a connection over which it got requests is closed.
    pub(crate) fn connection_closed(&mut self, connection: ConnectionId) {
        match &self.location {
            ParticipantLocation::FirstReactor(first) => first.send(Mail::ConnectionClosed(connection)),
            ParticipantLocation::Here(_) | ParticipantLocation::Absent | ParticipantLocation::Awaited(_) => {
                self.with_participant(|participant| participant.connection_closed(connection))
            }
        }
    }

    /// Queues the answer to a request of this reactor.
    pub(crate) fn answered(&mut self, caller: Caller, replies: Vec<Reply>) {
        self.arrived.push_back((caller, replies));
    }

    /// The next answer for a request of this reactor that still waits for it.
    pub(crate) fn next_answer(&mut self) -> Option<(TaskIndex, Vec<Reply>)> {
        while let Some((caller, replies)) = self.arrived.pop_front() {
            if let Some(task) = self.callers.remove(&caller) {
                return Some((task, replies));
            }
        }
        None
    }

    /// Runs the participant's work of one turn. Returns whether there is more to do at once.
    pub(crate) fn turn(&mut self) -> bool {
        let mut more = false;
        self.with_participant(|participant| more = participant.turn());
        more
    }

    /// Whether this reactor has work for the participant before it may sleep.
    pub(crate) fn is_busy(&self) -> bool {
        !self.arrived.is_empty()
            || matches!(&self.location, ParticipantLocation::Here(participant) if participant.is_touched())
    }

    fn with_participant(&mut self, act: impl FnOnce(&mut ParticipantService)) {
        let ParticipantLocation::Here(participant) = &mut self.location else { return };
        act(participant);
        for (caller, replies) in participant.take_answers() {
            if caller.reactor() == usize::from(self.number) {
                self.arrived.push_back((caller, replies));
            } else if let Some(reactor) = self.reactors.get(caller.reactor()) {
                reactor.send(Mail::Answered(caller, replies));
            }
        }
    }
}

impl Drop for ParticipantAccess {
    /// A participant that is recovered now comes too late.
    fn drop(&mut self) {
        if let ParticipantLocation::Awaited(arrival) = &self.location {
            arrival.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_request_that_has_ended_goes_to_nobody() {
        let mut access = ParticipantAccess::new(0, None, false, Vec::new());
        let question = || vec![Request::Mark];
        let ended = access.ask(TaskIndex(7), ConnectionId(1), question());
        access.answered(ended, vec![Reply::Prepared]);
        // Its connection ends before the answer is handed out, and its place goes to another
        // request.
        access.forget(ended);
        let other = access.ask(TaskIndex(7), ConnectionId(2), question());
        access.answered(other, vec![Reply::Aborted]);
        assert_eq!(access.next_answer(), Some((TaskIndex(7), vec![Reply::Aborted])));
        assert_eq!(access.next_answer(), None);
    }
}

//! Passes requests of any reactor to the home, and its replies back to the requests.
//!
//! Invariants
//! - A caller's name is never reused: replies to a request that has ended are dropped.
//! - All replies to a request arrive together.
//! - Waiting requests are bounded by the requests that reactors have in progress.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use rackscan_ramp::message::{Reply, Request};

use super::{
    arrival::Arrival,
    caller::{Caller, HomeRequest, is_answered},
    report::Report,
    service::HomeService,
};
use crate::{
    ids::{ConnectionId, TaskIndex},
    message_queue::{Mail, MessageQueue},
    peers::PeerReport,
};

/// The location of the home, seen from a reactor.
#[derive(Debug)]
enum HomeLocation {
    /// The node keeps no keys.
    Absent,
    /// This reactor has the home.
    Here(Box<HomeService>),
    /// This reactor will get the home when it is recovered.
    Awaited(Arc<Arrival>),
    /// The first reactor has the home.
    FirstReactor(Arc<MessageQueue>),
}

/// What the first reactor gets at start.
#[derive(Debug)]
pub(crate) enum FirstHome {
    /// The home.
    Here(Box<HomeService>),
    /// The place where the recovered home will be left.
    Awaited(Arc<Arrival>),
}

/// A reactor's access to the home.
#[derive(Debug)]
pub(crate) struct HomeAccess {
    location: HomeLocation,
    /// The message queues of all reactors, this one included.
    reactors: Vec<Arc<MessageQueue>>,
    number: u16,
    next: u64,
    /// Requests of this reactor that the home has not answered yet.
    callers: HashMap<Caller, TaskIndex>,
    /// Answers that were not handed to their requests yet. They are kept by caller: a request may
    /// end before that, and its index may be reused.
    arrived: VecDeque<(Caller, Vec<Reply>)>,
}

impl HomeAccess {
    /// The access of the reactor with this number. The first one gets the home, if the node keeps
    /// keys.
    pub(crate) fn new(
        number: u16,
        home: Option<FirstHome>,
        keeps_keys: bool,
        reactors: Vec<Arc<MessageQueue>>,
    ) -> Self {
        let location = match (home, reactors.first()) {
            (Some(FirstHome::Here(home)), _) => HomeLocation::Here(home),
            (Some(FirstHome::Awaited(arrival)), _) => HomeLocation::Awaited(arrival),
            (None, Some(first)) if keeps_keys => HomeLocation::FirstReactor(Arc::clone(first)),
            (None, _) => HomeLocation::Absent,
        };
        Self { location, reactors, number, next: 0, callers: HashMap::new(), arrived: VecDeque::new() }
    }

    /// Sends messages to the home on behalf of a request, which gets the replies. Messages that are
    /// not answered have none.
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
        let asked = HomeRequest { caller, connection, messages };
        match &mut self.location {
            // Transactions are refused until the home is there.
            HomeLocation::Absent | HomeLocation::Awaited(_) => {}
            HomeLocation::Here(_) => self.asked(asked),
            HomeLocation::FirstReactor(first) => first.send(Mail::Transact(asked)),
        }
        caller
    }

    /// Drops the replies to this request.
    pub(crate) fn forget(&mut self, caller: Caller) {
        self.callers.remove(&caller);
    }

    /// Takes the recovered home.
    pub(crate) fn arrived(&mut self) {
        if let HomeLocation::Awaited(arrival) = &self.location
            && let Some(home) = arrival.take()
        {
            home.shared.set_present();
            self.location = HomeLocation::Here(home);
        }
    }

    /// Passes on what a reactor asks.
    pub(crate) fn asked(&mut self, asked: HomeRequest) {
        self.with_home(|home| home.ask(asked));
    }

    /// Passes on a report of the log's thread.
    pub(crate) fn reported(&mut self, report: Report) {
        self.with_home(|home| home.on_log_report(report));
    }

    /// Passes on a report of the thread that talks to other nodes.
    pub(crate) fn heard(&mut self, report: PeerReport) {
        self.with_home(|home| home.on_peer_report(report));
    }

    /// Tells the home that a connection over which it got requests is closed.
    pub(crate) fn connection_closed(&mut self, connection: ConnectionId) {
        match &self.location {
            HomeLocation::FirstReactor(first) => first.send(Mail::ConnectionClosed(connection)),
            HomeLocation::Here(_) | HomeLocation::Absent | HomeLocation::Awaited(_) => {
                self.with_home(|home| home.connection_closed(connection))
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

    /// Runs the home's work of one turn. Returns whether there is more to do at once.
    pub(crate) fn turn(&mut self) -> bool {
        let mut more = false;
        self.with_home(|home| more = home.turn());
        more
    }

    /// Whether this reactor has work for the home before it may sleep.
    pub(crate) fn is_busy(&self) -> bool {
        !self.arrived.is_empty() || matches!(&self.location, HomeLocation::Here(home) if home.is_touched())
    }

    fn with_home(&mut self, act: impl FnOnce(&mut HomeService)) {
        let HomeLocation::Here(home) = &mut self.location else { return };
        act(home);
        for (caller, replies) in home.take_answers() {
            if caller.reactor() == usize::from(self.number) {
                self.arrived.push_back((caller, replies));
            } else if let Some(reactor) = self.reactors.get(caller.reactor()) {
                reactor.send(Mail::Answered(caller, replies));
            }
        }
    }
}

impl Drop for HomeAccess {
    /// A home that is recovered now comes too late.
    fn drop(&mut self) {
        if let HomeLocation::Awaited(arrival) = &self.location {
            arrival.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_request_that_has_ended_goes_to_nobody() {
        let mut access = HomeAccess::new(0, None, false, Vec::new());
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

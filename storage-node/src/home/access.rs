//! How does a request of any reactor reach the home, and its replies the request?
//!
//! Invariants
//! - A caller's name is never used again: replies to a request that has ended go nowhere.
//! - All replies to a request arrive together.
//! - What waits is bounded by the requests that reactors have in progress.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use rackscan_ramp::message::{Reply, Request};

use super::{arrival::Arrival, service::HomeService, writer::Report};
use crate::{
    message_queue::{Mail, MessageQueue, TaskIndex},
    peers::PeerReport,
    store::ConnectionId,
};

/// Who asks: a reactor, and which of all the requests that it ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller(pub(super) u64);

const REACTOR_SHIFT: u32 = 48;
/// The home itself, which ends a transaction. There are not that many reactors.
const ENDING: u64 = 0xffff << REACTOR_SHIFT;
const _: () = assert!((crate::limits::REACTORS_MAX as u64) << REACTOR_SHIFT < ENDING);

impl Caller {
    /// The ending with this number asks.
    pub(super) fn of_ending(number: u64) -> Self {
        Self(ENDING | number)
    }

    /// Which ending asks, if it is one.
    pub(super) fn ending(self) -> Option<u64> {
        (self.0 >= ENDING).then_some(self.0 & !ENDING)
    }

    fn reactor(self) -> usize {
        usize::try_from(self.0 >> REACTOR_SHIFT).unwrap_or(usize::MAX)
    }
}

/// Messages for the home.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) caller: Caller,
    /// Over which connection they came.
    pub(crate) connection: ConnectionId,
    /// In order; at most one of them is answered.
    pub(crate) messages: Vec<Request>,
}

/// Where the home is, seen from a reactor.
#[derive(Debug)]
enum Way {
    /// There is none.
    None,
    /// Here.
    Here(Box<HomeService>),
    /// It comes here.
    Awaited(Arc<Arrival>),
    /// With the first reactor.
    There(Arc<MessageQueue>),
}

/// What the first reactor is given.
#[derive(Debug)]
pub(crate) enum FirstHome {
    /// The home.
    Here(Box<HomeService>),
    /// The place where it will be left.
    Awaited(Arc<Arrival>),
}

/// A reactor's way to the home.
#[derive(Debug)]
pub(crate) struct HomeAccess {
    way: Way,
    /// All of the node, this one included.
    reactors: Vec<Arc<MessageQueue>>,
    number: u16,
    next: u64,
    /// Requests of this reactor that the home has not answered.
    callers: HashMap<Caller, TaskIndex>,
    /// What it has answered and their requests do not know yet. By callers: a request may end
    /// before it hears, and its place is given to another.
    arrived: VecDeque<(Caller, Vec<Reply>)>,
}

impl HomeAccess {
    /// The way of the reactor with this number. The first one is given the home, if the node keeps
    /// keys.
    pub(crate) fn new(
        number: u16,
        home: Option<FirstHome>,
        keeps_keys: bool,
        reactors: Vec<Arc<MessageQueue>>,
    ) -> Self {
        let way = match (home, reactors.first()) {
            (Some(FirstHome::Here(home)), _) => Way::Here(home),
            (Some(FirstHome::Awaited(arrival)), _) => Way::Awaited(arrival),
            (None, Some(first)) if keeps_keys => Way::There(Arc::clone(first)),
            (None, _) => Way::None,
        };
        Self { way, reactors, number, next: 0, callers: HashMap::new(), arrived: VecDeque::new() }
    }

    /// Asks the home on behalf of a request, to which the replies go; of messages that are not
    /// answered there are none.
    pub(crate) fn ask(
        &mut self,
        task: TaskIndex,
        connection: ConnectionId,
        messages: Vec<Request>,
    ) -> Caller {
        self.next += 1;
        let caller = Caller(u64::from(self.number) << REACTOR_SHIFT | self.next);
        if messages.iter().any(is_answered) {
            self.callers.insert(caller, task);
        }
        let asked = Asked { caller, connection, messages };
        match &mut self.way {
            // Nobody is let in before the home is there.
            Way::None | Way::Awaited(_) => {}
            Way::Here(_) => self.asked(asked),
            Way::There(first) => first.send(Mail::Transact(asked)),
        }
        caller
    }

    /// Nobody waits for the replies to this request any more.
    pub(crate) fn forget(&mut self, caller: Caller) {
        self.callers.remove(&caller);
    }

    /// The home that was awaited is there.
    pub(crate) fn arrived(&mut self) {
        if let Way::Awaited(arrival) = &self.way
            && let Some(home) = arrival.take()
        {
            home.shared.came();
            self.way = Way::Here(home);
        }
    }

    /// A reactor asks.
    pub(crate) fn asked(&mut self, asked: Asked) {
        self.with_home(|home| home.ask(asked));
    }

    /// The thread of the log reports.
    pub(crate) fn reported(&mut self, report: Report) {
        self.with_home(|home| home.report(report));
    }

    /// The thread that talks to other nodes reports.
    pub(crate) fn heard(&mut self, report: PeerReport) {
        self.with_home(|home| home.heard(report));
    }

    /// A connection over which the home was asked is gone.
    pub(crate) fn left(&mut self, connection: ConnectionId) {
        match &self.way {
            Way::There(first) => first.send(Mail::Left(connection)),
            Way::Here(_) | Way::None | Way::Awaited(_) => self.with_home(|home| home.left(connection)),
        }
    }

    /// The home has answered a request of this reactor.
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

    /// Lets the home do what it does once in a turn. Whether there is more to do at once.
    pub(crate) fn turn(&mut self) -> bool {
        let mut more = false;
        self.with_home(|home| more = home.turn());
        more
    }

    /// Whether this reactor has something to do for the home before it may sleep.
    pub(crate) fn is_busy(&self) -> bool {
        !self.arrived.is_empty() || matches!(&self.way, Way::Here(home) if home.is_touched())
    }

    fn with_home(&mut self, act: impl FnOnce(&mut HomeService)) {
        let Way::Here(home) = &mut self.way else { return };
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
    /// A home that comes now comes too late.
    fn drop(&mut self) {
        if let Way::Awaited(arrival) = &self.way {
            arrival.close();
        }
    }
}

/// Whether a message is answered.
pub(crate) fn is_answered(message: &Request) -> bool {
    !matches!(
        message,
        Request::Advance { .. } | Request::Close { .. } | Request::Settled { .. } | Request::Ended { .. }
    )
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

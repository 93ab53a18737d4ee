//! Receives the requests of many clients at one reactor.
//!
//! Requests arrive in the reactor's inbox: receive rings, which are memory that clients write
//! messages into. The inbox decides the ring into which a client writes. Clients that send often
//! get a private ring, all others share one ring; the inbox measures the traffic continuously.
//!
//! Invariants
//! - Requests of one client are delivered in the order in which it sent them, even while it moves
//!   to another ring.
//! - A request that arrives before its connection was handed to the reactor waits for it. The
//!   number of waiting requests is bounded; a client that exceeds it is refused when its connection
//!   arrives.
//! - Requests that arrive after their connection was closed are dropped.

use std::collections::HashMap;

use rackscan_fabric::inbox::{Arrival, ArrivalKind, Assignment, AssignmentConfig, Inbox, Move, SenderId};

use crate::{
    limits::{ARRIVALS_PER_LOOK, EARLY_REQUESTS_MAX},
    metrics::{Metrics, add},
};

/// What is known about a sender.
#[derive(Debug)]
enum Sender {
    /// Its connection has not been handed over yet. Holds its requests so far, or `None` if there
    /// were too many.
    Early(Option<Vec<Vec<u8>>>),
    /// Its connection is this link of the reactor.
    Connected(usize),
    /// Its connection was closed; messages sent before may still arrive.
    Gone,
}

/// The receiving side of a reactor.
#[derive(Debug)]
pub(crate) struct Intake {
    inbox: Inbox,
    assignment: Assignment,
    senders: HashMap<SenderId, Sender>,
    /// Arrivals since the traffic was last evaluated.
    arrivals: u32,
    stalls_counted: u64,
}

/// What was taken out of the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// The bytes are a request of this link.
    Request(usize),
    /// Nothing that requires action.
    Noted,
}

impl Intake {
    pub(crate) fn new(inbox: Inbox, private_rings: u16) -> Self {
        let assignment = Assignment::new(AssignmentConfig::new(private_rings));
        Self { inbox, assignment, senders: HashMap::new(), arrivals: 0, stalls_counted: 0 }
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Announces that the reactor is about to sleep. Returns false if something has arrived.
    pub(crate) fn arm(&mut self) -> bool {
        self.inbox.arm()
    }

    /// Takes the next arrival. The bytes of a request replace the content of `bytes`.
    pub(crate) fn next(&mut self, bytes: &mut Vec<u8>, metrics: &Metrics) -> Option<Incoming> {
        let Arrival { sender, kind, .. } = self.inbox.next(bytes)?;
        self.arrivals += 1;
        if self.arrivals >= ARRIVALS_PER_LOOK {
            self.arrivals = 0;
            self.look(metrics);
        }
        match kind {
            ArrivalKind::Message => Some(self.request(sender, bytes)),
            // Clients send requests, which are reported whole, and use no immediates.
            ArrivalKind::Packet { .. } | ArrivalKind::Immediate { .. } => Some(Incoming::Noted),
            ArrivalKind::Left => {
                self.senders.remove(&sender);
                Some(Incoming::Noted)
            }
        }
    }

    fn request(&mut self, sender: SenderId, bytes: &[u8]) -> Incoming {
        match self.senders.entry(sender).or_insert_with(|| Sender::Early(Some(Vec::new()))) {
            Sender::Connected(link) => return Incoming::Request(*link),
            Sender::Early(waiting) => {
                if waiting.as_ref().is_some_and(|waiting| waiting.len() >= EARLY_REQUESTS_MAX) {
                    *waiting = None;
                }
                if let Some(waiting) = waiting {
                    waiting.push(bytes.to_vec());
                }
            }
            Sender::Gone => {}
        }
        Incoming::Noted
    }

    /// Assigns `sender` to the connection `link`. Returns the requests that arrived before it, in
    /// order; `None` if there were more than may wait.
    pub(crate) fn connected(&mut self, sender: SenderId, link: usize) -> Option<Vec<Vec<u8>>> {
        match self.senders.insert(sender, Sender::Connected(link)) {
            Some(Sender::Early(waiting)) => waiting,
            _ => Some(Vec::new()),
        }
    }

    /// Records that the connection of `sender` was closed.
    pub(crate) fn gone(&mut self, sender: SenderId) {
        self.senders.insert(sender, Sender::Gone);
    }

    /// Evaluates who sends how much, and moves senders between rings.
    fn look(&mut self, metrics: &Metrics) {
        for step in self.assignment.decide(&self.inbox.traffic()) {
            let moved = match step {
                Move::ToPrivate(sender) => self.inbox.make_private(sender),
                Move::ToShared(sender) => self.inbox.make_shared(sender),
            };
            match moved {
                Ok(ring) => {
                    add(&metrics.inbox_moves, 1);
                    tracing::debug!(?step, ?ring, "a client receives another ring");
                }
                // The sender was closed meanwhile; the next evaluation decides again.
                Err(error) => tracing::debug!(?step, %error, "a client keeps its ring"),
            }
        }
        let stalls = self.inbox.counters().stalls;
        add(&metrics.inbox_stalls, stalls.saturating_sub(self.stalls_counted));
        self.stalls_counted = self.stalls_counted.max(stalls);
    }
}

//! Sends the messages that end transactions without their coordinator (`endings`) to other
//! participants and to this one, and handles the answers.
//!
//! Also takes all reports of the peers' thread. It passes those on log replicas to `copying`.
//!
//! Invariants
//! - The participant asks itself in the same way as others, so its own vote counts only when the
//!   vote is durable.
//! - A participant whose configuration lists no other nodes ends no transactions.

use std::{sync::atomic::Ordering::SeqCst, time::Instant};

use rackscan_ramp::{
    message::{ParticipantId, Reply, Request},
    slot::SlotMemory,
    store::Store,
    termination::Message,
    timestamp::{ClientId, Timestamp},
};

use super::{
    caller::{Caller, ParticipantRequest},
    endings::{OutgoingMessage, TransactionState},
    service::ParticipantService,
};
use crate::{
    ids::ConnectionId,
    metrics::add,
    peers::{Errand, PeerReport},
};

/// The connection of the participant itself, which no client has.
const OWN: ConnectionId = ConnectionId(u64::MAX);

fn standing<M: SlotMemory>(store: &Store<M>) -> impl Fn(Timestamp) -> TransactionState + Copy {
    move |timestamp| match store.transaction(timestamp) {
        Some(transaction) if transaction.committed => TransactionState::Committed,
        Some(_) => TransactionState::InDoubt,
        None => TransactionState::Over,
    }
}

impl ParticipantService {
    /// Ends the unsettled transactions of a client that is gone.
    pub(super) fn end_those_of(&mut self, client: ClientId) {
        let store = self.participant.store();
        let standing = standing(store);
        for (timestamp, transaction) in store.unsettled().filter(|(timestamp, _)| timestamp.client == client)
        {
            self.endings.add(timestamp, transaction.participants.clone(), |timestamp| {
                standing(timestamp) != TransactionState::Over
            });
        }
    }

    /// Begins to end waiting transactions, a bounded number at a time.
    pub(super) fn begin_endings(&mut self) {
        if self.peers.is_some() {
            let outgoing = self.endings.begin(standing(self.participant.store()));
            self.send(outgoing);
        }
    }

    /// Handles a report of the thread that talks to other nodes.
    pub(super) fn on_peer_report(&mut self, report: PeerReport) {
        self.touched = true;
        let outgoing = match report {
            PeerReport::Heard { about, from, replies } => {
                replies.iter().for_each(|reply| self.on_answer(about, from, reply));
                return;
            }
            PeerReport::Copied(copied) => return self.copied(copied),
            PeerReport::Back(participant) => self.endings.on_available(participant),
            PeerReport::Tick => {
                self.look_at_copies();
                let store = self.participant.store();
                let unsettled =
                    store.unsettled().map(|(timestamp, of)| (timestamp, of.participants.as_slice()));
                self.endings.look_for_old(Instant::now(), unsettled, standing(store));
                self.endings.tick(standing(store))
            }
        };
        self.send(outgoing);
    }

    /// Handles this participant's own answer to the ending with this number.
    pub(super) fn on_own_answer(&mut self, ending: u64, reply: &Reply) {
        if let Some(timestamp) = self.endings.timestamp_of(ending) {
            self.on_answer(timestamp, self.id, reply);
        }
    }

    fn on_answer(&mut self, timestamp: Timestamp, from: ParticipantId, reply: &Reply) {
        let (outgoing, decided) = self.endings.on_answer(timestamp, from, reply);
        if decided && standing(self.participant.store())(timestamp) == TransactionState::InDoubt {
            add(&self.shared.gauges.ended_by_asking, 1);
        }
        self.send(outgoing);
    }

    fn send(&mut self, outgoing: Vec<OutgoingMessage>) {
        for OutgoingMessage { ending, timestamp, message: Message { to, request } } in outgoing {
            if to == self.id {
                if matches!(request, Request::Commit { .. })
                    && standing(self.participant.store())(timestamp) == TransactionState::InDoubt
                {
                    add(&self.shared.gauges.committed, 1);
                }
                let (caller, messages) = (Caller::of_ending(ending), vec![request]);
                self.ask(ParticipantRequest { caller, connection: OWN, messages });
            } else if let Some(peers) = &self.peers {
                peers.send(Errand { about: timestamp, to, request });
            }
        }
    }

    /// Requests a tick if the passing of time may bring anything further.
    pub(super) fn ask_for_tick(&self) {
        let waits = !self.endings.is_empty()
            || self.durability.waits()
            || self.is_copying()
            || !self.stalled.is_empty()
            || self.participant.store().unsettled().next().is_some();
        if waits && self.peers.is_some() {
            self.shared.awaits_tick.store(true, SeqCst);
        }
    }
}

//! How does the home ask other homes, and itself, how transactions end?
//!
//! Invariants
//! - The home asks itself as it is asked by others: its own vote counts when it is durable.
//! - A home that knows no other nodes ends nothing.

use std::{sync::atomic::Ordering::SeqCst, time::Instant};

use rackscan_ramp::{
    message::{HomeId, Reply, Request},
    slot::SlotMemory,
    store::Store,
    termination::Message,
    timestamp::{ClientId, Timestamp},
};

use super::{
    access::{Asked, Caller},
    endings::{Saying, Standing},
    service::HomeService,
};
use crate::{
    metrics::add,
    peers::{Errand, PeerReport},
    store::ConnectionId,
};

/// That of no client.
const OWN: ConnectionId = ConnectionId(u64::MAX);

fn standing<M: SlotMemory>(store: &Store<M>) -> impl Fn(Timestamp) -> Standing + Copy {
    move |timestamp| match store.transaction(timestamp) {
        Some(transaction) if transaction.committed => Standing::Committed,
        Some(_) => Standing::InDoubt,
        None => Standing::Over,
    }
}

impl HomeService {
    /// What this client has not brought to its end is ended without it.
    pub(super) fn end_those_of(&mut self, client: ClientId) {
        let store = self.home.store();
        let standing = standing(store);
        for (timestamp, transaction) in store.unsettled().filter(|(timestamp, _)| timestamp.client == client)
        {
            self.endings
                .add(timestamp, transaction.homes.clone(), |timestamp| standing(timestamp) != Standing::Over);
        }
    }

    /// Begins to end what is to be ended, some at a time.
    pub(super) fn begin_endings(&mut self) {
        if self.peers.is_some() {
            let sayings = self.endings.begin(standing(self.home.store()));
            self.say(sayings);
        }
    }

    /// The thread that talks to other nodes reports.
    pub(super) fn heard(&mut self, report: PeerReport) {
        self.touched = true;
        let sayings = match report {
            PeerReport::Heard { about, from, replies } => {
                replies.iter().for_each(|reply| self.heard_of(about, from, reply));
                return;
            }
            PeerReport::Copied(copied) => return self.copied(copied),
            PeerReport::Back(home) => self.endings.back(home),
            PeerReport::Tick => {
                self.look_at_copies();
                let store = self.home.store();
                let unsettled = store.unsettled().map(|(timestamp, of)| (timestamp, of.homes.as_slice()));
                self.endings.look_for_old(Instant::now(), unsettled, standing(store));
                self.endings.tick(standing(store))
            }
        };
        self.say(sayings);
    }

    /// The home has answered the ending with this number.
    pub(super) fn heard_here(&mut self, ending: u64, reply: &Reply) {
        if let Some(timestamp) = self.endings.timestamp_of(ending) {
            self.heard_of(timestamp, self.id, reply);
        }
    }

    fn heard_of(&mut self, timestamp: Timestamp, from: HomeId, reply: &Reply) {
        let (sayings, decided) = self.endings.heard(timestamp, from, reply);
        if decided && standing(self.home.store())(timestamp) == Standing::InDoubt {
            add(&self.shared.gauges.ended_by_asking, 1);
        }
        self.say(sayings);
    }

    fn say(&mut self, sayings: Vec<Saying>) {
        for Saying { ending, timestamp, message: Message { to, request } } in sayings {
            if to == self.id {
                if matches!(request, Request::Commit { .. })
                    && standing(self.home.store())(timestamp) == Standing::InDoubt
                {
                    add(&self.shared.gauges.committed, 1);
                }
                let (caller, messages) = (Caller::of_ending(ending), vec![request]);
                self.ask(Asked { caller, connection: OWN, messages });
            } else if let Some(peers) = &self.peers {
                peers.send(Errand { about: timestamp, to, request });
            }
        }
    }

    /// Asks to be told when time has gone by, if that may bring anything further.
    pub(super) fn ask_for_tick(&self) {
        let waits = !self.endings.is_empty()
            || self.durability.waits()
            || self.is_copying()
            || !self.stalled.is_empty()
            || self.home.store().unsettled().next().is_some();
        if waits && self.peers.is_some() {
            self.shared.awaits_tick.store(true, SeqCst);
        }
    }
}

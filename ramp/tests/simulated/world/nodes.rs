//! How simulated nodes react to messages: they serve requests one after the other, sync their logs,
//! and terminate transactions.

use super::{Event, Origin, World};
use crate::defect::Defect;
use rackscan_ramp::{
    algorithm::Message,
    message::{ParticipantId, Reply, Request},
    termination::Termination,
    timestamp::{ClientId, Timestamp},
};

impl World {
    pub(super) fn start(&mut self, node: usize) {
        let found = self.nodes[node].start(&mut self.random);
        self.counters.cut_logs += usize::from(found.cut);
        self.counters.in_doubt += found.in_doubt;
        let life = self.nodes[node].life;
        for client in 0..self.clients.len() {
            let delay = self.passage(node, 1000 + client, 1);
            self.at(delay, Event::Back { client, node, life });
        }
        self.see_to_endings(node, 1);
        let delay = 500 + self.random.below(1000);
        self.at(delay, Event::Tick { node, life });
    }

    /// Lets a node work until it has written something that is not seen yet.
    pub(super) fn pump(&mut self, node: usize) {
        loop {
            if self.nodes[node].participant.is_none() {
                return;
            }
            if !self.nodes[node].memory.is_settled() {
                let life = self.nodes[node].life;
                let delay = 1 + self.random.below(4);
                return self.at(delay, Event::Settle { node, life });
            }
            self.answer(node);
            let wall_ms = self.wall_ms(self.nodes[node].skew);
            let this = &mut self.nodes[node];
            let Some((peer, mut request)) = this.inbox.pop_front() else { return };
            if self.case.defect == Some(Defect::CappedClocks) {
                this.prepare_unseen(&request);
            }
            if let (Some(Defect::NoConditions), Request::Prepare { preconditions, .. }) =
                (self.case.defect, &mut request)
            {
                preconditions.expected.clear();
            }
            if let Some(participant) = this.participant.as_mut() {
                participant.set_wall_ms(wall_ms);
                participant.request(peer, request);
            }
            self.collect(node);
        }
    }

    fn collect(&mut self, node: usize) {
        if self.nodes[node].collect() {
            let life = self.nodes[node].life;
            let delay = 20 + self.delay();
            self.at(delay, Event::Synced { node, life });
        }
    }

    pub(super) fn synced(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        let Some(participant) = this.participant.as_mut() else { return };
        let sequence = this.disk.synced();
        participant.durable(sequence);
        self.collect(node);
        self.pump(node);
    }

    /// Sends what a node has to say.
    fn answer(&mut self, node: usize) {
        let life = self.nodes[node].life;
        for (peer, reply) in std::mem::take(&mut self.nodes[node].outbox) {
            if let Reply::Leased { lease, .. } = &reply {
                self.nodes[node].leases.push(*lease);
            }
            match self.peers[usize::try_from(peer.0).expect("a peer")] {
                Origin::Client { client, transaction } => {
                    let delay = self.passage(node, 1000 + client, self.clients[client].slowness);
                    self.at(delay, Event::Reply { client, node, life, transaction, reply });
                }
                Origin::Node { node: to, life, timestamp } => {
                    let delay = self.delay();
                    self.at(delay, Event::Told { node: to, life, from: node, timestamp, reply });
                }
            }
        }
    }

    pub(super) fn tick(&mut self, node: usize) {
        if self.nodes[node].participant.is_none() {
            return;
        }
        if self.jumps() {
            self.nodes[node].skew = self.skew();
        }
        if self.calm_since.is_none() && self.random.below(4) == 0 {
            self.counters.new_logs += usize::from(self.nodes[node].replace_log());
        }
        let again: Vec<(Timestamp, Vec<Message>)> =
            self.nodes[node].endings.iter().map(|(timestamp, ending)| (*timestamp, ending.again())).collect();
        again.into_iter().for_each(|(timestamp, messages)| self.tell(node, timestamp, messages));
        // Some of those whose coordinators may still be alive.
        self.see_to_endings(node, if self.calm_since.is_some() { 1 } else { 8 });
        if self.case.defect == Some(Defect::TimedCollection) {
            let this = &mut self.nodes[node];
            if let Some(participant) = this.participant.as_mut() {
                let (now, store) = (participant.store().epoch(), participant.store_mut());
                this.leases.iter().for_each(|lease| store.advance_lease(*lease, now));
                store.collect(usize::MAX);
            }
        }
        let unsettled = self.nodes[node]
            .participant
            .as_ref()
            .is_some_and(|participant| participant.store().unsettled().count() > 0);
        // Longer than any message is on its way.
        if unsettled || self.calm_since.is_none_or(|since| self.now < since + 200_000) {
            let life = self.nodes[node].life;
            let delay = 500 + self.random.below(1000);
            self.at(delay, Event::Tick { node, life });
        }
    }

    /// Begins to end one in so many of the transactions that may not have ended everywhere.
    fn see_to_endings(&mut self, node: usize, one_in: u64) {
        let Some(participant) = self.nodes[node].participant.as_ref() else { return };
        let unsettled: Vec<(Timestamp, Vec<ParticipantId>, bool)> = participant
            .store()
            .unsettled()
            .map(|(timestamp, of)| (timestamp, of.participants.clone(), of.committed))
            .collect();
        for (timestamp, participants, committed) in unsettled {
            if self.random.below(one_in) == 0 {
                self.see_to(node, timestamp, &participants, committed);
            }
        }
    }

    fn see_to(&mut self, node: usize, timestamp: Timestamp, participants: &[ParticipantId], committed: bool) {
        if self.nodes[node].endings.contains_key(&timestamp) {
            return;
        }
        let begin = if committed { Termination::settle } else { Termination::begin };
        let (ending, messages) = begin(timestamp, participants);
        self.nodes[node].endings.insert(timestamp, ending);
        self.tell(node, timestamp, messages);
    }

    fn tell(&mut self, node: usize, timestamp: Timestamp, messages: Vec<Message>) {
        let life = self.nodes[node].life;
        for Message { to, request } in messages {
            let peer = self.peer(Origin::Node { node, life, timestamp });
            let delay = self.delay();
            self.at(delay, Event::Request { node: usize::from(to.0), life: None, peer, request });
        }
    }

    pub(super) fn told(&mut self, node: usize, life: u64, from: usize, timestamp: Timestamp, reply: &Reply) {
        let this = &mut self.nodes[node];
        let Some(ending) = this.endings.get_mut(&timestamp).filter(|_| this.life == life) else { return };
        let messages = ending.heard(ParticipantId(u16::try_from(from).expect("a node")), reply);
        if ending.ended() {
            this.endings.remove(&timestamp);
        }
        self.tell(node, timestamp, messages);
    }

    pub(super) fn client_lost(&mut self, node: usize, id: ClientId) {
        let Some(participant) = self.nodes[node].participant.as_mut() else { return };
        let in_doubt = participant.client_lost(id);
        self.collect(node);
        self.pump(node);
        in_doubt
            .into_iter()
            .for_each(|(timestamp, participants)| self.see_to(node, timestamp, &participants, false));
    }
}

//! Decides when messages arrive. Messages from one sender to one receiver keep their order, and may
//! overtake all others.

use super::{Event, Origin, World};
use rackscan_ramp::{message::Request, participant::Peer};

impl World {
    pub(super) fn at(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.queue.insert((self.now + delay, self.order), event);
    }

    /// Mostly short, sometimes long.
    pub(super) fn delay(&mut self) -> u64 {
        let most = if self.random.below(16) == 0 { 2_000 } else { 60 };
        1 + self.random.below(most)
    }

    /// After how long a message from one to another arrives: behind the one before it.
    pub(super) fn passage(&mut self, from: usize, to: usize, slowness: u64) -> u64 {
        let arrival = self.now + self.delay() * slowness;
        let last = self.arrivals.entry((from, to)).or_default();
        *last = arrival.max(*last + 1);
        *last - self.now
    }

    pub(super) fn peer(&mut self, origin: Origin) -> Peer {
        self.peers.push(origin);
        Peer(self.peers.len() as u64 - 1)
    }

    pub(super) fn ask_node(&mut self, client: usize, node: usize, transaction: u64, request: Request) {
        let life = Some(self.clients[client].links[node].life);
        let peer = self.peer(Origin::Client { client, transaction });
        let delay = self.passage(1000 + client, node, self.clients[client].slowness);
        self.at(delay, Event::Request { node, life, peer, request });
    }
}

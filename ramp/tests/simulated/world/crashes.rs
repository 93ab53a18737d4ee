//! Simulates what a crash loses, and who learns of the crash when. Nodes restart with a part of
//! their disk. Clients do not restart: new clients replace them.

use super::{Event, World};
use rackscan_ramp::history::End;

impl World {
    pub(super) fn crash(&mut self) {
        if self.random.below(3) == 0 {
            let alive: Vec<usize> = (0..self.clients.len()).filter(|at| self.clients[*at].alive).collect();
            let client = alive[self.random.index(alive.len())];
            self.crash_client(client);
        } else {
            let node = self.random.index(self.nodes.len());
            if self.nodes[node].participant.is_some() {
                self.crash_node(node);
            }
        }
    }

    fn crash_node(&mut self, node: usize) {
        self.counters.node_crashes += 1;
        let life = self.nodes[node].life;
        self.nodes[node].crash(&mut self.random);
        for client in 0..self.clients.len() {
            let cut = self.now + self.random.below(100);
            self.cuts.insert((node, life, client), cut);
            // Some hear of it long after others have written what replaces what was there.
            let delay = self.passage(node, 1000 + client, 4 * self.clients[client].slowness);
            self.at(delay, Event::Lost { client, node, life });
        }
        let most = if self.random.below(2) == 0 { 100 } else { 3000 };
        let down = 1 + self.random.below(most);
        self.at(down, Event::Start { node });
    }

    fn crash_client(&mut self, client: usize) {
        self.counters.client_crashes += 1;
        self.clients[client].alive = false;
        if let Some(running) = self.clients[client].running.take() {
            self.record_write(client, &running, End::Unknown);
        }
        let id = self.clients[client].clock.client();
        for node in 0..self.nodes.len() {
            // Participants hear of it behind all that it said.
            let (delay, life) = (self.passage(1000 + client, node, 1), self.clients[client].links[node].life);
            self.at(delay, Event::ClientLost { node, life, id });
        }
        self.add_client();
    }
}

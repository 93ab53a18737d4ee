//! What happens when? One queue of events in virtual time. Messages between two keep their order and may overtake all others; clients and nodes
//! crash between any two events; everything is drawn from one seed.

use crate::{
    client::{Client, Dealt, Link, Running, home_of, key_of, number_of, origin, value_of},
    defect::{Defect, without_checks},
    memory::Copy,
    node::Node,
};
use rackscan_fabric::sim::{Random, Seed};
use rackscan_ramp::{
    algorithm::{Algorithm, Event as Happening, Message, Outcome, Step},
    history::{End, History, Read, Violation, Write, check},
    home::Peer,
    item::Key,
    message::{Found, HomeId, Reply, Request},
    slot::decode,
    stamp::{ClientId, Stamp},
    termination::Termination,
};
use std::collections::{BTreeMap, HashMap};

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) algorithm: Algorithm,
    pub(crate) one_sided: bool,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    pub(crate) keys: u32,
    pub(crate) transactions: usize,
    /// Of each home's versions.
    pub(crate) budget_bytes: usize,
    /// Crashes of nodes and clients per million events.
    pub(crate) crashes: u32,
    pub(crate) defect: Option<Defect>,
}

/// What a run met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) committed: usize,
    pub(crate) aborted: usize,
    pub(crate) unknown: usize,
    pub(crate) reads: usize,
    pub(crate) interrupted: usize,
    pub(crate) second_rounds: usize,
    pub(crate) slots_believed: usize,
    pub(crate) slots_refused: usize,
    pub(crate) node_crashes: usize,
    pub(crate) client_crashes: usize,
    pub(crate) cut_logs: usize,
    pub(crate) new_logs: usize,
    pub(crate) in_doubt: usize,
    pub(crate) operations: usize,
}

/// Who gets an answer.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Client { client: usize, transaction: u64 },
    Node { node: usize, life: u64, stamp: Stamp },
}

#[derive(Debug)]
enum Event {
    /// A request arrives. From a client it is for one life of a node, from a node for any.
    Request {
        node: usize,
        life: Option<u64>,
        peer: Peer,
        request: Request,
    },
    Reply {
        client: usize,
        node: usize,
        life: u64,
        transaction: u64,
        reply: Reply,
    },
    Told {
        node: usize,
        life: u64,
        from: usize,
        stamp: Stamp,
        reply: Reply,
    },
    Settle {
        node: usize,
        life: u64,
    },
    Synced {
        node: usize,
        life: u64,
    },
    Start {
        node: usize,
    },
    Tick {
        node: usize,
        life: u64,
    },
    Lost {
        client: usize,
        node: usize,
        life: u64,
    },
    Back {
        client: usize,
        node: usize,
        life: u64,
    },
    ClientLost {
        node: usize,
        life: u64,
        id: ClientId,
    },
    Copy {
        client: usize,
        transaction: u64,
        node: usize,
        life: u64,
        key: Key,
        copy: Copy,
    },
    Next {
        client: usize,
    },
    GiveUp {
        client: usize,
        transaction: u64,
    },
}

pub(crate) struct World {
    case: Case,
    random: Random,
    now: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Event>,
    /// When the last message from one to another arrives: the next one arrives later.
    arrivals: HashMap<(usize, usize), u64>,
    /// Until when messages of a node that has crashed arrive, for each client.
    cuts: HashMap<(usize, u64, usize), u64>,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    peers: Vec<Origin>,
    history: History<u32>,
    begun: usize,
    /// When the last transaction began: from then on nothing crashes.
    calm_since: Option<u64>,
    tally: Tally,
}

impl World {
    pub(crate) fn run(case: Case, seed: Seed) -> (Vec<Violation<u32>>, Tally) {
        let mut world = Self {
            case,
            random: Random::new(seed),
            now: 0,
            order: 0,
            queue: BTreeMap::new(),
            arrivals: HashMap::new(),
            cuts: HashMap::new(),
            nodes: (0..case.nodes).map(|_| Node::new(case.budget_bytes, case.defect)).collect(),
            clients: Vec::new(),
            peers: Vec::new(),
            history: History::default(),
            begun: 0,
            calm_since: None,
            tally: Tally::default(),
        };
        (0..case.nodes).for_each(|node| world.start(node));
        (0..case.clients).for_each(|_| world.add_client());
        while let Some((at, event)) = world.queue.pop_first() {
            world.now = at.0;
            world.happen(event);
            if world.calm_since.is_none() && world.random.chance(case.crashes) {
                world.crash();
            }
            if world.now > 5_000_000 {
                // What a defect leaves undone is not what it is looked for.
                assert!(case.defect.is_some(), "the run does not end: {}", world.state());
                break;
            }
        }
        world.end()
    }

    // ---- time and messages

    fn at(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.queue.insert((self.now + delay, self.order), event);
    }

    /// Mostly short, sometimes long.
    fn delay(&mut self) -> u64 {
        let most = if self.random.below(16) == 0 { 2_000 } else { 60 };
        1 + self.random.below(most)
    }

    /// After how long a message from one to another arrives: behind the one before it.
    fn passage(&mut self, from: usize, to: usize, slowness: u64) -> u64 {
        let arrival = self.now + self.delay() * slowness;
        let last = self.arrivals.entry((from, to)).or_default();
        *last = arrival.max(*last + 1);
        *last - self.now
    }

    fn peer(&mut self, origin: Origin) -> Peer {
        self.peers.push(origin);
        Peer(self.peers.len() as u64 - 1)
    }

    fn ask_node(&mut self, client: usize, node: usize, transaction: u64, request: Request) {
        let life = Some(self.clients[client].links[node].life);
        let peer = self.peer(Origin::Client { client, transaction });
        let delay = self.passage(1000 + client, node, self.clients[client].slowness);
        self.at(delay, Event::Request { node, life, peer, request });
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request { node, life, peer, request } => {
                if life.is_none_or(|life| life == self.nodes[node].life) && self.nodes[node].home.is_some() {
                    self.nodes[node].inbox.push_back((peer, request));
                    self.pump(node);
                }
            }
            Event::Reply { client, node, life, transaction, reply } => {
                let cut = self.cuts.get(&(node, life, client)).is_some_and(|cut| self.now > *cut);
                if !cut && self.clients[client].alive && self.clients[client].links[node].life == life {
                    self.reply(client, node, transaction, reply);
                }
            }
            Event::Told { node, life, from, stamp, reply } => self.told(node, life, from, stamp, &reply),
            Event::Settle { node, life }
                if self.nodes[node].life == life && self.nodes[node].home.is_some() =>
            {
                let words = 1 + self.random.index(24);
                self.nodes[node].memory.settle(words);
                self.pump(node);
            }
            Event::Synced { node, life } if self.nodes[node].life == life => self.synced(node),
            Event::Start { node } => self.start(node),
            Event::Tick { node, life } if self.nodes[node].life == life => self.tick(node),
            Event::Lost { client, node, life } => self.lost(client, node, life),
            Event::Back { client, node, life } => self.back(client, node, life),
            Event::ClientLost { node, life, id } if self.nodes[node].life == life => {
                self.client_lost(node, id)
            }
            Event::Copy { client, transaction, node, life, key, copy } => {
                self.copy(client, transaction, (node, life), key, copy);
            }
            Event::Next { client } => self.next(client),
            Event::GiveUp { client, transaction } => self.step(client, transaction, Happening::GiveUp),
            Event::Settle { .. } | Event::Synced { .. } | Event::Tick { .. } | Event::ClientLost { .. } => {}
        }
    }

    // ---- nodes

    fn start(&mut self, node: usize) {
        let found = self.nodes[node].start(&mut self.random);
        self.tally.cut_logs += usize::from(found.cut);
        self.tally.in_doubt += found.in_doubt;
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
    fn pump(&mut self, node: usize) {
        loop {
            if self.nodes[node].home.is_none() {
                return;
            }
            if !self.nodes[node].memory.is_settled() {
                let life = self.nodes[node].life;
                let delay = 1 + self.random.below(4);
                return self.at(delay, Event::Settle { node, life });
            }
            self.answer(node);
            let this = &mut self.nodes[node];
            let Some((peer, request)) = this.inbox.pop_front() else { return };
            if let Some(home) = this.home.as_mut() {
                home.request(peer, request);
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

    fn synced(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        let Some(home) = this.home.as_mut() else { return };
        let sequence = this.disk.synced();
        home.durable(sequence);
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
                Origin::Node { node: to, life, stamp } => {
                    let delay = self.delay();
                    self.at(delay, Event::Told { node: to, life, from: node, stamp, reply });
                }
            }
        }
    }

    fn tick(&mut self, node: usize) {
        if self.nodes[node].home.is_none() {
            return;
        }
        if self.calm_since.is_none() && self.random.below(4) == 0 {
            self.tally.new_logs += usize::from(self.nodes[node].replace_log());
        }
        let again: Vec<(Stamp, Vec<Message>)> =
            self.nodes[node].endings.iter().map(|(stamp, ending)| (*stamp, ending.again())).collect();
        again.into_iter().for_each(|(stamp, messages)| self.tell(node, stamp, messages));
        // Of those whose coordinators may still be there, some.
        self.see_to_endings(node, if self.calm_since.is_some() { 1 } else { 8 });
        if self.case.defect == Some(Defect::TimedCollection) {
            let this = &mut self.nodes[node];
            if let Some(home) = this.home.as_mut() {
                let (now, store) = (home.store().epoch(), home.store_mut());
                this.leases.iter().for_each(|lease| store.advance_lease(*lease, now));
                store.collect(usize::MAX);
            }
        }
        let unsettled =
            self.nodes[node].home.as_ref().is_some_and(|home| home.store().unsettled().count() > 0);
        // Longer than any message is on its way.
        if unsettled || self.calm_since.is_none_or(|since| self.now < since + 200_000) {
            let life = self.nodes[node].life;
            let delay = 500 + self.random.below(1000);
            self.at(delay, Event::Tick { node, life });
        }
    }

    /// Begins to end one in so many of the transactions that may not have ended everywhere.
    fn see_to_endings(&mut self, node: usize, one_in: u64) {
        let Some(home) = self.nodes[node].home.as_ref() else { return };
        let unsettled: Vec<(Stamp, Vec<HomeId>, bool)> =
            home.store().unsettled().map(|(stamp, of)| (stamp, of.homes.clone(), of.committed)).collect();
        for (stamp, homes, committed) in unsettled {
            if self.random.below(one_in) == 0 {
                self.see_to(node, stamp, &homes, committed);
            }
        }
    }

    fn see_to(&mut self, node: usize, stamp: Stamp, homes: &[HomeId], committed: bool) {
        if self.nodes[node].endings.contains_key(&stamp) {
            return;
        }
        let begin = if committed { Termination::settle } else { Termination::begin };
        let (ending, messages) = begin(stamp, homes);
        self.nodes[node].endings.insert(stamp, ending);
        self.tell(node, stamp, messages);
    }

    fn tell(&mut self, node: usize, stamp: Stamp, messages: Vec<Message>) {
        let life = self.nodes[node].life;
        for Message { to, request } in messages {
            let peer = self.peer(Origin::Node { node, life, stamp });
            let delay = self.delay();
            self.at(delay, Event::Request { node: usize::from(to.0), life: None, peer, request });
        }
    }

    fn told(&mut self, node: usize, life: u64, from: usize, stamp: Stamp, reply: &Reply) {
        let this = &mut self.nodes[node];
        let Some(ending) = this.endings.get_mut(&stamp).filter(|_| this.life == life) else { return };
        let messages = ending.heard(HomeId(u16::try_from(from).expect("a node")), reply);
        if ending.ended() {
            this.endings.remove(&stamp);
        }
        self.tell(node, stamp, messages);
    }

    fn client_lost(&mut self, node: usize, id: ClientId) {
        let Some(home) = self.nodes[node].home.as_mut() else { return };
        let in_doubt = home.client_lost(id);
        self.collect(node);
        self.pump(node);
        in_doubt.into_iter().for_each(|(stamp, homes)| self.see_to(node, stamp, &homes, false));
    }

    // ---- crashes

    fn crash(&mut self) {
        if self.random.below(3) == 0 {
            let alive: Vec<usize> = (0..self.clients.len()).filter(|at| self.clients[*at].alive).collect();
            let client = alive[self.random.index(alive.len())];
            self.crash_client(client);
        } else {
            let node = self.random.index(self.nodes.len());
            if self.nodes[node].home.is_some() {
                self.crash_node(node);
            }
        }
    }

    fn crash_node(&mut self, node: usize) {
        self.tally.node_crashes += 1;
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
        self.tally.client_crashes += 1;
        self.clients[client].alive = false;
        if let Some(running) = self.clients[client].running.take() {
            self.record_write(client, &running, End::Unknown);
        }
        let id = self.clients[client].clock.client();
        for node in 0..self.nodes.len() {
            // Homes hear of it behind all that it said.
            let (delay, life) = (self.passage(1000 + client, node, 1), self.clients[client].links[node].life);
            self.at(delay, Event::ClientLost { node, life, id });
        }
        self.add_client();
    }

    // ---- clients

    fn add_client(&mut self) {
        let session = u32::try_from(self.clients.len()).expect("few clients");
        let id = if self.case.defect == Some(Defect::CollidingStamps) { 1 } else { session + 1 };
        let mut client = Client::new(session, id, self.nodes.len());
        client.skew = self.random.below(40);
        client.slowness = [1, 1, 1, 12][self.random.index(4)];
        self.clients.push(client);
        let client = self.clients.len() - 1;
        for node in 0..self.nodes.len() {
            let life = self.nodes[node].life;
            if self.nodes[node].home.is_some() {
                let delay = self.passage(node, 1000 + client, 1);
                self.at(delay, Event::Back { client, node, life });
            }
        }
        self.at(300, Event::Next { client });
    }

    fn back(&mut self, client: usize, node: usize, life: u64) {
        if !self.clients[client].alive || self.nodes[node].life != life {
            return;
        }
        let memory = Some(self.nodes[node].memory.clone());
        self.clients[client].links[node] = Link { life, memory, ..Link::default() };
        let client_id = self.clients[client].clock.client();
        self.ask_node(client, node, 0, Request::Lease { client: client_id });
        let home = HomeId(u16::try_from(node).expect("a node"));
        let running = self.clients[client].running.as_ref().map(|running| running.number);
        running.into_iter().for_each(|number| self.step(client, number, Happening::Back { home }));
    }

    fn lost(&mut self, client: usize, node: usize, life: u64) {
        if !self.clients[client].alive || self.clients[client].links[node].life != life {
            return;
        }
        self.clients[client].links[node] = Link::default();
        let home = HomeId(u16::try_from(node).expect("a node"));
        let running = self.clients[client].running.as_ref().map(|running| running.number);
        running.into_iter().for_each(|number| self.step(client, number, Happening::Lost { home }));
    }

    fn reply(&mut self, client: usize, node: usize, transaction: u64, reply: Reply) {
        let this = &mut self.clients[client];
        let link = &mut this.links[node];
        match &reply {
            Reply::Leased { lease, epoch, newest } => {
                (link.lease, link.told) = (Some(*lease), *epoch);
                // Nobody's clock is a minute ahead.
                let _ = this.clock.hear(*newest, u64::from(u32::MAX));
            }
            Reply::Found { items, epoch } => {
                link.told = link.told.max(*epoch);
                for (key, found) in items {
                    let place = found.place.map(|place| (link.life, place));
                    if let Some(place) = place {
                        this.places.insert(key.clone(), place);
                    }
                }
            }
            _ => {}
        }
        let from = HomeId(u16::try_from(node).expect("a node"));
        self.step(client, transaction, Happening::Reply { from, reply });
    }

    /// Begins a transaction.
    fn next(&mut self, client: usize) {
        let this = &self.clients[client];
        if !this.alive || this.running.is_some() || self.calm_since.is_some() {
            return;
        }
        if this.links.iter().any(|link| link.lease.is_none()) {
            return self.at(200, Event::Next { client });
        }
        self.begun += 1;
        let wall_ms = 1000 + self.now / 200 + this.skew;
        let stamp = this.clock.next(wall_ms);
        let count = 1 + self.random.below(4).min(u64::from(self.case.keys) - 1);
        let mut keys: Vec<u32> = Vec::new();
        while (keys.len() as u64) < count {
            let key = u32::try_from(self.random.below(u64::from(self.case.keys))).expect("a key");
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let writes = self.random.below(2) == 0;
        let (coordinator, messages) = self.begin(client, stamp, &keys, writes);
        let this = &mut self.clients[client];
        this.numbers += 1;
        let (number, from) = (this.numbers, self.now);
        let writes = if writes { keys } else { Vec::new() };
        this.running = Some(Running { number, coordinator, stamp, writes, from });
        self.at(30_000, Event::GiveUp { client, transaction: number });
        self.send(client, number, messages);
        if self.begun >= self.case.transactions {
            self.calm_since = Some(self.now);
        }
    }

    fn begin(
        &mut self,
        client: usize,
        stamp: Stamp,
        keys: &[u32],
        writes: bool,
    ) -> (rackscan_ramp::algorithm::Coordinator, Vec<Message>) {
        let copies: Vec<usize> = keys.iter().map(|_| [1, 2, 8, 40][self.random.index(4)]).collect();
        let this = &mut self.clients[client];
        let settled = std::mem::take(&mut this.settled);
        let cluster = Dealt { links: &this.links };
        let begun = if writes {
            let items = keys.iter().zip(copies).map(|(key, copies)| (key_of(*key), value_of(stamp, copies)));
            self.case.algorithm.begin_write(stamp, items.collect(), &settled, &cluster)
        } else {
            let keys: Vec<Key> = keys.iter().map(|key| key_of(*key)).collect();
            self.case.algorithm.begin_read(stamp, &keys, &cluster)
        };
        begun.expect("few keys")
    }

    /// Sends what a coordinator wants to say; of what it wants to get, what it knows the places of is read from slots.
    fn send(&mut self, client: usize, transaction: u64, messages: Vec<Message>) {
        for Message { to, request } in messages {
            let node = usize::from(to.0);
            let early = match &request {
                Request::Prepare { part, .. } if self.case.defect == Some(Defect::EarlyCommit) => {
                    Some(part.stamp)
                }
                _ => None,
            };
            match request {
                Request::Get { lease, keys } if self.case.one_sided => {
                    let keys = self.copy_known(client, transaction, node, keys);
                    if !keys.is_empty() {
                        self.ask_node(client, node, transaction, Request::Get { lease, keys });
                    }
                }
                request => self.ask_node(client, node, transaction, request),
            }
            early.into_iter().for_each(|stamp| self.ask_node(client, node, 0, Request::Commit { stamp }));
        }
    }

    /// Begins one-sided reads; the keys of which the places are not known.
    fn copy_known(&mut self, client: usize, transaction: u64, node: usize, keys: Vec<Key>) -> Vec<Key> {
        let mut unknown = Vec::new();
        for key in keys {
            let this = &self.clients[client];
            let link = &this.links[node];
            let (life, place) = (link.life, this.places.get(&key).filter(|(of, _)| *of == link.life));
            if let (Some((_, place)), Some(memory)) = (place, &link.memory) {
                let copy = Copy::begin(memory, *place, &mut self.random);
                let delay = self.delay();
                self.at(delay, Event::Copy { client, transaction, node, life, key, copy });
            } else {
                unknown.push(key);
            }
        }
        unknown
    }

    fn copy(
        &mut self,
        client: usize,
        transaction: u64,
        (node, life): (usize, u64),
        key: Key,
        mut copy: Copy,
    ) {
        let steps = 1 + self.random.index(12);
        if !copy.go_on(steps) {
            let delay = 1 + self.random.below(4);
            return self.at(delay, Event::Copy { client, transaction, node, life, key, copy });
        }
        let present = self.nodes[node].life == life && self.nodes[node].home.is_some();
        let this = &mut self.clients[client];
        if !this.alive || this.running.as_ref().is_none_or(|running| running.number != transaction) {
            return;
        }
        if !present && self.case.defect != Some(Defect::DeadMemory) {
            // The wire says so, if the reader asks it after it has read.
            return;
        }
        if self.case.defect == Some(Defect::BlindOverwrite) {
            without_checks(&mut copy.bytes);
        }
        match decode(&copy.bytes, &key, life) {
            Ok(version) => {
                self.tally.slots_believed += 1;
                let items = vec![(key, Found { version, beside: Vec::new(), place: None })];
                let (from, epoch) = (HomeId(u16::try_from(node).expect("a node")), this.links[node].told);
                self.step(
                    client,
                    transaction,
                    Happening::Reply { from, reply: Reply::Found { items, epoch } },
                );
            }
            Err(_) => {
                self.tally.slots_refused += 1;
                this.places.remove(&key);
                let lease = this.links[node].lease.unwrap_or_default();
                self.ask_node(client, node, transaction, Request::Get { lease, keys: vec![key] });
            }
        }
    }

    fn step(&mut self, client: usize, transaction: u64, event: Happening) {
        let this = &mut self.clients[client];
        let Some(running) = this.running.as_mut().filter(|running| running.number == transaction) else {
            return;
        };
        let Step { messages, outcome } = running.coordinator.step(event);
        self.send(client, transaction, messages);
        outcome.into_iter().for_each(|outcome| self.ended(client, outcome));
    }

    fn ended(&mut self, client: usize, outcome: Outcome) {
        let Some(running) = self.clients[client].running.take() else { return };
        match outcome {
            Outcome::Read { items, rounds } => {
                self.tally.second_rounds += usize::from(rounds > 1);
                self.tally.reads += 1;
                self.tally.operations += items.len();
                let found = items.iter().map(|(key, version)| (number_of(key), origin(version))).collect();
                let session = self.clients[client].session;
                self.history.reads.push(Read { found, session, from: running.from, to: self.now });
                self.move_leases(client);
            }
            Outcome::Interrupted { .. } => {
                self.tally.interrupted += 1;
                self.record_write(client, &running, End::Unknown);
                self.move_leases(client);
            }
            Outcome::Committed { stamp } => {
                self.clients[client].settled.push(stamp);
                self.record_write(client, &running, End::Committed);
            }
            Outcome::Aborted { .. } => self.record_write(client, &running, End::Aborted),
            // Nobody lists here.
            Outcome::Listed { .. } => {}
            Outcome::Sealed { .. } | Outcome::Unknown { .. } => {
                self.record_write(client, &running, End::Unknown)
            }
        }
        let delay = self.delay();
        self.at(delay, Event::Next { client });
    }

    /// No read is on its way: what homes told before is old enough.
    fn move_leases(&mut self, client: usize) {
        for node in 0..self.nodes.len() {
            let link = &self.clients[client].links[node];
            if let Some(lease) = link.lease {
                self.ask_node(client, node, 0, Request::Advance { lease, epoch: link.told });
            }
        }
    }

    fn record_write(&mut self, client: usize, running: &Running, end: End) {
        if running.writes.is_empty() {
            return;
        }
        match end {
            End::Committed => self.tally.committed += 1,
            End::Aborted => self.tally.aborted += 1,
            End::Unknown => self.tally.unknown += 1,
        }
        self.tally.operations += running.writes.len();
        let (session, stamp) = (self.clients[client].session, running.stamp);
        let (keys, from, to) = (running.writes.clone(), running.from, self.now);
        self.history.writes.push(Write { stamp, keys, session, from, to, end });
    }

    // ---- the end

    fn state(&self) -> String {
        let unsettled = |node: &Node| {
            node.home
                .as_ref()
                .map(|home| home.store().unsettled().map(|of| format!("{of:?}")).collect::<Vec<_>>())
        };
        let nodes: Vec<String> =
            self.nodes.iter().map(|node| format!("{:?} {:?}", unsettled(node), node.endings)).collect();
        format!("{:?} {:?}\n{}", self.case, self.tally, nodes.join("\n"))
    }

    /// All is quiet: what is there now, and what happened.
    fn end(mut self) -> (Vec<Violation<u32>>, Tally) {
        if self.case.defect.is_none() {
            self.check_ends();
        }
        let mut found = Vec::new();
        for key in 0..self.case.keys {
            let home = &self.nodes[usize::from(home_of(key, self.case.nodes).0)].home;
            let version = home.as_ref().map(|home| home.store().get(&key_of(key)).version);
            found.extend(version.map(|version| (key, origin(&version))));
        }
        self.history.reads.push(Read { found, session: u32::MAX, from: self.now + 1, to: self.now + 1 });
        (check(&self.history), self.tally)
    }

    fn check_ends(&self) {
        let running = self.clients.iter().filter(|client| client.alive && client.running.is_some());
        assert_eq!(running.count(), 0, "all sessions have ended");
        for node in &self.nodes {
            let store = node.home.as_ref().expect("all are up").store();
            assert_eq!(store.unsettled().count(), 0, "all transactions have ended everywhere");
        }
    }
}

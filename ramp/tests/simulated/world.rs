//! The event loop of the simulation: one queue of events in virtual time. Clients and nodes crash
//! between any two events; everything is drawn from one seed.
//!
//! - [`wires`]: when messages arrive. [`nodes`], [`clients`]: how they react to messages.
//!   [`crashes`]: what a crash loses.

mod clients;
mod crashes;
mod nodes;
mod wires;

use crate::{
    client::{Client, key_of, origin, participant_of},
    defect::Defect,
    memory::Copy,
    node::Node,
};
use rackscan_fabric::sim::{Random, Seed};
use rackscan_ramp::{
    algorithm::{Algorithm, Event as Happening},
    history::{History, Read, Violation, check},
    item::Key,
    message::{Reply, Request},
    participant::Peer,
    timestamp::{ClientId, Timestamp},
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
    /// Of each participant's versions.
    pub(crate) budget_bytes: usize,
    /// Crashes of nodes and clients per million events.
    pub(crate) crashes: u32,
    pub(crate) clocks: Clocks,
    pub(crate) defect: Option<Defect>,
}

/// How wrong clocks of hosts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// A few milliseconds.
    Close,
    /// From ten years behind to ten years ahead, and they jump.
    Wrong,
}

/// What the clocks say when a run begins, if they are right.
const BEGIN_MS: u64 = 1_700_000_000_000;

/// What a run met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
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
    pub(crate) clock_jumps: usize,
    pub(crate) clocks_refused: usize,
    /// Attempts that were refused because something newer was there.
    pub(crate) retried: usize,
    /// Conditional writes that were acknowledged.
    pub(crate) conditional: usize,
    /// Conditional writes that were refused.
    pub(crate) conflicts: usize,
}

/// Who gets an answer.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Client { client: usize, transaction: u64 },
    Node { node: usize, life: u64, timestamp: Timestamp },
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
        timestamp: Timestamp,
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
    counters: Counters,
}

impl World {
    pub(crate) fn run(case: Case, seed: Seed) -> (Vec<Violation<u32>>, Counters) {
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
            counters: Counters::default(),
        };
        for node in 0..case.nodes {
            world.nodes[node].skew = world.skew();
            world.start(node);
        }
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

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request { node, life, peer, request } => {
                if life.is_none_or(|life| life == self.nodes[node].life)
                    && self.nodes[node].participant.is_some()
                {
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
            Event::Told { node, life, from, timestamp, reply } => {
                self.told(node, life, from, timestamp, &reply)
            }
            Event::Settle { node, life }
                if self.nodes[node].life == life && self.nodes[node].participant.is_some() =>
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

    /// How wrong a clock is.
    fn skew(&mut self) -> i64 {
        const DAY_MS: u64 = 86_400_000;
        let close = self.random.below(40).cast_signed();
        if self.case.clocks == Clocks::Close || self.random.below(3) == 0 {
            return close;
        }
        let most = [50_000, 3_600_000, 40 * DAY_MS, 3_653 * DAY_MS][self.random.index(4)];
        let wrong = self.random.below(most).cast_signed();
        if self.random.below(2) == 0 { wrong } else { -wrong }
    }

    /// Whether a clock jumps now.
    fn jumps(&mut self) -> bool {
        let jumps = self.case.clocks == Clocks::Wrong && self.random.below(12) == 0;
        self.counters.clock_jumps += usize::from(jumps);
        jumps
    }

    /// What a clock says that is so wrong.
    fn wall_ms(&self, skew: i64) -> u64 {
        (BEGIN_MS + self.now / 200).saturating_add_signed(skew)
    }

    fn state(&self) -> String {
        let unsettled = |node: &Node| {
            node.participant.as_ref().map(|participant| {
                participant.store().unsettled().map(|of| format!("{of:?}")).collect::<Vec<_>>()
            })
        };
        let nodes: Vec<String> =
            self.nodes.iter().map(|node| format!("{:?} {:?}", unsettled(node), node.endings)).collect();
        format!("{:?} {:?}\n{}", self.case, self.counters, nodes.join("\n"))
    }

    /// The run has ended: the final contents, and the history.
    fn end(mut self) -> (Vec<Violation<u32>>, Counters) {
        if self.case.defect.is_none() {
            self.check_ends();
        }
        let mut found = Vec::new();
        for key in 0..self.case.keys {
            let participant = &self.nodes[usize::from(participant_of(key, self.case.nodes).0)].participant;
            let version =
                participant.as_ref().map(|participant| participant.store().get(&key_of(key)).version);
            found.extend(version.map(|version| (key, origin(&version))));
        }
        self.history.reads.push(Read { found, session: u32::MAX, from: self.now + 1, to: self.now + 1 });
        (check(&self.history), self.counters)
    }

    fn check_ends(&self) {
        let running = self.clients.iter().filter(|client| client.alive && client.running.is_some());
        assert_eq!(running.count(), 0, "all sessions have ended");
        for node in &self.nodes {
            let store = node.participant.as_ref().expect("all are up").store();
            assert_eq!(store.unsettled().count(), 0, "all transactions have ended everywhere");
        }
    }
}

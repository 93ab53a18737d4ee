//! Runs the relays of this node. A relay is a thread that computes parity together with other
//! nodes: it sends stripes to and receives them from the relays of other nodes.
//!
//! ```text
//! a thread for each address: rackscan_relay::Node --> its own io_uring over the node's devices
//!                                   \--> store: where the cells of a stripe are read and written
//! ```
//!
//! Invariants
//! - Relays have their own listeners, connections, memory and threads: from requests, a relayed
//!   stripe takes only processor time and device bandwidth.
//! - Relays connect only to the nodes in the configuration; a client cannot make a node connect to
//!   any other.
//! - The memory of a relay (sessions, and connections that belong to no session) is bounded by
//!   `relay_memory` in the configuration, and is part of the memory plan.
//! - A relay that stops notifies all peers of its sessions, and leaves no thread behind.

mod store;

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::Instant,
};

use rackscan_device::{Ring, RingConfig};
use rackscan_fabric::{Address, ClusterKey, Listener, spin_time};
use rackscan_format::message::{RelayStatus, ScratchArea};
use rackscan_relay::{Counters, Member, Node, NodeConfig, Threads};

use self::store::CellStore;
use crate::{
    config::Config,
    error::StartError,
    lifecycle::Lifecycle,
    limits::{REACTOR_SPIN, RELAY_DEPTH, RELAY_SLEEP_MAX, RELAY_TURNS_PER_REPORT},
    store::Store,
};

/// The state of a relay, as it last reported.
#[derive(Clone, Debug, Default)]
struct Report {
    sessions: u64,
    counters: Counters,
}

/// A relay of this node.
#[derive(Debug)]
pub(crate) struct Relay {
    address: Address,
    report: Arc<Mutex<Report>>,
}

impl Relay {
    /// Its counters; up to date whenever the relay sleeps.
    pub(crate) fn status(&self) -> RelayStatus {
        let Report { sessions, counters } =
            self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        RelayStatus {
            address: self.address.to_string(),
            sessions,
            stripes: counters.stripes,
            sent_bytes: counters.sent_bytes,
            received_bytes: counters.received_bytes,
            xored_bytes: counters.xored_bytes,
            kept_bytes: counters.kept_bytes,
            stored_bytes: counters.stored_bytes,
            waits_for_credit: counters.waits_for_credit,
            written_bytes: counters.written_bytes,
            messages: counters.messages,
        }
    }
}

/// Starts the configured relays. Returns when all of them listen. Adds each thread to `threads`
/// when it has started; the caller joins them, also after an error.
pub(crate) fn start(
    config: &Config,
    key: &ClusterKey,
    store: &Arc<Store>,
    lifecycle: &Arc<Lifecycle>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Vec<Relay>, StartError> {
    let listen = |address: &Address| {
        if let Address::Shm { path } = address
            && let Some(folder) = path.parent()
        {
            std::fs::create_dir_all(folder)
                .map_err(|source| StartError::Os { action: "make the folder of a socket", source })?;
        }
        Ok(Listener::bind(address, key)?)
    };
    let listeners: Vec<Listener> = config.relay.iter().map(listen).collect::<Result<_, StartError>>()?;
    let mut members = members(config);
    members.extend(
        listeners.iter().map(|listener| Member { node: config.node, address: listener.address().clone() }),
    );
    let relays_wanted = listeners.len().max(1) as u64;
    let memory_bytes = config.relay_bytes() / relays_wanted;
    let mut relays = Vec::new();
    for (number, listener) in listeners.into_iter().enumerate() {
        let (address, report) = (listener.address().clone(), Arc::new(Mutex::default()));
        let thread = RelayThread {
            config: NodeConfig {
                memory_bytes,
                early_max: config.relay_links(),
                ..NodeConfig::new(config.node, members.clone())
            },
            listener,
            // The relay connects to the relays of other nodes.
            key: key.of_any_node(),
            store: Arc::clone(store),
            scratch: store.scratch().map(|area| part_of(area, number as u64, relays_wanted)),
            report: Arc::clone(&report),
            lifecycle: Arc::clone(lifecycle),
        };
        relays.push(Relay { address, report });
        threads.push(thread.spawn(format!("n{}-relay{number}", config.node))?);
    }
    Ok(relays)
}

/// The part of the scratch area that belongs to relay `number`: relays never share a part.
fn part_of(area: ScratchArea, number: u64, relays: u64) -> ScratchArea {
    let sector = rackscan_relay::limits::SECTOR_BYTES as u64;
    let start = area.offset_bytes.next_multiple_of(sector);
    let room = (area.offset_bytes + area.length_bytes).saturating_sub(start);
    let length_bytes = room / relays / sector * sector;
    ScratchArea { offset_bytes: start + number * length_bytes, length_bytes }
}

/// The relays of other nodes.
fn members(config: &Config) -> Vec<Member> {
    let others = config.peers.iter().filter(|peer| peer.node != config.node);
    let members = others.flat_map(|peer| {
        peer.relay.iter().map(|address| Member { node: peer.node, address: address.clone() })
    });
    members.collect()
}

/// What the thread of a relay needs.
struct RelayThread {
    config: NodeConfig,
    listener: Listener,
    key: ClusterKey,
    store: Arc<Store>,
    scratch: Option<ScratchArea>,
    report: Arc<Mutex<Report>>,
    lifecycle: Arc<Lifecycle>,
}

impl RelayThread {
    /// Starts the thread. Returns when it serves.
    fn spawn(self, name: String) -> Result<JoinHandle<()>, StartError> {
        let (ready, is_ready) = mpsc::sync_channel(1);
        let run = move || {
            let lifecycle = Arc::clone(&self.lifecycle);
            let report = Arc::clone(&self.report);
            match self.node() {
                Ok(mut node) => {
                    // The receiver waits for exactly this message.
                    let _ = ready.send(Ok(()));
                    let _guard = lifecycle.guard("a relay");
                    if let Err(error) = serve(&mut node, &report, &lifecycle) {
                        lifecycle.fail(&error.to_string());
                    }
                    // Tells all peers of its sessions, and waits for the threads that connect or
                    // disconnect for it.
                    node.stop();
                    say(&node, &report);
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        let spawned = std::thread::Builder::new().name(name).spawn(run);
        let thread = spawned.map_err(|source| StartError::Os { action: "start a relay", source })?;
        is_ready.recv().map_err(|_| StartError::Os {
            action: "start a relay",
            source: std::io::Error::other("it ended at once"),
        })??;
        Ok(thread)
    }

    fn node(self) -> Result<Node<Ring, CellStore>, StartError> {
        let Self { config, listener, key, store, scratch, .. } = self;
        let devices = store.devices().to_vec();
        let io = Ring::new(RingConfig { depth: RELAY_DEPTH, devices, ..RingConfig::default() })?;
        let node =
            Node::new(config, listener, Box::new(Threads::new(key)), io, CellStore::new(store, scratch));
        node.map_err(|error| StartError::Os { action: "start a relay", source: std::io::Error::other(error) })
    }
}

/// Serves until the node stops, which it notices within [`RELAY_SLEEP_MAX`].
fn serve(
    node: &mut Node<Ring, CellStore>,
    report: &Mutex<Report>,
    lifecycle: &Lifecycle,
) -> Result<(), rackscan_relay::NodeError> {
    let mut last_work = Instant::now();
    let mut turns = 0_u64;
    while !lifecycle.is_stopping() {
        if node.turn()? {
            last_work = Instant::now();
            turns += 1;
            if turns.is_multiple_of(RELAY_TURNS_PER_REPORT) {
                say(node, report);
            }
        } else if last_work.elapsed() < spin_time(REACTOR_SPIN) {
            std::thread::yield_now();
        } else {
            say(node, report);
            node.sleep(RELAY_SLEEP_MAX)?;
            last_work = Instant::now();
        }
    }
    Ok(())
}

fn say(node: &Node<Ring, CellStore>, report: &Mutex<Report>) {
    let said = Report { sessions: node.sessions() as u64, counters: node.counters() };
    *report.lock().unwrap_or_else(PoisonError::into_inner) = said;
}

//! How does a node's home talk to the homes of other nodes?
//!
//! ```text
//! home (first reactor) -- errands, a bounded queue and a bell --> this thread -- lines --> other nodes
//!        |-- batches of its log, shared, and the same bell ----------/ (outlet, copier)
//!        \<------------------------ mail: replies, copies, who is back, ticks --/
//! ```
//!
//! Invariants
//! - The first reactor never waits for this thread, nor for another node: what finds no room or
//!   nobody there is not sent, and whoever wants it sent says it again when a node is back, or at
//!   the next tick.
//! - Errands are about what may be said twice. Of the log, what is not taken in time is read from
//!   its file.
//! - Nothing that another node says is believed before it has been parsed; one that talks nonsense,
//!   or belongs to another cluster, is hung up on.
//! - The thread sleeps while there is nothing to do; a node that is told of no others has no such
//!   thread.

mod copied;
mod copier;
mod outlet;
mod thread;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use rackscan_client::{LineBell, LinesOptions, NodeEndpoint};
use rackscan_fabric::ClusterKey;
use rackscan_format::{ids::NodeId, message::LogGeneration};
use rackscan_ramp::{
    log::{Batch, Tail},
    message::{HomeId, Reply, Request},
    timestamp::Timestamp,
};

use crate::{
    config::Config,
    copies::replica_nodes,
    error::StartError,
    home::{HomeShared, log_files},
    identity::Identity,
    lifecycle::{self, Lifecycle},
    limits::{ERRANDS_MAX, PEER_MEMORY_BYTES, PEER_PATIENCE},
    message_queue::MessageQueue,
};
pub(crate) use copied::{Copied, CopyRoom};
use outlet::Outlet;
use thread::PeersThread;

/// Something to be said to another home.
#[derive(Debug)]
pub(crate) struct Errand {
    /// About which transaction.
    pub(crate) about: Timestamp,
    /// To whom.
    pub(crate) to: HomeId,
    /// What.
    pub(crate) request: Request,
}

/// What the home is told.
#[derive(Debug)]
pub(crate) enum PeerReport {
    /// Another home has answered.
    Heard {
        /// About which transaction it was asked.
        about: Timestamp,
        /// Who.
        from: HomeId,
        /// What it says.
        replies: Vec<Reply>,
    },
    /// A copy of the log has come further.
    Copied(Copied),
    /// A node can be reached again.
    Back(HomeId),
    /// Some time has gone by since the home asked to be told.
    Tick,
}

type SharedBell = Arc<Mutex<Option<LineBell>>>;

/// The home's way to the thread.
#[derive(Debug)]
pub(crate) struct PeerWay {
    /// Always there, but while this is dropped.
    errands: Option<SyncSender<Errand>>,
    /// There once the thread has lines.
    bell: SharedBell,
    outlet: Arc<Outlet>,
    /// Which nodes keep copies of the log, in the order in which copies are numbered.
    replica_nodes: Vec<NodeId>,
    /// All other nodes, those first.
    others: Vec<NodeId>,
}

impl PeerWay {
    /// Sends something, if there is room.
    pub(crate) fn send(&self, errand: Errand) {
        if let Some(errands) = &self.errands
            && errands.try_send(errand).is_ok()
        {
            self.ring();
        }
    }

    /// Which nodes keep copies of the log: copies are numbered in this order.
    pub(crate) fn replica_nodes(&self) -> &[NodeId] {
        &self.replica_nodes
    }

    /// All other nodes: those that keep copies first.
    pub(crate) fn others(&self) -> &[NodeId] {
        &self.others
    }

    /// The log's generation is this one, durably here: all others are told.
    pub(crate) fn tell_generation(&self, generation: LogGeneration) {
        self.outlet.tell(generation);
        self.ring();
    }

    /// The home's log is this one from now on, and all of it is in its file.
    pub(crate) fn log_begins(&self, number: u32, end: Tail) {
        self.outlet.begin(number, end);
        self.ring();
    }

    /// A shorter log with this number is in its file up to there, and will take the place of the
    /// present one; or none will.
    pub(crate) fn log_succeeds(&self, new_version: Option<(u32, Tail)>) {
        self.outlet.succeed(new_version);
        self.ring();
    }

    /// A batch of the log, which ends there now, is to be copied.
    pub(crate) fn copy(&self, batch: &Arc<Batch>, end: Tail) {
        self.outlet.add(batch, end);
        self.ring();
    }

    /// All records up to this one are in the log's file.
    pub(crate) fn filed(&self, sequence: u64) {
        self.outlet.filed(sequence);
    }

    fn ring(&self) {
        if let Some(bell) = &*self.bell.lock().unwrap_or_else(PoisonError::into_inner) {
            bell.ring();
        }
    }
}

impl Drop for PeerWay {
    /// Ends the thread.
    fn drop(&mut self) {
        self.errands = None;
        self.ring();
    }
}

/// The other nodes of a configuration.
pub(crate) fn others(config: &Config) -> Vec<NodeEndpoint> {
    let others = config.peers.iter().filter(|peer| peer.node != config.node);
    others.map(|peer| NodeEndpoint { id: peer.node, addresses: peer.addresses.clone() }).collect()
}

/// How other nodes are talked to.
pub(crate) fn lines_options(nodes: Vec<NodeEndpoint>, key: &ClusterKey) -> LinesOptions {
    LinesOptions {
        nodes,
        key: key.clone(),
        wire: None,
        memory_bytes: PEER_MEMORY_BYTES,
        patience: PEER_PATIENCE,
        posts: false,
    }
}

/// Starts the thread that talks to the other nodes, if there are any; it reports to
/// `message queue`, and ends with the way to it. Of batches of the log that were handed over it
/// keeps about so many bytes in memory.
pub(crate) fn start(
    config: &Config,
    key: &ClusterKey,
    (home, shared_bytes): (Arc<HomeShared>, u64),
    message_queue: Arc<MessageQueue>,
    (lifecycle, identity): (&Arc<Lifecycle>, &Arc<Identity>),
) -> Result<Option<(PeerWay, JoinHandle<()>)>, StartError> {
    let nodes = others(config);
    if nodes.is_empty() {
        return Ok(None);
    }
    let (errands, queue) = sync_channel(ERRANDS_MAX);
    let bell = SharedBell::default();
    let replica_nodes = replica_nodes(config.node, nodes.iter().map(|node| node.id));
    let [file, new_version] = log_files(config);
    let outlet = Arc::new(Outlet::new(file, new_version, shared_bytes));
    let witnesses = nodes.iter().map(|node| node.id).filter(|node| !replica_nodes.contains(node));
    let others: Vec<NodeId> = replica_nodes.iter().copied().chain(witnesses).collect();
    let thread = PeersThread {
        node: config.node,
        others: others.clone(),
        replica_nodes: replica_nodes.len(),
        outlet: Arc::clone(&outlet),
        options: lines_options(nodes, key),
        cluster: config.cluster.0,
        errands: queue,
        bell: Arc::clone(&bell),
        home,
        message_queue,
        identity: Arc::clone(identity),
        lifecycle: Arc::clone(lifecycle),
    };
    let guarded = Arc::clone(lifecycle);
    let nice = config.transactions_nice;
    let run = move || {
        let _guard = guarded.guard("the thread that talks to other nodes");
        lifecycle::be_nice(nice);
        thread.run();
    };
    let thread = std::thread::Builder::new().name(format!("n{}-peers", config.node)).spawn(run);
    let thread =
        thread.map_err(|source| StartError::Os { action: "start a thread for other nodes", source })?;
    Ok(Some((PeerWay { errands: Some(errands), bell, outlet, replica_nodes, others }, thread)))
}

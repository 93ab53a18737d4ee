//! How does a node's home talk to the homes of other nodes?
//!
//! ```text
//! home (first reactor) -- errands, a bounded queue and a bell --> this thread -- lines --> other nodes
//!        \<------------------------ mail: replies, who is back, ticks ----------/
//! ```
//!
//! Invariants
//! - The first reactor never waits for this thread, nor for another node: what finds no room or nobody there is not sent, and whoever wants it sent
//!   says it again when a node is back, or at the next tick.
//! - Errands are about what may be said twice.
//! - Nothing that another node says is believed before it has been parsed; one that talks nonsense, or belongs to another cluster, is hung up on.
//! - The thread sleeps while there is nothing to do; a node that is told of no others has no such thread.

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
use rackscan_ramp::{
    message::{HomeId, Reply, Request},
    stamp::Stamp,
};

use crate::{
    config::Config,
    error::StartError,
    home::HomeShared,
    lifecycle::Lifecycle,
    limits::{ERRANDS_MAX, PEER_MEMORY_BYTES, PEER_PATIENCE},
    mailbox::Mailbox,
};
use thread::PeersThread;

/// Something to be said to another home.
#[derive(Debug)]
pub(crate) struct Errand {
    /// About which transaction.
    pub(crate) about: Stamp,
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
        about: Stamp,
        /// Who.
        from: HomeId,
        /// What it says.
        replies: Vec<Reply>,
    },
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

/// Starts the thread that talks to the other nodes, if there are any; it reports to `mailbox`, and ends with the way to it.
pub(crate) fn start(
    config: &Config,
    key: &ClusterKey,
    home: Arc<HomeShared>,
    mailbox: Arc<Mailbox>,
    lifecycle: &Arc<Lifecycle>,
) -> Result<Option<(PeerWay, JoinHandle<()>)>, StartError> {
    let others = config.peers.iter().filter(|peer| peer.node != config.node);
    let nodes: Vec<NodeEndpoint> =
        others.map(|peer| NodeEndpoint { id: peer.node, addresses: peer.addresses.clone() }).collect();
    if nodes.is_empty() {
        return Ok(None);
    }
    let (errands, queue) = sync_channel(ERRANDS_MAX);
    let bell = SharedBell::default();
    let options = LinesOptions {
        nodes,
        key: key.clone(),
        wire: None,
        memory_bytes: PEER_MEMORY_BYTES,
        patience: PEER_PATIENCE,
        posts: false,
    };
    let thread = PeersThread {
        options,
        cluster: config.cluster.0,
        errands: queue,
        bell: Arc::clone(&bell),
        home,
        mailbox,
    };
    let guarded = Arc::clone(lifecycle);
    let run = move || {
        let _guard = guarded.guard("the thread that talks to other nodes");
        thread.run();
    };
    let thread = std::thread::Builder::new().name(format!("n{}-peers", config.node)).spawn(run);
    let thread =
        thread.map_err(|source| StartError::Os { action: "start a thread for other nodes", source })?;
    Ok(Some((PeerWay { errands: Some(errands), bell }, thread)))
}

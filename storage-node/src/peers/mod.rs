//! Connects a node's participant to other nodes: for messages about transactions, and to replicate
//! the log.
//!
//! ```text
//! participant (first reactor) -- errands: a bounded queue and a bell --> this thread -- connections --> other nodes
//!        |-- batches of its log, shared, and the same bell -----------/ (outlet, copier)
//!        \<---------------- mail: replies, replicas, nodes that are available again, ticks --/
//! ```
//!
//! An errand is a message to another participant. A tick tells the participant that some time has
//! passed.
//!
//! Invariants
//! - The first reactor never waits for this thread or for another node. A message is dropped if the
//!   queue has no room or its node is unavailable; the participant repeats it when the node is
//!   available again, or at the next tick.
//! - Errands may be repeated without harm. Parts of the log that are not sent in time are read from
//!   its file.
//! - Messages of another node are parsed before use. A node that sends malformed messages, or
//!   belongs to another cluster, is disconnected.
//! - The thread sleeps while there is nothing to do. A node whose configuration lists no other
//!   nodes has no such thread.

mod copied;
mod copier;
mod handle;
mod messages;
mod outlet;
mod replica_node;
mod thread;

use std::{
    sync::{Arc, mpsc::sync_channel},
    thread::JoinHandle,
};

use rackscan_client::{LinesOptions, NodeEndpoint};
use rackscan_fabric::ClusterKey;
use rackscan_format::ids::NodeId;

use crate::{
    config::Config,
    copies::replica_nodes,
    error::StartError,
    identity::Identity,
    lifecycle::{self, Lifecycle},
    limits::{ERRANDS_MAX, PEER_MEMORY_BYTES, PEER_PATIENCE},
    message_queue::MessageQueue,
    participant::{ParticipantShared, log_files},
};
pub(crate) use copied::{Copied, ReplicaSpace};
pub(crate) use handle::PeersHandle;
use handle::SharedBell;
pub(crate) use messages::{Errand, PeerReport};
use outlet::Outlet;
use thread::PeersThread;

/// The other nodes of a configuration.
pub(crate) fn others(config: &Config) -> Vec<NodeEndpoint> {
    let others = config.peers.iter().filter(|peer| peer.node != config.node);
    others.map(|peer| NodeEndpoint { id: peer.node, addresses: peer.addresses.clone() }).collect()
}

/// The options of connections to other nodes.
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

/// Starts the thread that talks to the other nodes, if there are any. It reports to
/// `message_queue`, and ends when its handle is dropped. It keeps about `shared_bytes` of the log's
/// batches in memory.
pub(crate) fn start(
    config: &Config,
    key: &ClusterKey,
    (participant, shared_bytes): (Arc<ParticipantShared>, u64),
    message_queue: Arc<MessageQueue>,
    (lifecycle, identity): (&Arc<Lifecycle>, &Arc<Identity>),
) -> Result<Option<(PeersHandle, JoinHandle<()>)>, StartError> {
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
        participant,
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
    Ok(Some((PeersHandle { errands: Some(errands), bell, outlet, replica_nodes, others }, thread)))
}

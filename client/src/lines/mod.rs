//! Drives connections to several nodes on the thread that owns them, without futures or other
//! threads.
//!
//! ```text
//!   send, read      encode into reused memory, and post            between `hold` and `release` they are announced together
//!   poll            reports replies, ended reads, nodes lost and back      polls briefly, then one poll(2) over all connections
//!   bell().ring()   another thread wakes the owner                 no system call while the owner is awake
//! ```
//!
//! Used by callers that exchange messages with several nodes at once and cannot afford to wake
//! another thread for each message: sessions of transactions, and nodes that send messages to each
//! other. An unavailable node is no error here: a short-lived thread connects to it again, because
//! that takes time, and the owner gets an event.
//!
//! Invariants
//! - The lines and their memory belong to one thread; only the bell may be shared.
//! - Requests and reads outstanding at a node are bounded; every one ends with its own event or
//!   with [`LineEvent::Lost`].
//! - Each connection has memory of its own, which is never used again for another connection.
//! - The thread sleeps in the kernel when there is nothing to do.

mod error;
mod event;
mod node_line;
mod posts;
mod sleep;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};
use std::time::{Duration, Instant};

use rackscan_fabric::{Access, Address, ClusterKey, Event, RawSlice, Region, RemoteRegion, Spin, Wire};
use rackscan_format::{
    ids::NodeId,
    message::{FolderIdentity, NodeStatus, Request, Target},
};

use crate::{
    ClientError, NodeEndpoint,
    dial::VerifiedConnection,
    doorbell::Doorbell,
    endpoint::{address_of, check_ids, member_list},
    limits::{
        CONNECT_GRACE, CONNECT_GRACE_FACTOR, CONNECT_TIME_MAX, DIAL_TIME_MAX, LINES_MEMORY_BYTES_MIN,
        LINES_SPIN,
    },
    members::{ExpectedIdentity, seen_of},
    pulse::Lateness,
};
pub use error::LineError;
pub use event::{LineEvent, OneRead};
use node_line::{NodeLine, Peer};
pub(crate) use posts::Posts;

/// Options of a connection to several nodes.
#[derive(Debug, Clone)]
pub struct LinesOptions {
    /// The nodes; their positions in this list are their numbers.
    pub nodes: Vec<NodeEndpoint>,
    /// The cluster's key.
    pub key: ClusterKey,
    /// The wire to use; each node's first address if absent.
    pub wire: Option<Wire>,
    /// Registered memory for each node; a multiple of 4 KiB.
    pub memory_bytes: usize,
    /// How long a node may be silent while it owes replies, although it answers keep-alives.
    pub patience: Duration,
    /// Whether requests about transactions go into post boxes that their nodes poll, and replies
    /// into ours (`rackscan_fabric::post`), where they fit and the nodes agree.
    pub posts: bool,
}

/// Wakes the owner of the lines. Threads may share it.
#[derive(Debug, Clone)]
pub struct LineBell {
    bell: Arc<Doorbell>,
    rung: Arc<AtomicBool>,
}

impl LineBell {
    /// Ends the owner's [`Lines::poll`], the present one or the next.
    pub fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    fn was_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst) && self.rung.swap(false, Ordering::SeqCst)
    }
}

type Dialled = (usize, Result<(VerifiedConnection, Region), ClientError>);

/// A connection to each of several nodes, owned by one thread.
#[derive(Debug)]
pub struct Lines {
    node_lines: Vec<NodeLine>,
    memory_bytes: usize,
    bell: LineBell,
    /// Set by threads that have connected.
    dialled_bell: Arc<AtomicBool>,
    dialled: mpsc::Receiver<Dialled>,
    to_dialled: mpsc::SyncSender<Dialled>,
    holds: bool,
    /// How long the owner polls before it sleeps.
    spin: Spin,
    /// When deadlines were last checked.
    deadlines_checked_at: Instant,
    lateness: Lateness,
    /// Events that were not reported yet.
    ready: Vec<LineEvent>,
    scratch: Vec<Event>,
}

impl Lines {
    /// Connects to all nodes at the same time. Nodes that cannot be reached are unavailable: the
    /// first poll reports them, and they are connected to later.
    ///
    /// # Errors
    /// Options that cannot work, a node of another cluster than the others, or a failure of the
    /// operating system.
    pub fn connect(options: LinesOptions) -> Result<Self, ClientError> {
        Self::connect_without(options, &[])
    }

    /// Like [`Lines::connect`], without waiting for nodes that are known to be unresponsive.
    pub(crate) fn connect_without(
        options: LinesOptions,
        unresponsive: &[NodeId],
    ) -> Result<Self, ClientError> {
        let members = member_list(&options.nodes);
        let mut lines = Self::begin_among(options, &members)?;
        lines.wait_for_all(unresponsive)?;
        Ok(lines)
    }

    /// Begins to connect to all nodes, and waits for none: each is reported when it is connected.
    /// An error of one node does not affect the others.
    ///
    /// # Errors
    /// Options that cannot work, or a failure of the operating system.
    pub fn begin(options: LinesOptions) -> Result<Self, ClientError> {
        Self::begin_among(options, &[])
    }

    /// Like [`Lines::begin`], with nodes that must have this member list, unless it is empty.
    fn begin_among(options: LinesOptions, members: &[NodeId]) -> Result<Self, ClientError> {
        let LinesOptions { nodes, key, wire, memory_bytes, patience, posts } = options;
        check_ids(&nodes)?;
        if memory_bytes < LINES_MEMORY_BYTES_MIN || !memory_bytes.is_multiple_of(4096) {
            return Err(ClientError::Options(format!(
                "they give {memory_bytes} bytes of memory for each node, expected a multiple of 4096, at least {LINES_MEMORY_BYTES_MIN}"
            )));
        }
        let bell = LineBell { bell: Arc::new(Doorbell::new()?), rung: Arc::default() };
        // Each node is connected to by one thread at a time.
        let (to_dialled, dialled) = mpsc::sync_channel(nodes.len());
        let mut node_lines = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let (address, key) = (address_of(node, wire)?, key.clone());
            let expected = ExpectedIdentity { members: members.to_vec(), ..ExpectedIdentity::default() };
            node_lines.push(NodeLine::new(
                Peer { node: node.id, address, key, cluster: None, posts, expected },
                patience,
            ));
        }
        let mut lines = Self {
            node_lines,
            memory_bytes,
            bell,
            dialled_bell: Arc::default(),
            dialled,
            to_dialled,
            holds: false,
            spin: Spin::new(LINES_SPIN),
            deadlines_checked_at: Instant::now(),
            lateness: Lateness::new(Instant::now()),
            ready: Vec::new(),
            scratch: Vec::new(),
        };
        (0..lines.node_lines.len()).for_each(|node| lines.dial(node));
        Ok(lines)
    }

    fn wait_for_all(&mut self, unresponsive: &[NodeId]) -> Result<(), ClientError> {
        let begun = Instant::now();
        let mut deadline = begun + DIAL_TIME_MAX + CONNECT_TIME_MAX;
        let is_awaited =
            |line: &NodeLine| line.first_dial_goes_on() && !unresponsive.contains(&line.peer.node);
        while self.node_lines.iter().any(is_awaited) {
            let left = deadline.saturating_duration_since(Instant::now());
            // A dial that has not ended by then goes on in the background.
            let Ok((node, result)) = self.dialled.recv_timeout(left) else { break };
            if let Err(error @ ClientError::OtherMembers { .. }) = result {
                return Err(error);
            }
            if self.node_lines[node].dialled(result).is_ok() {
                // Others should take about as long as this one.
                deadline = begun + CONNECT_GRACE.max(CONNECT_GRACE_FACTOR * begun.elapsed());
            }
        }
        self.node_lines.iter_mut().for_each(NodeLine::give_up_first_dial);
        self.check_same_cluster()?;
        self.leave_out_outdated();
        for (node, line) in self.node_lines.iter().enumerate() {
            if let Some(reason) = line.unavailable() {
                self.ready.push(LineEvent::Lost { node, reason: reason.to_owned() });
            }
        }
        Ok(())
    }

    /// Checks that all connected nodes belong to one cluster; later ones must belong to it, too.
    fn check_same_cluster(&mut self) -> Result<(), ClientError> {
        let status_of = |line: &NodeLine| line.open().map(|open| (open.status.node, open.status.cluster));
        let Some((first, cluster)) = self.node_lines.iter().find_map(status_of) else { return Ok(()) };
        for line in &mut self.node_lines {
            if let Some((node, found)) = status_of(line).filter(|(_, found)| *found != cluster) {
                return Err(ClientError::WrongNode {
                    node,
                    address: Box::new(line.peer.address.clone()),
                    what: "the cluster it belongs to",
                    found: format!("{found:#018x}"),
                    expected: format!("{cluster:#018x}, that of node {first}"),
                });
            }
            line.peer.cluster = Some(cluster);
        }
        Ok(())
    }

    /// Loses nodes whose data folders are older than other nodes know.
    fn leave_out_outdated(&mut self) {
        let told = |line: &NodeLine| line.open().map(|open| open.status.identity.clone());
        let told: Vec<FolderIdentity> = self.node_lines.iter().filter_map(told).collect();
        for line in &mut self.node_lines {
            line.peer.expected.seen = seen_of(&told, line.peer.node);
            line.leave_if_outdated();
        }
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.node_lines.len()
    }

    /// A node's id.
    #[must_use]
    pub fn id(&self, node: usize) -> Option<NodeId> {
        self.node_lines.get(node).map(|line| line.peer.node)
    }

    /// A node's address.
    #[must_use]
    pub fn address(&self, node: usize) -> Option<&Address> {
        self.node_lines.get(node).map(|line| &line.peer.address)
    }

    /// The status that a node reported when it was connected to; `None` while it is unavailable.
    #[must_use]
    pub fn status(&self, node: usize) -> Option<&NodeStatus> {
        self.node_lines.get(node)?.open().map(|open| &open.status)
    }

    /// Why a node is unavailable, if it is. The event that reports it may come later.
    #[must_use]
    pub fn unavailable(&self, node: usize) -> Option<&str> {
        self.node_lines.get(node)?.unavailable()
    }

    /// Whether a node is being connected to for the first time, so that it is not known yet whether
    /// it is unavailable.
    #[must_use]
    pub fn is_awaited(&self, node: usize) -> bool {
        self.node_lines.get(node).is_some_and(|line| line.is_awaited(Instant::now()))
    }

    /// Whether a node is unavailable because it does not answer, although it may be connected to.
    #[must_use]
    pub fn is_unresponsive(&self, node: usize) -> bool {
        self.node_lines.get(node).is_some_and(NodeLine::is_unresponsive)
    }

    /// Sets how long a node may take to answer a keep-alive before it is lost; it has longer while
    /// this process is late itself.
    pub fn set_keepalive_time(&mut self, time: Duration) {
        self.node_lines.iter_mut().for_each(|line| line.keepalive_time = time);
    }

    /// Whether a node is unavailable because it accepts no further connection now.
    #[must_use]
    pub fn is_full(&self, node: usize) -> bool {
        self.node_lines.get(node).is_some_and(NodeLine::is_full)
    }

    /// The memory of the connection to a node, to copy in and out, and as requests name it to the
    /// node. Another connection has other memory.
    #[must_use]
    pub fn memory(&self, node: usize) -> Option<(&Region, Target)> {
        let open = self.node_lines.get(node)?.open()?;
        let RemoteRegion { key, address: offset_bytes, length: length_bytes } = open.target;
        Some((&open.region, Target { key, offset_bytes, length_bytes }))
    }

    /// Outstanding replies and reads of a node that a caller waits for.
    #[must_use]
    pub fn outstanding(&self, node: usize) -> usize {
        self.node_lines.get(node).map_or(0, NodeLine::outstanding)
    }

    /// Whether requests about transactions go to a node in post boxes.
    #[must_use]
    pub fn has_posts(&self, node: usize) -> bool {
        self.node_lines.get(node).and_then(NodeLine::open).is_some_and(|open| open.posts.is_some())
    }

    /// The bell with which another thread wakes the owner.
    #[must_use]
    pub fn bell(&self) -> LineBell {
        self.bell.clone()
    }

    fn link(&mut self, node: usize) -> Result<&mut NodeLine, LineError> {
        let nodes = self.node_lines.len();
        self.node_lines.get_mut(node).ok_or(LineError::NoSuchNode { number: node, nodes })
    }

    /// Sends a request. The reply event carries the tag.
    ///
    /// # Errors
    /// [`LineError`]; nothing was sent then.
    pub fn send(&mut self, node: usize, tag: u64, request: Request) -> Result<(), LineError> {
        let holds = self.holds;
        self.link(node)?.send(tag, request, holds)
    }

    /// Reads a node's memory one-sidedly. [`LineEvent::Read`] carries the tag, which must not be 0.
    ///
    /// # Errors
    /// [`LineError`]; nothing was done then.
    pub fn read(&mut self, node: usize, tag: u64, read: &OneRead) -> Result<(), LineError> {
        let holds = self.holds;
        self.link(node)?.read(tag, read, holds)
    }

    /// The node's memory, if the wire maps it into this process. It stays mapped when the node
    /// dies: a reader must check afterwards that the node is there ([`Lines::are_there`]).
    pub fn map(&mut self, node: usize, memory: Target) -> Option<RawSlice> {
        let open = self.node_lines.get_mut(node)?.open_mut()?;
        let Target { key, offset_bytes: address, length_bytes: length } = memory;
        open.connection.map_remote(&RemoteRegion { key, address, length }, 0, length, Access::Read)
    }

    /// Stops waiting for a reply: it is dropped when it comes, and the node does not owe it any
    /// more. Returns false if it was not owed.
    pub fn forget(&mut self, node: usize, tag: u64) -> bool {
        self.node_lines.get_mut(node).is_some_and(|line| line.forget(tag))
    }

    /// Closes a connection whose node cannot be trusted to answer, to make a new one.
    /// [`LineEvent::Lost`] follows.
    pub fn hang_up(&mut self, node: usize, reason: &str) {
        if let Some(line) = self.node_lines.get_mut(node) {
            line.lose_as(node, reason, &mut self.ready);
        }
    }

    /// Holds back the announcement of later sends until [`Lines::release`] announces all of them:
    /// one wake-up for each node that sleeps, none for others.
    pub fn hold(&mut self) {
        self.holds = true;
    }

    /// Announces sends that were held back.
    pub fn release(&mut self) {
        self.holds = false;
        self.node_lines.iter_mut().for_each(NodeLine::release);
    }

    /// Connects to a node on a thread of its own.
    fn dial(&mut self, node: usize) {
        let Some(line) = self.node_lines.get(node) else { return };
        let (peer, memory_bytes) = (line.peer.clone(), self.memory_bytes);
        let (dialled, bell) = (self.to_dialled.clone(), self.bell.clone());
        let is_dialled = Arc::clone(&self.dialled_bell);
        let dialling = move || {
            // If the lines were dropped meanwhile, the connection is dropped here.
            let _ = dialled.try_send((node, peer.dial(memory_bytes)));
            is_dialled.store(true, Ordering::SeqCst);
            bell.bell.ring();
        };
        let spawned = std::thread::Builder::new().name("rackscan-dial".to_owned()).spawn(dialling);
        if let Err(error) = spawned {
            let error = ClientError::Os { action: "start a thread to connect", source: Arc::new(error) };
            let _ = self.node_lines[node].dialled(Err(error));
        }
    }
}

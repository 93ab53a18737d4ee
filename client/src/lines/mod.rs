//! How does one thread talk to all nodes, without futures or other threads?
//!
//! ```text
//!   send, read      encode into memory that is used again, and post       (between hold and release: announced together)
//!   poll            replies, ends of reads, nodes lost and back           spins for a moment, then one poll(2) over all connections
//!   bell().ring()   another thread has work for the owner                 no system call while the owner is awake
//! ```
//!
//! For whoever speaks to several nodes at once and cannot afford a wake-up of another thread for
//! each message: sessions of transactions, and nodes among themselves. A node that is down is no
//! error here: it is connected to again in the background, on a short-lived thread because that
//! takes time, and the owner is told.
//!
//! Invariants
//! - The lines and their memory belong to one thread; only the bell may be shared.
//! - Requests and reads outstanding at a node are bounded; every one ends with its own event or
//!   with [`LineEvent::Lost`].
//! - Each connection has memory of its own, which is never used again for another one.
//! - The thread sleeps in the kernel when there is nothing to do.

mod error;
mod link;
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
    message::{Answer, FolderIdentity, NodeStatus, Refusal, Request, Target},
};

use crate::{
    ClientError, NodeEndpoint,
    cluster::{address_of, check_ids},
    dial::Line,
    doorbell::Doorbell,
    limits::{
        CONNECT_GRACE, CONNECT_GRACE_FACTOR, CONNECT_TIME_MAX, DIAL_TIME_MAX, LINES_MEMORY_BYTES_MIN,
        LINES_SPIN,
    },
    members::{Expected, members, seen_of},
    pulse::Lateness,
};
pub use error::LineError;
use link::{Link, Peer};
pub(crate) use posts::Posts;

/// Whom to reach, and with how much memory.
#[derive(Debug, Clone)]
pub struct LinesOptions {
    /// The nodes; their positions here are their numbers.
    pub nodes: Vec<NodeEndpoint>,
    /// The cluster's key.
    pub key: ClusterKey,
    /// The wire to use; each node's first address if absent.
    pub wire: Option<Wire>,
    /// Registered memory for each node; a multiple of 4 KiB.
    pub memory_bytes: usize,
    /// How long a node may be silent while it owes replies, though it answers keep-alives.
    pub patience: Duration,
    /// Whether requests about transactions are written into memory that their nodes poll, and
    /// replies into ours (`rackscan_fabric::post`), where they fit and nodes agree.
    pub posts: bool,
}

/// What has happened on the lines.
#[derive(Debug, Clone, PartialEq)]
pub enum LineEvent {
    /// A node has answered, or refused.
    Reply {
        /// Its number.
        node: usize,
        /// What the request was named.
        tag: u64,
        /// What it says.
        outcome: Result<Answer, Box<Refusal>>,
    },
    /// A one-sided read has ended.
    Read {
        /// The node's number.
        node: usize,
        /// What the read was named.
        tag: u64,
        /// Whether the bytes are there.
        is_done: bool,
    },
    /// A node is away. What was outstanding there was carried out or not. It is being connected to
    /// again.
    Lost {
        /// Its number.
        node: usize,
        /// Why.
        reason: String,
    },
    /// A node is there again.
    Back {
        /// Its number.
        node: usize,
    },
}

/// A one-sided read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneRead {
    /// The node's memory.
    pub source: RemoteRegion,
    /// The first byte in it.
    pub source_offset_bytes: u64,
    /// Where it goes in the connection's memory.
    pub target_offset_bytes: usize,
    /// How many bytes.
    pub length_bytes: usize,
}

/// What wakes the lines' owner. Threads may share it.
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

type Dialled = (usize, Result<(Line, Region), ClientError>);

/// A connection to each of several nodes, owned by one thread.
#[derive(Debug)]
pub struct Lines {
    links: Vec<Link>,
    memory_bytes: usize,
    bell: LineBell,
    /// Rung by threads that have connected.
    dialled_bell: Arc<AtomicBool>,
    dialled: mpsc::Receiver<Dialled>,
    to_dialled: mpsc::SyncSender<Dialled>,
    holds: bool,
    /// How long it polls before it sleeps.
    spin: Spin,
    /// When deadlines were last looked at.
    seen_to: Instant,
    lateness: Lateness,
    /// What has happened and was not reported.
    ready: Vec<LineEvent>,
    scratch: Vec<Event>,
}

impl Lines {
    /// Connects to all nodes at the same time. Nodes that cannot be reached are away: the first
    /// poll says so, and they are connected to later.
    ///
    /// # Errors
    /// Options that cannot work, a node of another cluster than the others, and what the system
    /// refuses.
    pub fn connect(options: LinesOptions) -> Result<Self, ClientError> {
        Self::connect_without(options, &[])
    }

    /// The same, but of these nodes it is known that they do not answer: nobody waits for them.
    pub(crate) fn connect_without(
        options: LinesOptions,
        unresponsive: &[NodeId],
    ) -> Result<Self, ClientError> {
        let members = members(&options.nodes);
        let mut lines = Self::begin_among(options, &members)?;
        lines.wait_for_all(unresponsive)?;
        Ok(lines)
    }

    /// Begins to connect to all nodes, and waits for none: each is reported when it is there, and
    /// what is wrong with one is no matter of the others.
    ///
    /// # Errors
    /// Options that cannot work, and what the system refuses.
    pub fn begin(options: LinesOptions) -> Result<Self, ClientError> {
        Self::begin_among(options, &[])
    }

    /// The same with nodes that must have this member list, unless it is empty.
    fn begin_among(options: LinesOptions, members: &[NodeId]) -> Result<Self, ClientError> {
        let LinesOptions { nodes, key, wire, memory_bytes, patience, posts } = options;
        check_ids(&nodes)?;
        if memory_bytes < LINES_MEMORY_BYTES_MIN || !memory_bytes.is_multiple_of(4096) {
            return Err(ClientError::Options(format!(
                "{memory_bytes} bytes of memory for each node, expected a multiple of 4096 from {LINES_MEMORY_BYTES_MIN} on"
            )));
        }
        let bell = LineBell { bell: Arc::new(Doorbell::new()?), rung: Arc::default() };
        // Each node is connected to by one thread at a time.
        let (to_dialled, dialled) = mpsc::sync_channel(nodes.len());
        let mut links = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let (address, key) = (address_of(node, wire)?, key.clone());
            let expected = Expected { members: members.to_vec(), ..Expected::default() };
            links.push(Link::new(
                Peer { node: node.id, address, key, cluster: None, posts, expected },
                patience,
            ));
        }
        let mut lines = Self {
            links,
            memory_bytes,
            bell,
            dialled_bell: Arc::default(),
            dialled,
            to_dialled,
            holds: false,
            spin: Spin::new(LINES_SPIN),
            seen_to: Instant::now(),
            lateness: Lateness::new(Instant::now()),
            ready: Vec::new(),
            scratch: Vec::new(),
        };
        (0..lines.links.len()).for_each(|node| lines.dial(node));
        Ok(lines)
    }

    fn wait_for_all(&mut self, unresponsive: &[NodeId]) -> Result<(), ClientError> {
        let begun = Instant::now();
        let mut deadline = begun + DIAL_TIME_MAX + CONNECT_TIME_MAX;
        let is_awaited = |link: &Link| link.first_dial_goes_on() && !unresponsive.contains(&link.peer.node);
        while self.links.iter().any(is_awaited) {
            let left = deadline.saturating_duration_since(Instant::now());
            // A thread that is not done by then goes on in the background.
            let Ok((node, line)) = self.dialled.recv_timeout(left) else { break };
            if let Err(error @ ClientError::OtherMembers { .. }) = line {
                return Err(error);
            }
            if self.links[node].dialled(line).is_ok() {
                // What one has done others do in about the time.
                deadline = begun + CONNECT_GRACE.max(CONNECT_GRACE_FACTOR * begun.elapsed());
            }
        }
        self.links.iter_mut().for_each(Link::is_late);
        self.check_same_cluster()?;
        self.leave_out_outdated();
        for (node, link) in self.links.iter().enumerate() {
            if let Some(reason) = link.away() {
                self.ready.push(LineEvent::Lost { node, reason: reason.to_owned() });
            }
        }
        Ok(())
    }

    /// All that answered belong to one cluster, and those that come later must.
    fn check_same_cluster(&mut self) -> Result<(), ClientError> {
        let status_of = |link: &Link| link.up().map(|up| (up.status.node, up.status.cluster));
        let Some((first, cluster)) = self.links.iter().find_map(status_of) else { return Ok(()) };
        for link in &mut self.links {
            if let Some((node, found)) = status_of(link).filter(|(_, found)| *found != cluster) {
                return Err(ClientError::WrongNode {
                    node,
                    address: Box::new(link.peer.address.clone()),
                    what: "the cluster it belongs to",
                    found: format!("{found:#018x}"),
                    expected: format!("{cluster:#018x}, that of node {first}"),
                });
            }
            link.peer.cluster = Some(cluster);
        }
        Ok(())
    }

    /// Loses nodes whose data folders are older than other nodes know.
    fn leave_out_outdated(&mut self) {
        let told = |link: &Link| link.up().map(|up| up.status.identity.clone());
        let told: Vec<FolderIdentity> = self.links.iter().filter_map(told).collect();
        for link in &mut self.links {
            link.peer.expected.seen = seen_of(&told, link.peer.node);
            link.leave_if_outdated();
        }
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.links.len()
    }

    /// A node's id.
    #[must_use]
    pub fn id(&self, node: usize) -> Option<NodeId> {
        self.links.get(node).map(|link| link.peer.node)
    }

    /// Where a node is.
    #[must_use]
    pub fn address(&self, node: usize) -> Option<&Address> {
        self.links.get(node).map(|link| &link.peer.address)
    }

    /// What a node said of itself when it was connected to; `None` while it is away.
    #[must_use]
    pub fn status(&self, node: usize) -> Option<&NodeStatus> {
        self.links.get(node)?.up().map(|up| &up.status)
    }

    /// Why a node is away, if it is. It may be reported later that it is.
    #[must_use]
    pub fn away(&self, node: usize) -> Option<&str> {
        self.links.get(node)?.away()
    }

    /// Whether a node is being connected to for the first time, so that nobody knows yet whether it
    /// is away.
    #[must_use]
    pub fn is_awaited(&self, node: usize) -> bool {
        self.links.get(node).is_some_and(|link| link.is_awaited(Instant::now()))
    }

    /// Whether a node is away because it says nothing, though it may be connected to.
    #[must_use]
    pub fn is_unresponsive(&self, node: usize) -> bool {
        self.links.get(node).is_some_and(Link::is_unresponsive)
    }

    /// How long a node may take to answer a keep-alive before it is lost, unless this process is
    /// late itself.
    pub fn set_keepalive_time(&mut self, time: Duration) {
        self.links.iter_mut().for_each(|link| link.keepalive_time = time);
    }

    /// Whether a node is there and takes no further connection now.
    #[must_use]
    pub fn is_full(&self, node: usize) -> bool {
        self.links.get(node).is_some_and(Link::is_full)
    }

    /// The memory of the connection to a node, to copy in and out, and as the node names it: of
    /// another connection it is another one.
    #[must_use]
    pub fn memory(&self, node: usize) -> Option<(&Region, Target)> {
        let up = self.links.get(node)?.up()?;
        let RemoteRegion { key, address: offset_bytes, length: length_bytes } = up.target;
        Some((&up.region, Target { key, offset_bytes, length_bytes }))
    }

    /// Replies and reads outstanding at a node that somebody waits for.
    #[must_use]
    pub fn outstanding(&self, node: usize) -> usize {
        self.links.get(node).map_or(0, Link::outstanding)
    }

    /// Whether requests about transactions go to a node in boxes.
    #[must_use]
    pub fn has_posts(&self, node: usize) -> bool {
        self.links.get(node).and_then(Link::up).is_some_and(|up| up.posts.is_some())
    }

    /// What another thread wakes the owner with.
    #[must_use]
    pub fn bell(&self) -> LineBell {
        self.bell.clone()
    }

    fn link(&mut self, node: usize) -> Result<&mut Link, LineError> {
        let nodes = self.links.len();
        self.links.get_mut(node).ok_or(LineError::NoSuchNode { number: node, nodes })
    }

    /// Sends a request. Its reply will carry the tag.
    ///
    /// # Errors
    /// [`LineError`]; then nothing was sent.
    pub fn send(&mut self, node: usize, tag: u64, request: Request) -> Result<(), LineError> {
        let holds = self.holds;
        self.link(node)?.send(tag, request, holds)
    }

    /// Reads a node's memory one-sidedly. [`LineEvent::Read`] will carry the tag, which is not 0.
    ///
    /// # Errors
    /// [`LineError`]; then nothing was done.
    pub fn read(&mut self, node: usize, tag: u64, read: &OneRead) -> Result<(), LineError> {
        let holds = self.holds;
        self.link(node)?.read(tag, read, holds)
    }

    /// The node's memory itself, where the wire maps it here. What is read there may be a dead
    /// node's, until [`Lines::is_there`] says otherwise.
    pub fn map(&mut self, node: usize, memory: Target) -> Option<RawSlice> {
        let up = self.links.get_mut(node)?.up_mut()?;
        let Target { key, offset_bytes: address, length_bytes: length } = memory;
        up.connection.map_remote(&RemoteRegion { key, address, length }, 0, length, Access::Read)
    }

    /// Nobody waits for this reply any more: it is dropped when it comes, and the node does not owe
    /// it. False if it was not owed.
    pub fn forget(&mut self, node: usize, tag: u64) -> bool {
        self.links.get_mut(node).is_some_and(|link| link.forget(tag))
    }

    /// Gives up a connection whose node cannot be trusted to answer; it is made anew.
    /// [`LineEvent::Lost`] follows.
    pub fn hang_up(&mut self, node: usize, reason: &str) {
        if let Some(link) = self.links.get_mut(node) {
            link.lose_as(node, reason, &mut self.ready);
        }
    }

    /// What is sent from here on may be held back until [`Lines::release`], which announces it
    /// together: one wake-up for each node that sleeps, none for others.
    pub fn hold(&mut self) {
        self.holds = true;
    }

    /// Announces what was held back.
    pub fn release(&mut self) {
        self.holds = false;
        self.links.iter_mut().for_each(Link::release);
    }

    /// Connects to a node on a thread of its own.
    fn dial(&mut self, node: usize) {
        let Some(link) = self.links.get(node) else { return };
        let (peer, memory_bytes) = (link.peer.clone(), self.memory_bytes);
        let (dialled, bell) = (self.to_dialled.clone(), self.bell.clone());
        let is_dialled = Arc::clone(&self.dialled_bell);
        let dialling = move || {
            // The lines may be gone meanwhile; then the connection is dropped here.
            let _ = dialled.try_send((node, peer.dial(memory_bytes)));
            is_dialled.store(true, Ordering::SeqCst);
            bell.bell.ring();
        };
        let spawned = std::thread::Builder::new().name("rackscan-dial".to_owned()).spawn(dialling);
        if let Err(error) = spawned {
            let error = ClientError::Os { action: "start a thread to connect", source: Arc::new(error) };
            let _ = self.links[node].dialled(Err(error));
        }
    }
}

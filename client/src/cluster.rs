//! Defines the cluster handle: connections to all nodes, and the requests that are sent over them.
//!
//! Invariants
//! - A [`Cluster`] exists only if every configured node was reached, except for at most
//!   `unavailable_max` unavailable ones. Each node has proved that it holds the cluster key, speaks
//!   this protocol version, is the node that the configuration names, and belongs to the same
//!   cluster as the others.
//! - Clones share connections, memory and the driver thread; dropping the last clone closes them.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_fabric::{Address, ClusterKey, WallClock, Wire, raise_descriptor_limit};
use rackscan_format::{
    ids::NodeId,
    message::{Answer, LoadReport, NodeStatus, Request},
    page::PageIdentity,
};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    LinesOptions,
    cache::{OwnPages, RemoteCache},
    dial::Dial,
    driver::{Driver, Job, Reply},
    endpoint::{NodeEndpoint, address_of, check_ids, member_list},
    error::ClientError,
    hedge::{Hedge, SlowUntil},
    limits::{
        MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN, RECONSTRUCTIONS_MAX, REQUEST_TIMEOUT_DEFAULT,
        REQUESTS_PER_NODE_MAX, SLOT_BYTES,
    },
    members::ExpectedIdentity,
    message_names::unexpected_answer,
    node_state::NodeState,
    page_buffer::PagePool,
    protected::{BackgroundRepairs, KnownMaps},
    reach::{DialledNode, dial_apart, reach},
    target::{Span, TargetPool},
};

/// Options of a connection to a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// All nodes of the cluster.
    pub nodes: Vec<NodeEndpoint>,
    /// The key that all members hold.
    pub key: ClusterKey,
    /// The wire to use; each node's first address if absent.
    pub wire: Option<Wire>,
    /// Registered memory for answers, shared by all nodes.
    pub memory_bytes: usize,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// Whether pages in a node's cache are read one-sidedly, without a request.
    pub reads_caches: bool,
    /// Memory for this process' own page cache; 0 for none.
    pub page_cache_bytes: u64,
    /// The maximum number of unavailable nodes: protected tables are read without them.
    pub unavailable_max: usize,
    /// The clock for timestamps of transactions.
    pub wall: WallClock,
    /// The member list that every node must have, ascending; not compared if empty. By default the
    /// nodes above.
    pub members: Vec<NodeId>,
    /// The random numbers of data folders, as far as they are known. A node whose folder has
    /// another number is refused.
    pub folders: BTreeMap<NodeId, u64>,
}

impl ClusterOptions {
    /// Options with the default memory and timeout.
    #[must_use]
    pub fn new(nodes: Vec<NodeEndpoint>, key: ClusterKey) -> Self {
        Self {
            members: member_list(&nodes),
            folders: BTreeMap::new(),
            nodes,
            key,
            wire: None,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
            reads_caches: true,
            page_cache_bytes: 0,
            unavailable_max: 0,
            wall: WallClock::default(),
        }
    }
}

/// A connection to every node of a cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
    pub(crate) uses_relays: bool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) nodes: Vec<Node>,
    statuses: Vec<NodeStatus>,
    pub(crate) request_timeout: Duration,
    pub(crate) driver: Driver,
    pub(crate) memory: Arc<TargetPool>,
    pub(crate) pages: Arc<PagePool>,
    /// The cache of pages in this process.
    pub(crate) own: Option<OwnPages>,
    endpoints: Vec<NodeEndpoint>,
    pub(crate) key: ClusterKey,
    wire: Option<Wire>,
    wall: WallClock,
    pub(crate) unavailable_max: usize,
    /// Maps of protected tables that were read.
    pub(crate) maps: KnownMaps,
    /// Permits for reconstructions of pages.
    pub(crate) reconstructions: Semaphore,
    /// Repairs of corrupt pages that reads have found.
    pub(crate) repairing: BackgroundRepairs,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) address: Address,
    pub(crate) state: Arc<NodeState>,
    /// Permits for outstanding requests.
    pub(crate) permits: Arc<Semaphore>,
    /// What this client knows of the node's page cache.
    pub(crate) cache: Arc<RemoteCache>,
    pub(crate) slow: SlowUntil,
}

impl Cluster {
    /// Options for other connections to the same nodes.
    #[must_use]
    pub fn lines(&self, memory_bytes: usize, patience: Duration) -> LinesOptions {
        let Shared { endpoints, key, wire, .. } = self.shared.as_ref();
        LinesOptions {
            nodes: endpoints.clone(),
            key: key.clone(),
            wire: *wire,
            memory_bytes,
            patience,
            posts: false,
        }
    }

    /// The clock for timestamps of transactions.
    #[must_use]
    pub fn wall(&self) -> &WallClock {
        &self.shared.wall
    }

    /// Connects to all nodes at the same time and asks each for its status.
    ///
    /// # Errors
    /// Names the nodes that cannot be reached, if more are missing than may be; or the first node
    /// that is not the configured one, with its address and what to do.
    pub async fn connect(options: ClusterOptions) -> Result<Self, ClientError> {
        // Each connection takes some descriptors, and a query opens files as well.
        raise_descriptor_limit();
        let endpoints = checked(&options)?;
        let memory = TargetPool::new(options.memory_bytes)?;
        let (begun, mut dialling) = (Instant::now(), Vec::new());
        for (node, address) in endpoints {
            let (key, memory) = (options.key.clone(), memory.region().clone());
            let (cache, reads_cache) = (Arc::default(), options.reads_caches);
            let (members, folder) = (options.members.clone(), options.folders.get(&node).copied());
            let expected = ExpectedIdentity { members, folder, seen: Vec::new() };
            let (cluster, posts) = (None, false);
            let dial = Dial { node, address, key, memory, cache, reads_cache, cluster, posts, expected };
            dialling.push((dial.clone(), dial_apart(dial)?));
        }
        let reached = reach(dialling, begun, options.unavailable_max).await?;
        let statuses = reached.iter().filter_map(|node| Some(node.connected()?.status.clone())).collect();
        let node = |reached: &DialledNode| Node {
            id: reached.dial.node,
            address: reached.dial.address.clone(),
            state: reached.state(),
            permits: Arc::new(Semaphore::new(REQUESTS_PER_NODE_MAX)),
            cache: Arc::clone(&reached.dial.cache),
            slow: SlowUntil::default(),
        };
        let nodes: Vec<Node> = reached.iter().map(node).collect();
        let reached = reached.into_iter().zip(nodes.iter().map(|node| Arc::clone(&node.state))).collect();
        let driver = Driver::start(reached, (options.request_timeout, options.unavailable_max > 0))?;
        let pages = Arc::new(PagePool::default());
        let request_timeout = options.request_timeout;
        let own = OwnPages::new(options.page_cache_bytes);
        let ClusterOptions { nodes: endpoints, key, wire, unavailable_max, wall, .. } = options;
        let (maps, reconstructions) = (KnownMaps::default(), Semaphore::new(RECONSTRUCTIONS_MAX));
        let shared = Shared {
            nodes,
            statuses,
            request_timeout,
            driver,
            memory,
            pages,
            own,
            endpoints,
            key,
            wire,
            wall,
            unavailable_max,
            maps,
            reconstructions,
            repairing: BackgroundRepairs::default(),
        };
        Ok(Self { shared: Arc::new(shared), uses_relays: true })
    }

    /// The same cluster with relays on or off. With relays, the nodes of a table compute the parity
    /// of its loads and the lost cells of a rebuild among themselves, if all of them have a relay
    /// (the default). Without relays this process reads the data and computes them.
    #[must_use]
    pub fn with_relays(&self, uses_relays: bool) -> Self {
        Self { uses_relays, ..self.clone() }
    }

    /// The nodes' ids, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.shared.nodes.iter().map(|node| node.id)
    }

    /// The address of a node, which implies the wire.
    #[must_use]
    pub fn address(&self, node: NodeId) -> Option<&Address> {
        self.shared.nodes.iter().find(|known| known.id == node).map(|node| &node.address)
    }

    /// For pages of a node, each with its bytes: the bytes that are in this process' cache or, as
    /// the node last said, in the node's cache; and the bytes of all pages.
    #[must_use]
    pub fn cached_bytes(&self, node: NodeId, pages: impl Iterator<Item = (PageIdentity, u64)>) -> (u64, u64) {
        let Some(known) = self.shared.nodes.iter().find(|known| known.id == node) else { return (0, 0) };
        let own = self.shared.own.as_ref();
        let (mut cached, mut all) = (0, 0);
        for (page, bytes) in pages {
            all += bytes;
            if known.cache.find(&page).is_some() || own.is_some_and(|own| own.keeps(node, page)) {
                cached += bytes;
            }
        }
        (cached, all)
    }

    /// The status that each reachable node reported when it was connected to, by id. For the
    /// present one see [`Cluster::status`].
    #[must_use]
    pub fn statuses(&self) -> &[NodeStatus] {
        &self.shared.statuses
    }

    /// The load that a node reported with its last reply.
    #[must_use]
    pub fn load_report(&self, node: NodeId) -> Option<LoadReport> {
        self.shared.driver.load(self.position(node).ok()?)
    }

    pub(crate) fn position(&self, node: NodeId) -> Result<usize, ClientError> {
        self.shared.nodes.iter().position(|known| known.id == node).ok_or_else(|| ClientError::UnknownNode {
            node,
            known: self.nodes().map(|id| id.to_string()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Sends a request and awaits the node's reply. `span` is the target memory that the request
    /// names.
    pub(crate) async fn ask(
        &self,
        node: NodeId,
        request: Request,
        span: Option<Span>,
    ) -> Result<Reply, ClientError> {
        self.ask_hedged(node, request, span, None).await
    }

    /// Like [`Cluster::ask`]. The hedge, if any, is notified when other nodes have answered similar
    /// requests far sooner.
    pub(crate) async fn ask_hedged(
        &self,
        node: NodeId,
        request: Request,
        span: Option<Span>,
        race: Option<Hedge>,
    ) -> Result<Reply, ClientError> {
        let (position, during) = (self.position(node)?, request.name());
        let node = &self.shared.nodes[position];
        self.check_available(node, &request, during)?;
        let permits = Arc::clone(&node.permits);
        let permit = permits.acquire_owned().await.map_err(|_| ClientError::Closed)?;
        let can_go_without = self.can_go_without(&request);
        if can_go_without && node.state.unresponsive_for().is_some() {
            // It has become unresponsive meanwhile.
            self.check_available(node, &request, during)?;
        }
        let (answer, answered) = oneshot::channel();
        let job = Job {
            node: position,
            during,
            request,
            span,
            permit: Some(permit),
            can_go_without,
            race,
            deadline: Instant::now() + self.shared.request_timeout,
            answer: Some(answer),
        };
        if !self.shared.driver.submit(job) {
            return Err(ClientError::Closed);
        }
        let outcome = answered.await.map_err(|_| ClientError::Closed)?;
        self.record_outcome(node, &outcome);
        outcome
    }

    /// Sends a request whose outcome is only logged. Returns false if the node has its maximum of
    /// outstanding requests.
    pub(crate) fn tell(&self, node: NodeId, request: Request) -> bool {
        let Ok(position) = self.position(node) else { return false };
        let permits = Arc::clone(&self.shared.nodes[position].permits);
        let Ok(permit) = permits.try_acquire_owned() else { return false };
        let (during, deadline) = (request.name(), Instant::now() + self.shared.request_timeout);
        let (permit, can_go_without) = (Some(permit), false);
        let job = Job {
            node: position,
            request,
            during,
            span: None,
            permit,
            can_go_without,
            race: None,
            deadline,
            answer: None,
        };
        self.shared.driver.submit(job)
    }

    /// Sends a request whose answer is [`Answer::Done`].
    pub(crate) async fn ask_done(&self, node: NodeId, request: Request) -> Result<Reply, ClientError> {
        let during = request.name();
        let mut reply = self.ask(node, request, None).await?;
        match reply.take_answer(node, during)? {
            Answer::Done => Ok(reply),
            other => Err(unexpected_answer(node, during, &other, "done")),
        }
    }
}

/// Checks the options. Returns the nodes and the addresses to use, by id.
fn checked(options: &ClusterOptions) -> Result<Vec<(NodeId, Address)>, ClientError> {
    let wrong = |problem: String| Err(ClientError::Options(problem));
    check_ids(&options.nodes)?;
    if options.memory_bytes < MEMORY_BYTES_MIN || !options.memory_bytes.is_multiple_of(SLOT_BYTES) {
        return wrong(format!(
            "they give {} bytes of memory for answers, expected a multiple of {SLOT_BYTES}, at least {MEMORY_BYTES_MIN}",
            options.memory_bytes
        ));
    }
    let mut endpoints = options.nodes.iter().map(|node| Ok((node.id, address_of(node, options.wire)?)));
    let mut endpoints = endpoints.by_ref().collect::<Result<Vec<_>, ClientError>>()?;
    endpoints.sort_by_key(|(id, _)| *id);
    Ok(endpoints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(nodes: &[(u16, &[&str])]) -> ClusterOptions {
        let node = |(id, addresses): &(u16, &[&str])| NodeEndpoint {
            id: NodeId(*id),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        };
        ClusterOptions::new(nodes.iter().map(node).collect(), ClusterKey::from_bytes([7; 32]))
    }

    #[test]
    fn the_first_address_of_the_wire_asked_for_is_used() {
        let mut options = options(&[(2, &["shm:/b", "tcp:b:1"]), (1, &["tcp:a:1", "shm:/a", "tcp:a:2"])]);
        let chosen = |options: &ClusterOptions| {
            checked(options)
                .unwrap()
                .into_iter()
                .map(|(id, address)| format!("{id} {address}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen(&options), ["1 tcp:a:1", "2 shm:/b"]);
        options.wire = Some(Wire::Tcp);
        assert_eq!(chosen(&options), ["1 tcp:a:1", "2 tcp:b:1"]);
        options.nodes[1].addresses.truncate(1);
        options.wire = Some(Wire::Shm);
        let error = checked(&options).unwrap_err().to_string();
        assert!(error.contains("node 1") && error.contains("tcp:a:1"), "{error}");
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        assert!(checked(&options(&[])).is_err());
        assert!(checked(&options(&[(1, &["shm:/a"]), (1, &["shm:/b"])])).is_err());
        assert!(checked(&options(&[(1, &[])])).is_err());
        let mut small = options(&[(1, &["shm:/a"])]);
        small.memory_bytes = SLOT_BYTES;
        assert!(checked(&small).is_err());
    }
}

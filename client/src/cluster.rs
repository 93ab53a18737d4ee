//! How is a whole cluster reached?
//!
//! Invariants
//! - A [`Cluster`] exists only if every configured node was reached, but for as many as may be
//!   away, holds our key, speaks our version, says that it is the node configured and belongs to
//!   the same cluster as the others.
//! - Clones share connections, memory and the thread that drives them; the last one closes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_fabric::{Address, ClusterKey, WallClock, Wire, raise_descriptor_limit};
use rackscan_format::{
    ids::NodeId,
    limits::CLUSTER_NODES_MAX,
    message::{Answer, LoadReport, NodeStatus, Request},
    page::PageIdentity,
};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    LinesOptions,
    away::Away,
    cache::{OwnPages, RemoteCache},
    dial::Dial,
    driver::{Driver, Job, Reply},
    error::ClientError,
    limits::{
        MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN, RECONSTRUCTIONS_MAX, REQUEST_TIMEOUT_DEFAULT,
        REQUESTS_PER_NODE_MAX, SLOT_BYTES,
    },
    members::{Expected, members},
    page_buffer::PagePool,
    protected::{KnownMaps, Repairing},
    race::{Race, Slow},
    reach::{Reached, dial_apart, reach},
    target::{Span, TargetPool},
};

/// A storage node as the configuration names it.
#[derive(Debug, Clone)]
pub struct NodeEndpoint {
    /// Its id.
    pub id: NodeId,
    /// Where it listens. The first one of the wire asked for is used, or the first one.
    pub addresses: Vec<Address>,
}

/// What a cluster is reached with.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// All of its nodes.
    pub nodes: Vec<NodeEndpoint>,
    /// The key that all of its members hold.
    pub key: ClusterKey,
    /// The wire to use; each node's first address if absent.
    pub wire: Option<Wire>,
    /// Registered memory for answers, shared by all nodes.
    pub memory_bytes: usize,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// Whether pages that lie in a node's cache are taken from there without asking it.
    pub reads_caches: bool,
    /// Memory for pages that this process keeps itself; 0 for none.
    pub page_cache_bytes: u64,
    /// How many nodes may be away: tables that are protected are read without them.
    pub away_max: usize,
    /// The clock that timestamps of transactions are made with.
    pub wall: WallClock,
    /// The member list that every node must have, ascending; not compared if empty. By default the
    /// nodes above.
    pub members: Vec<NodeId>,
    /// The random numbers of data folders, as far as they are known: a node must have that one.
    pub folders: BTreeMap<NodeId, u64>,
}

impl ClusterOptions {
    /// Options with the default memory and timeout.
    #[must_use]
    pub fn new(nodes: Vec<NodeEndpoint>, key: ClusterKey) -> Self {
        Self {
            members: members(&nodes),
            folders: BTreeMap::new(),
            nodes,
            key,
            wire: None,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
            reads_caches: true,
            page_cache_bytes: 0,
            away_max: 0,
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
    /// Pages kept here.
    pub(crate) own: Option<OwnPages>,
    endpoints: Vec<NodeEndpoint>,
    pub(crate) key: ClusterKey,
    wire: Option<Wire>,
    wall: WallClock,
    pub(crate) away_max: usize,
    /// Stripes of protected tables.
    pub(crate) maps: KnownMaps,
    /// Pages of lost nodes that are being reconstructed.
    pub(crate) reconstructions: Semaphore,
    /// Corrupt pages that reads have found.
    pub(crate) repairing: Repairing,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) address: Address,
    pub(crate) away: Arc<Away>,
    /// Requests that may still be sent before earlier ones are answered.
    pub(crate) permits: Arc<Semaphore>,
    /// What is known of its page cache.
    pub(crate) cache: Arc<RemoteCache>,
    pub(crate) slow: Slow,
}

impl Cluster {
    /// What other connections to the same nodes are made with.
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

    /// The clock that timestamps of transactions are made with.
    #[must_use]
    pub fn wall(&self) -> &WallClock {
        &self.shared.wall
    }

    /// Connects to all nodes at the same time and asks each who it is.
    ///
    /// # Errors
    /// The nodes that cannot be reached, if more than may be; or the first one that is not who it
    /// should be, with its address and what to do.
    pub async fn connect(options: ClusterOptions) -> Result<Self, ClientError> {
        // Each connection takes some, and a query opens files beside them.
        raise_descriptor_limit();
        let endpoints = checked(&options)?;
        let memory = TargetPool::new(options.memory_bytes)?;
        let (begun, mut dialling) = (Instant::now(), Vec::new());
        for (node, address) in endpoints {
            let (key, memory) = (options.key.clone(), memory.region().clone());
            let (cache, reads_cache) = (Arc::default(), options.reads_caches);
            let (members, folder) = (options.members.clone(), options.folders.get(&node).copied());
            let expected = Expected { members, folder, seen: Vec::new() };
            let (cluster, posts) = (None, false);
            let dial = Dial { node, address, key, memory, cache, reads_cache, cluster, posts, expected };
            dialling.push((dial.clone(), dial_apart(dial)?));
        }
        let lines = reach(dialling, begun, options.away_max).await?;
        let statuses = lines.iter().filter_map(|reached| Some(reached.connected()?.status.clone())).collect();
        let node = |reached: &Reached| Node {
            id: reached.dial.node,
            address: reached.dial.address.clone(),
            away: reached.away(),
            permits: Arc::new(Semaphore::new(REQUESTS_PER_NODE_MAX)),
            cache: Arc::clone(&reached.dial.cache),
            slow: Slow::default(),
        };
        let nodes: Vec<Node> = lines.iter().map(node).collect();
        let lines = lines.into_iter().zip(nodes.iter().map(|node| Arc::clone(&node.away))).collect();
        let driver = Driver::start(lines, (options.request_timeout, options.away_max > 0))?;
        let pages = Arc::new(PagePool::default());
        let request_timeout = options.request_timeout;
        let own = OwnPages::new(options.page_cache_bytes);
        let ClusterOptions { nodes: endpoints, key, wire, away_max, wall, .. } = options;
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
            away_max,
            maps,
            reconstructions,
            repairing: Repairing::default(),
        };
        Ok(Self { shared: Arc::new(shared), uses_relays: true })
    }

    /// The same cluster, whose nodes compute the parity of loads and what one of them has lost
    /// among themselves, where all of a table's have a relay (as they do if nobody says otherwise);
    /// or for which this process reads what they are made of.
    #[must_use]
    pub fn with_relays(&self, uses_relays: bool) -> Self {
        Self { uses_relays, ..self.clone() }
    }

    /// The nodes' ids, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.shared.nodes.iter().map(|node| node.id)
    }

    /// Where a node is, and so over which wire it is reached.
    #[must_use]
    pub fn address(&self, node: NodeId) -> Option<&Address> {
        self.shared.nodes.iter().find(|known| known.id == node).map(|node| &node.address)
    }

    /// Of pages of a node with their bytes, how many bytes lie in this process' cache, or lay in
    /// the node's when it last spoke of them, and how many there are.
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

    /// What each node that was there said of itself when it was connected to, by id. See
    /// [`Cluster::status`] for now.
    #[must_use]
    pub fn statuses(&self) -> &[NodeStatus] {
        &self.shared.statuses
    }

    /// How busy a node said it was with its last reply.
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

    /// Sends a request and awaits the node's reply. `span` is the memory that the request names.
    pub(crate) async fn ask(
        &self,
        node: NodeId,
        request: Request,
        span: Option<Span>,
    ) -> Result<Reply, ClientError> {
        self.ask_in_race(node, request, span, None).await
    }

    /// The same; the race, if there is one, hears when others have answered the like far sooner.
    pub(crate) async fn ask_in_race(
        &self,
        node: NodeId,
        request: Request,
        span: Option<Span>,
        race: Option<Race>,
    ) -> Result<Reply, ClientError> {
        let (position, during) = (self.position(node)?, kind_of(&request));
        let node = &self.shared.nodes[position];
        self.check_away(node, &request, during)?;
        let permits = Arc::clone(&node.permits);
        let permit = permits.acquire_owned().await.map_err(|_| ClientError::Closed)?;
        let goes_without = self.goes_without(&request);
        if goes_without && node.away.silent().is_some() {
            // It has fallen silent meanwhile.
            self.check_away(node, &request, during)?;
        }
        let (answer, answered) = oneshot::channel();
        let job = Job {
            node: position,
            during,
            request,
            span,
            permit: Some(permit),
            goes_without,
            race,
            deadline: Instant::now() + self.shared.request_timeout,
            answer: Some(answer),
        };
        if !self.shared.driver.submit(job) {
            return Err(ClientError::Closed);
        }
        let outcome = answered.await.map_err(|_| ClientError::Closed)?;
        self.note_away(node, &outcome);
        outcome
    }

    /// Sends a request whose outcome is only logged. False if the node has as many requests as it
    /// may.
    pub(crate) fn tell(&self, node: NodeId, request: Request) -> bool {
        let Ok(position) = self.position(node) else { return false };
        let permits = Arc::clone(&self.shared.nodes[position].permits);
        let Ok(permit) = permits.try_acquire_owned() else { return false };
        let (during, deadline) = (kind_of(&request), Instant::now() + self.shared.request_timeout);
        let (permit, goes_without) = (Some(permit), false);
        let job = Job {
            node: position,
            request,
            during,
            span: None,
            permit,
            goes_without,
            race: None,
            deadline,
            answer: None,
        };
        self.shared.driver.submit(job)
    }

    /// Sends a request that only succeeds or fails.
    pub(crate) async fn ask_done(&self, node: NodeId, request: Request) -> Result<Reply, ClientError> {
        let during = kind_of(&request);
        let mut reply = self.ask(node, request, None).await?;
        match taken(node, during, &mut reply)? {
            Answer::Done => Ok(reply),
            other => Err(unexpected(node, during, &other, "done")),
        }
    }
}

/// The answer in a reply, or the refusal as an error.
pub(crate) fn taken(node: NodeId, during: &'static str, reply: &mut Reply) -> Result<Answer, ClientError> {
    let outcome = std::mem::replace(&mut reply.message.outcome, Ok(Answer::Done));
    outcome.map_err(|refusal| ClientError::Refused { node, during, refusal: Box::new(refusal) })
}

/// The error for an answer of the wrong kind.
pub(crate) fn unexpected(node: NodeId, during: &'static str, answer: &Answer, expected: &str) -> ClientError {
    let found = match answer {
        Answer::Status(_) => "a status",
        Answer::Catalog { .. } => "a part of a catalog",
        Answer::Fetched { .. } => "pages",
        Answer::Cache(_) => "a page cache",
        Answer::Processed { .. } => "the result of a scan",
        Answer::Appended { .. } => "a stored segment",
        Answer::ParityPlaced { .. } => "stored parity",
        Answer::Verified(_) => "what of stripes is corrupt",
        Answer::LoadHeld { .. } => "what a load holds",
        Answer::Home(_) => "a home of transactions",
        Answer::Posts { .. } => "boxes",
        Answer::Transacted { .. } => "messages of a transaction",
        Answer::LogKept(_) | Answer::CopyOfLog { .. } => "a copy of a log",
        Answer::Done => "done",
        Answer::Transferred { .. } => "the end of a raw request",
    };
    ClientError::BadAnswer { node, during, found: found.to_owned(), expected: expected.to_owned() }
}

/// What people call a request.
pub(crate) fn kind_of(request: &Request) -> &'static str {
    match request {
        Request::Status => "status",
        Request::Catalog { .. } => "catalog",
        Request::Fetch { .. } => "fetch",
        Request::Process { .. } => "process",
        Request::Append { .. } => "append",
        Request::Keep { .. } => "keep",
        Request::ReadRaw { .. } => "raw read",
        Request::WriteRaw { .. } => "raw write",
        Request::AppendParity(_) => "append parity",
        Request::ReserveParity(_) => "reserve parity",
        Request::LoadHeld(_) => "load held",
        Request::KeepMap(_) => "keep map",
        Request::ReadMap(_) => "read map",
        Request::Verify(_) => "verify",
        Request::Repair(_) => "repair",
        Request::Adopt(_) => "adopt",
        Request::PreparePublish { .. } => "prepare",
        Request::CommitPublish { .. } | Request::CommitInPlace { .. } => "commit",
        Request::AbortLoad { .. } => "abort",
        Request::Drop { .. } => "drop",
        Request::Echo { .. } => "echo",
        Request::OpenCache => "open cache",
        Request::CacheUsed { .. } => "cache used",
        Request::OpenHome => "open home",
        Request::OpenPosts { .. } => "open posts",
        Request::Transact { .. } => "transact",
        Request::KeepLog(_) => "keep log",
        Request::AcceptLoss => "accept loss",
        Request::HoldTables(_) => "hold tables",
        Request::ReleaseTables(_) => "release tables",
        Request::CopyOfLog(_) => "copy of log",
        Request::Stop => "stop",
    }
}

/// The nodes and the addresses to use, by id.
fn checked(options: &ClusterOptions) -> Result<Vec<(NodeId, Address)>, ClientError> {
    let wrong = |problem: String| Err(ClientError::Options(problem));
    check_ids(&options.nodes)?;
    if options.memory_bytes < MEMORY_BYTES_MIN || !options.memory_bytes.is_multiple_of(SLOT_BYTES) {
        return wrong(format!(
            "{} bytes of memory for answers, expected a multiple of {SLOT_BYTES} from {MEMORY_BYTES_MIN} on",
            options.memory_bytes
        ));
    }
    let mut endpoints = options.nodes.iter().map(|node| Ok((node.id, address_of(node, options.wire)?)));
    let mut endpoints = endpoints.by_ref().collect::<Result<Vec<_>, ClientError>>()?;
    endpoints.sort_by_key(|(id, _)| *id);
    Ok(endpoints)
}

/// As many nodes as there may be, each with an id of its own.
pub(crate) fn check_ids(nodes: &[NodeEndpoint]) -> Result<(), ClientError> {
    if nodes.is_empty() || nodes.len() > CLUSTER_NODES_MAX {
        let problem = format!("{} nodes, expected 1 to {CLUSTER_NODES_MAX}", nodes.len());
        return Err(ClientError::Options(problem));
    }
    let ids: BTreeSet<NodeId> = nodes.iter().map(|node| node.id).collect();
    if ids.len() != nodes.len() {
        let (nodes, ids) = (nodes.len(), ids.len());
        return Err(ClientError::Options(format!(
            "{nodes} nodes with {ids} different ids, expected unique ids"
        )));
    }
    Ok(())
}

/// The node's first address of the wire asked for.
pub(crate) fn address_of(node: &NodeEndpoint, wire: Option<Wire>) -> Result<Address, ClientError> {
    let Some(first) = node.addresses.first() else {
        return Err(ClientError::Options(format!("node {} has no address, expected at least one", node.id)));
    };
    let Some(wire) = wire else { return Ok(as_called(first)) };
    node.addresses.iter().find(|address| address.wire() == wire).map(as_called).ok_or_else(|| {
        ClientError::NoAddress {
            node: node.id,
            wire,
            addresses: node.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }
    })
}

/// A node's address as a caller uses it: the device in it is the node's, and a caller has its own.
fn as_called(address: &Address) -> Address {
    match address {
        Address::Verbs { host, port, .. } => Address::Verbs { device: None, host: host.clone(), port: *port },
        other => other.clone(),
    }
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

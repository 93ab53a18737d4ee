//! Connects to one node and checks that it is the node that the configuration names.
//!
//! Invariants
//! - A [`VerifiedConnection`] belongs to the node that is configured at that address, and the node
//!   has access to this client's target memory.
//! - Dialling blocks its thread for at most [`DIAL_TIME_MAX`](crate::limits::DIAL_TIME_MAX), so
//!   each dial has a thread of its own.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_cache::View;
use rackscan_fabric::{
    Access, Address, ClusterKey, ConnectError, Connection, Event, Operation, Region, RegisterError,
    RemoteRegion,
    post::{PostBoxError, PostBoxes, PostSender},
};
use rackscan_format::{
    ids::{NodeId, RequestId},
    message::{Answer, FolderIdentity, NodeStatus, ReplyMessage, Request, RequestMessage, Target},
};

use crate::{
    ClientError,
    cache::{Opened, RemoteCache},
    limits::{CONNECT_TIME_MAX, GREETING_TIME_MAX, REGISTER_PAUSE},
    lines::Posts,
    members::{ExpectedIdentity, listed},
    message_names::unexpected_answer,
};

/// Everything that is needed to connect to a node and to check it.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    pub(crate) node: NodeId,
    pub(crate) address: Address,
    pub(crate) key: ClusterKey,
    /// The target memory, into which the node may write answers.
    pub(crate) memory: Region,
    /// What is known of the node's page cache.
    pub(crate) cache: Arc<RemoteCache>,
    /// Whether the page cache is to be read one-sidedly.
    pub(crate) reads_cache: bool,
    /// The cluster that the node must belong to, once known.
    pub(crate) cluster: Option<u64>,
    /// Whether the node is asked for post boxes.
    pub(crate) posts: bool,
    pub(crate) expected: ExpectedIdentity,
}

/// A connection to a node that was checked to be the configured one.
#[derive(Debug)]
pub(crate) struct VerifiedConnection {
    pub(crate) connection: Connection,
    /// Our target memory, as requests name it to the node.
    pub(crate) target: RemoteRegion,
    pub(crate) status: NodeStatus,
    /// The node's page cache, if there is one and it is to be read.
    pub(crate) cache: Option<Opened>,
    /// Post boxes, if they were asked for and the node provides them.
    pub(crate) posts: Option<Posts>,
}

impl Dial {
    /// Connects, registers the target memory and asks the node for its status. A node that has
    /// passed the handshake is alive, and merely slow if it does not answer at once: it has more
    /// time than a node that cannot be reached.
    pub(crate) fn dial(&self) -> Result<VerifiedConnection, ClientError> {
        let connection = self.connect(Instant::now() + CONNECT_TIME_MAX)?;
        self.greet(connection, Instant::now() + GREETING_TIME_MAX)
    }

    /// Like [`Dial::dial`], with the caller's deadline.
    pub(crate) fn dial_until(&self, deadline: Instant) -> Result<VerifiedConnection, ClientError> {
        self.greet(self.connect(deadline)?, deadline)
    }

    fn connect(&self, deadline: Instant) -> Result<Connection, ClientError> {
        let begun = Instant::now();
        let key = self.key.of_node(self.node.0);
        let connected = rackscan_fabric::connect(&self.address, &key, deadline);
        connected.map_err(|error| match error {
            // The kernel accepted the connection, but the process does not answer.
            ConnectError::TimedOut { phase, .. } if phase != "connect" => {
                self.unresponsive("connect", begun.elapsed())
            }
            error => self.refused(&error),
        })
    }

    /// Registers memory, checks the node, and opens its cache and post boxes.
    fn greet(
        &self,
        mut connection: Connection,
        deadline: Instant,
    ) -> Result<VerifiedConnection, ClientError> {
        let target = self.register(&mut connection, deadline);
        let asked = target.and_then(|target| Ok((target, self.ask_status(&mut connection, deadline)?)));
        let (target, status) = asked.map_err(|error| self.farewell(&mut connection).unwrap_or(error))?;
        self.check(&status)?;
        let has_cache = self.reads_cache && status.cache.budget_bytes > 0;
        let cache = if has_cache { self.open_cache(&mut connection, deadline)? } else { None };
        let posts = if self.posts { self.open_posts(&mut connection, deadline)? } else { None };
        // The end of the connection may have come with the last answer, and is polled only once.
        if let Some(ending) = connection.ended() {
            return Err(self.unreachable(ending.to_string(), "see the node's log"));
        }
        tracing::debug!(node = %self.node, address = %self.address, version = status.version, "connected");
        Ok(VerifiedConnection { connection, target, status, cache, posts })
    }

    /// The reason that the node gave for ending a connection without an answer, if it gave one.
    fn farewell(&self, connection: &mut Connection) -> Option<ClientError> {
        let mut events = Vec::new();
        connection.poll(&mut events);
        events.into_iter().find_map(|event| match event {
            Event::Message { bytes } => self.read_answer("status", &bytes).err(),
            _ => None,
        })
    }

    fn register(&self, connection: &mut Connection, deadline: Instant) -> Result<RemoteRegion, ClientError> {
        // The node writes answers here and reads the segments of a load from here.
        self.register_by(deadline, || connection.register(&self.memory, Access::ReadWrite))
    }

    fn register_by(
        &self,
        deadline: Instant,
        mut register: impl FnMut() -> Result<RemoteRegion, RegisterError>,
    ) -> Result<RemoteRegion, ClientError> {
        loop {
            match register() {
                Ok(target) => return Ok(target),
                Err(RegisterError::PeerBusy) if Instant::now() < deadline => {
                    std::thread::sleep(REGISTER_PAUSE)
                }
                Err(error) => return Err(self.unreachable(error.to_string(), "see the node's log")),
            }
        }
    }

    fn ask_status(&self, connection: &mut Connection, deadline: Instant) -> Result<NodeStatus, ClientError> {
        match self.ask(connection, Request::Status, deadline)? {
            Answer::Status(status) => Ok(*status),
            other => Err(unexpected_answer(self.node, "status", &other, "a status")),
        }
    }

    /// Asks for the node's page cache. If the node refuses, its cache is not read.
    fn open_cache(
        &self,
        connection: &mut Connection,
        deadline: Instant,
    ) -> Result<Option<Opened>, ClientError> {
        let region = match self.ask(connection, Request::OpenCache, deadline) {
            Ok(Answer::Cache(region)) => region,
            Ok(other) => return Err(unexpected_answer(self.node, "open cache", &other, "a cache")),
            Err(error @ ClientError::Refused { .. }) => {
                tracing::info!(node = %self.node, %error, "the node's page cache is not read, because the node refuses that");
                None
            }
            Err(error) => return Err(error),
        };
        let Some(view) = region.as_ref().and_then(View::new) else { return Ok(None) };
        let (memory, length) = (view.memory(), view.memory().length);
        let mapped = connection.map_remote(memory, 0, length, Access::Read);
        Ok(Some(Opened { view, mapped }))
    }

    /// Asks for post boxes. If the node refuses, requests go there as messages.
    fn open_posts(
        &self,
        connection: &mut Connection,
        deadline: Instant,
    ) -> Result<Option<Posts>, ClientError> {
        let wrong =
            |error: PostBoxError| self.unreachable(error.to_string(), "give this process more memory");
        let shape = Posts::shape().map_err(wrong)?;
        let replies = PostBoxes::new(shape).map_err(wrong)?;
        let remote = self.register_by(deadline, || replies.register(connection))?;
        let RemoteRegion { key, address: offset_bytes, length: length_bytes } = remote;
        let request = Request::OpenPosts {
            boxes: u16::try_from(shape.boxes()).expect("the number of boxes: POSTS fits 16 bits"),
            body_bytes_max: u32::try_from(shape.body_bytes_max())
                .expect("the bytes of a box: POST_BODY_BYTES fits 32 bits"),
            replies: Target { key, offset_bytes, length_bytes },
        };
        let requests = match self.ask(connection, request, deadline) {
            Ok(Answer::Posts { requests }) => requests,
            Ok(other) => return Err(unexpected_answer(self.node, "open posts", &other, "boxes")),
            Err(error @ ClientError::Refused { .. }) => {
                tracing::info!(node = %self.node, %error, "requests to the node are sent as messages, because it refuses post boxes");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Target { key, offset_bytes: address, length_bytes: length } = requests;
        let sender = PostSender::new(RemoteRegion { key, address, length }, shape).map_err(wrong)?;
        Ok(Some(Posts::new(replies, sender)))
    }

    fn ask(
        &self,
        connection: &mut Connection,
        request: Request,
        deadline: Instant,
    ) -> Result<Answer, ClientError> {
        let during = request.name();
        let request = RequestMessage { id: RequestId(0), request };
        let bytes =
            request.encode().map_err(|source| ClientError::TooLarge { node: self.node, during, source })?;
        let sent = connection.post(0, Operation::Send { bytes: &bytes });
        sent.map_err(|error| self.unreachable(error.to_string(), "see the node's log"))?;
        let (asked, mut events) = (Instant::now(), Vec::new());
        while connection.wait(&mut events, deadline) > 0 {
            for event in events.drain(..) {
                match event {
                    Event::Message { bytes } => return self.read_answer(during, &bytes),
                    Event::Closed(ending) => {
                        return Err(self.unreachable(ending.to_string(), "see the node's log"));
                    }
                    Event::Completed { .. } | Event::Immediate { .. } => {}
                }
            }
        }
        Err(self.unresponsive(during, asked.elapsed()))
    }

    fn read_answer(&self, during: &'static str, bytes: &[u8]) -> Result<Answer, ClientError> {
        let node = self.node;
        let reply =
            ReplyMessage::decode(bytes).map_err(|source| ClientError::Codec { node, during, source })?;
        let refused = |refusal| ClientError::Refused { node, during, refusal: Box::new(refusal) };
        reply.outcome.map_err(refused)
    }

    /// Checks that this is the configured node.
    pub(crate) fn check(&self, status: &NodeStatus) -> Result<(), ClientError> {
        let wrong = |what, found: String, expected: String| {
            let (node, address) = (self.node, self.address.clone());
            Err(ClientError::WrongNode { node, address: Box::new(address), what, found, expected })
        };
        if status.node != self.node {
            return wrong("the id of the node there", status.node.to_string(), self.node.to_string());
        }
        match self.cluster {
            Some(cluster) if cluster != status.cluster => wrong(
                "the cluster it belongs to",
                format!("{:#018x}", status.cluster),
                format!("{cluster:#018x}"),
            ),
            _ => self.check_folder(&status.identity),
        }
    }

    /// Compares the identity of the node's data folder with the expected one.
    pub(crate) fn check_folder(&self, identity: &FolderIdentity) -> Result<(), ClientError> {
        let (node, ExpectedIdentity { members, folder, seen }) = (self.node, &self.expected);
        // A node that was never told a member list has none.
        if !members.is_empty() && !identity.members.is_empty() && *members != identity.members {
            let (found, expected) = (listed(members), listed(&identity.members));
            return Err(ClientError::OtherMembers { node, found, expected });
        }
        if let Some(folder) = folder.filter(|folder| *folder != identity.folder) {
            return Err(ClientError::WrongNode {
                node,
                address: Box::new(self.address.clone()),
                what: "the number of its data folder",
                found: format!("{:016x}", identity.folder),
                expected: format!("{folder:016x}, as the folder on this host records"),
            });
        }
        match seen.iter().find(|seen| identity.history.lacks(seen)) {
            Some(seen) => {
                let (address, starts) = (Box::new(self.address.clone()), identity.history.number);
                Err(ClientError::Outdated { node, address, starts, seen: seen.number })
            }
            None => Ok(()),
        }
    }

    fn refused(&self, error: &ConnectError) -> ClientError {
        let advice = match error {
            ConnectError::Refused { .. } => {
                "start the node (`rackscan cluster start`) or correct its address in the cluster's configuration"
            }
            ConnectError::TimedOut { .. } => "the node is overloaded or stopped: see its log",
            ConnectError::WrongKey { .. } => "use the cluster key that the node was started with",
            ConnectError::Version { .. } => "run the same release of rackscan on both sides",
            ConnectError::OtherUser { .. } => "run both as the same user, or use the tcp wire",
            ConnectError::OtherPeer { .. } => {
                "another node listens there: stop it, or correct the address in the cluster's configuration"
            }
            ConnectError::NotAPeer { .. } => "correct the node's address in the cluster's configuration",
            _ => "see the node's log",
        };
        // `ClientError` names the address itself.
        let reason = match &error {
            ConnectError::Refused { source, .. } => source.to_string(),
            other => {
                let text = other.to_string();
                let rest = text.strip_prefix(&self.address.to_string()).map(|rest| format!("it{rest}"));
                rest.unwrap_or(text)
            }
        };
        self.unreachable(reason, advice)
    }

    pub(crate) fn unresponsive(&self, during: &'static str, silent: Duration) -> ClientError {
        ClientError::Unresponsive { node: self.node, address: self.address.clone(), during, silent }
    }

    fn unreachable(&self, reason: String, advice: &'static str) -> ClientError {
        ClientError::Unreachable { node: self.node, address: self.address.clone(), reason, advice }
    }
}

/// Runs code that connects, or waits for a connection, on a thread of its own.
pub(crate) fn spawn_dial_thread(dialling: impl FnOnce() + Send + 'static) -> Result<(), ClientError> {
    let spawned = std::thread::Builder::new().name("rackscan-dial".to_owned()).spawn(dialling);
    spawned
        .map(drop)
        .map_err(|error| ClientError::Os { action: "start a thread to connect", source: Arc::new(error) })
}

//! A raw client for the tests: it talks to a node over a fabric connection with one region, message
//! by message.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Access, Address, ClusterKey, Connection, Event, Operation, PostError, Region, RemoteRegion,
};
use rackscan_format::{
    codec::{self, Envelope},
    ids::RequestId,
    message::{
        Answer, NodeCatalog, NodeStatus, Refusal, RefusalCode, ReplyMessage, Request, RequestMessage, Target,
    },
};

const REGION_BYTES: usize = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) region: Region,
    remote: RemoteRegion,
    next: u64,
    replies: HashMap<u64, ReplyMessage>,
}

impl Client {
    pub(crate) fn connect(address: &Address, key: &ClusterKey) -> Self {
        Self::connect_with(address, key, REGION_BYTES)
    }

    /// With a region of so many bytes.
    pub(crate) fn connect_with(address: &Address, key: &ClusterKey, region_bytes: usize) -> Self {
        let deadline = Instant::now() + PATIENCE;
        let mut connection = rackscan_fabric::connect(address, key, deadline).expect("the node accepts");
        let region = Region::allocate(region_bytes).expect("memory for a test");
        let remote = connection.register(&region, Access::ReadWrite).expect("the region is registered");
        Self { connection, region, remote, next: 0, replies: HashMap::new() }
    }

    /// A part of the registered region.
    pub(crate) fn target(&self, offset_bytes: u64, length_bytes: u64) -> Target {
        Target { key: self.remote.key, offset_bytes: self.remote.address + offset_bytes, length_bytes }
    }

    /// Sends a request and returns its number.
    pub(crate) fn send(&mut self, request: Request) -> u64 {
        let (id, bytes) = self.encode(request);
        self.send_bytes(&bytes);
        id
    }

    /// The bytes of a request, and its number.
    pub(crate) fn encode(&mut self, request: Request) -> (u64, Vec<u8>) {
        self.next += 1;
        let message = RequestMessage { id: RequestId(self.next), request };
        (self.next, message.encode().expect("a test's request is well formed"))
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        // Completions of earlier messages may still wait to be polled, behind replies.
        while let Err(error) = self.connection.post(u64::MAX, Operation::Send { bytes }) {
            assert!(matches!(error, PostError::QueueFull { .. }), "{error}");
            assert!(self.poll(deadline), "no message was taken for {PATIENCE:?}; {:?}", self.connection);
        }
    }

    /// Waits for the reply to a request.
    pub(crate) fn wait(&mut self, id: u64) -> ReplyMessage {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            // The last reply may arrive together with the connection's end.
            let goes_on = self.poll(deadline) || self.replies.contains_key(&id);
            assert!(goes_on, "no reply to request {id}; {:?}", self.connection);
        }
    }

    /// Takes what arrives; false if nothing does until the deadline, or the connection has ended.
    pub(crate) fn poll(&mut self, deadline: Instant) -> bool {
        let mut events = Vec::new();
        self.connection.wait(&mut events, deadline) > 0 && self.note(events)
    }

    /// A reply that has arrived as a message.
    pub(crate) fn take_reply(&mut self, id: u64) -> Option<ReplyMessage> {
        self.replies.remove(&id)
    }

    /// Takes what has happened; false if the connection has ended.
    pub(crate) fn note(&mut self, events: Vec<Event>) -> bool {
        for event in events {
            match event {
                Event::Message { bytes } => {
                    let reply = ReplyMessage::decode(&bytes).expect("a node's replies are well formed");
                    self.replies.insert(reply.id.0, reply);
                }
                Event::Closed(_) => return false,
                Event::Completed { .. } | Event::Immediate { .. } => {}
            }
        }
        true
    }

    /// Sends a request and waits for its outcome.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Answer, Refusal> {
        let id = self.send(request);
        self.wait(id).outcome
    }

    /// Asks for something that must be done.
    pub(crate) fn done(&mut self, request: Request) {
        assert_eq!(self.ask(request), Ok(Answer::Done));
    }

    /// Asks for something that must be refused.
    pub(crate) fn refused(&mut self, request: Request) -> Refusal {
        self.ask(request).expect_err("the request must be refused")
    }

    pub(crate) fn refusal_code(&mut self, request: Request) -> RefusalCode {
        self.refused(request).code
    }

    pub(crate) fn status(&mut self) -> NodeStatus {
        match self.ask(Request::Status) {
            Ok(Answer::Status(status)) => *status,
            other => panic!("a status was expected, not {other:?}"),
        }
    }

    /// The whole catalog, read in parts of `part_bytes`.
    pub(crate) fn catalog(&mut self, part_bytes: u64) -> NodeCatalog {
        let mut bytes = Vec::new();
        loop {
            let (from_bytes, target) = (bytes.len() as u64, self.target(0, part_bytes));
            match self.ask(Request::Catalog { from_bytes, target }) {
                Ok(Answer::Catalog { written_bytes, total_bytes, .. }) => {
                    bytes.extend(self.copy_out(0, written_bytes));
                    if bytes.len() as u64 == total_bytes {
                        return codec::decode_envelope(Envelope::CatalogReply, "catalog", &bytes)
                            .expect("it is whole");
                    }
                    assert!(written_bytes > 0, "no progress");
                }
                other => panic!("a catalog was expected, not {other:?}"),
            }
        }
    }

    pub(crate) fn copy_out(&self, offset: u64, length: u64) -> Vec<u8> {
        let place = |bytes: u64| usize::try_from(bytes).expect("a test's region is small");
        self.region.to_vec(place(offset), place(length)).expect("it lies in the region")
    }
}

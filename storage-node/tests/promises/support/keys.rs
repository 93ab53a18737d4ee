//! Sends requests about keys and transactions to a node's participant, message by message, through
//! a raw client.

use rackscan_format::{
    codec,
    limits::TRANSACT_BYTES_MAX,
    message::{Answer, ParticipantRegion, Payload, Refusal, Request as NodeRequest, Target},
};
use rackscan_ramp::{
    item::{Key, Metadata, Value},
    message::{Found, Guard, LeaseId, Part, ParticipantId, Reply, Request},
    timestamp::{ClientId, Timestamp},
};

use super::client::Client;

/// Where a request's bytes lie in the client's region, and behind them where an answer goes.
const TARGET_AT: u64 = 8 << 20;
const TARGET_BYTES: u64 = 16 << 20;

pub(crate) fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).expect("a short name")
}

pub(crate) fn value(bytes: &[u8]) -> Value {
    Value::new(bytes).expect("not too long")
}

pub(crate) fn at(time: u64, client: u32) -> Timestamp {
    Timestamp { time, client: ClientId(client) }
}

/// What a transaction writes in the one participant that there is. It names another one, which has
/// a vote, too: so what is prepared stays in doubt until it is said how it ends.
pub(crate) fn part(timestamp: Timestamp, items: &[(&str, &[u8])]) -> Part {
    let mut items: Vec<_> = items.iter().map(|(name, bytes)| (key(name), value(bytes))).collect();
    items.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (participants, guard) = (vec![ParticipantId(3), ParticipantId(9)], Guard::Open);
    Part { timestamp, participants, guard, metadata: Metadata::Timestamp, items }
}

pub(crate) fn prepare(timestamp: Timestamp, items: &[(&str, &[u8])]) -> Request {
    Request::Prepare { part: part(timestamp, items), settled: Vec::new(), preconditions: Default::default() }
}

impl Client {
    /// A place for long answers.
    pub(crate) fn answers(&self) -> Target {
        self.target(TARGET_AT, TARGET_BYTES)
    }

    /// The request with these messages, in it or beside it.
    pub(crate) fn transact_request(&self, messages: &[Request]) -> NodeRequest {
        let bytes = codec::encode(&messages).expect("messages are encoded");
        let messages = if bytes.len() <= TRANSACT_BYTES_MAX {
            Payload::Here(bytes)
        } else {
            self.region.copy_in(0, &bytes).expect("it fits");
            Payload::Beside(self.target(0, bytes.len() as u64))
        };
        NodeRequest::Transact { messages, target: self.answers() }
    }

    /// What is said in an answer.
    pub(crate) fn replies(&self, answer: Result<Answer, Refusal>) -> Vec<Reply> {
        let bytes = match answer {
            Ok(Answer::Transacted { messages: Payload::Here(bytes) }) => bytes,
            Ok(Answer::Transacted { messages: Payload::Beside(written) }) => {
                let target = self.answers();
                assert_eq!((written.key, written.offset_bytes), (target.key, target.offset_bytes));
                self.copy_out(TARGET_AT, written.length_bytes)
            }
            other => panic!("messages were expected, not {other:?}"),
        };
        codec::decode("replies", &bytes).expect("replies are well formed")
    }

    /// Sends messages and waits for what is said to them.
    pub(crate) fn tell(&mut self, messages: &[Request]) -> Vec<Reply> {
        let request = self.transact_request(messages);
        let answer = self.ask(request);
        self.replies(answer)
    }

    /// Sends one message that is answered by one.
    pub(crate) fn transact(&mut self, message: Request) -> Reply {
        let mut replies = self.tell(&[message]);
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0)
    }

    pub(crate) fn lease(&mut self, client: u32) -> LeaseId {
        match self.transact(Request::Lease { client: ClientId(client) }) {
            Reply::Leased { lease, .. } => lease,
            other => panic!("a lease was expected, not {other:?}"),
        }
    }

    /// Writes and waits until it is visible.
    pub(crate) fn commit(&mut self, timestamp: Timestamp, items: &[(&str, &[u8])]) {
        assert_eq!(self.transact(prepare(timestamp, items)), Reply::Prepared);
        assert_eq!(self.transact(Request::Commit { timestamp }), Reply::Committed);
    }

    pub(crate) fn get(&mut self, lease: LeaseId, names: &[&str]) -> Vec<(Key, Found)> {
        let keys = names.iter().map(|name| key(name)).collect();
        let replies = self.tell(&[Request::Get { lease, keys }]);
        let items = replies.into_iter().map(|reply| match reply {
            Reply::Found { items, .. } => items,
            other => panic!("values were expected, not {other:?}"),
        });
        items.flatten().collect()
    }

    /// The committed value of one key.
    pub(crate) fn value(&mut self, lease: LeaseId, name: &str) -> Option<Vec<u8>> {
        let found = self.get(lease, &[name]).remove(0).1;
        found.version.value.bytes().map(<[u8]>::to_vec)
    }

    pub(crate) fn open_participant(&mut self) -> ParticipantRegion {
        match self.ask(NodeRequest::OpenParticipant) {
            Ok(Answer::Participant(Some(region))) => region,
            other => panic!("the participant's memory was expected, not {other:?}"),
        }
    }
}

/// For clients whose region is too small for long answers.
impl Client {
    fn small(&mut self, message: Request) -> Reply {
        let bytes = codec::encode(&vec![message]).expect("messages are encoded");
        let target = self.target(0, 4096);
        match self.ask(NodeRequest::Transact { messages: Payload::Here(bytes), target }) {
            Ok(Answer::Transacted { messages: Payload::Here(bytes) }) => {
                let mut replies: Vec<Reply> =
                    codec::decode("replies", &bytes).expect("replies are well formed");
                replies.remove(0)
            }
            other => panic!("messages were expected, not {other:?}"),
        }
    }

    pub(crate) fn lease_small(&mut self, client: u32) {
        let leased = self.small(Request::Lease { client: ClientId(client) });
        assert!(matches!(leased, Reply::Leased { .. }), "{leased:?}");
    }

    /// Writes without a vote.
    pub(crate) fn put_small(&mut self, timestamp: Timestamp, name: &str, bytes: &[u8]) -> Reply {
        let part = Part { participants: Vec::new(), ..part(timestamp, &[(name, bytes)]) };
        self.small(Request::Put { part, preconditions: Default::default() })
    }
}

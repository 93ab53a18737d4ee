//! Defines the messages between clients and nodes, and between nodes, and their encoding.
//!
//! Messages open and end sessions and begin stripes. The bytes of stripes, and credits, are
//! transferred by one-sided writes instead ([`crate::ring`]).
//!
//! Invariant: the counts and lengths of a decoded message are within [`crate::limits`]. Whether the
//! lane, member or ring that a number names exists is checked where the number is used.

use rackscan_fabric::RemoteRegion;
use rackscan_format::{
    codec::{self, CodecError},
    ids::NodeId,
};
use rackscan_stripe::{
    Parity,
    limits::{NODES_MAX, PRIME_MAX},
};
use serde::{Deserialize, Serialize};

use crate::{
    limits::{ADDRESS_BYTES_MAX, PROTOCOL, WHAT_BYTES_MAX, WHY_BYTES_MAX},
    task::Task,
};

/// A message between places of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// From the client to each node: a session begins.
    Open(Open),
    /// From a node to one that it forwards to: this link belongs to that session.
    Join(Join),
    /// From a receiver to a sender: where the rings are. The answer to `Open` and `Join`.
    Rings(Rings),
    /// From a node to the client: its links to other nodes are complete.
    Ready,
    /// From the client to each node: a stripe begins.
    Begin(Begin),
    /// From a node to the client: its cells of a stripe are stored, and it has sent all that others
    /// need.
    Stored {
        /// The lane.
        lane: u8,
        /// The stripe's number.
        stripe: u64,
        /// The CRC-32C of each kept cell, by ascending cells.
        kept: Vec<u32>,
        /// The CRC-32C of each cell that was read, by ascending cells.
        held: Vec<u32>,
    },
    /// From any place to any other: the session has ended, and why.
    Ends(Ends),
    /// Only wakes the receiver, on wires where one-sided writes do not.
    Look,
}

/// Opens a session: its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) protocol: u32,
    pub(crate) session: u64,
    pub(crate) parity: Parity,
    pub(crate) task: Task,
    pub(crate) cell_bytes_max: u64,
    pub(crate) slice_bytes: u32,
    pub(crate) lanes: u16,
    pub(crate) slots: u16,
    /// The nodes, ascending by id, with their addresses.
    pub(crate) members: Vec<(NodeId, String)>,
    /// The index of the receiver among them.
    pub(crate) you: u8,
    /// The memory of the client's credits.
    pub(crate) credits: Name,
}

/// The node that will forward, and the memory of its credits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Join {
    pub(crate) protocol: u32,
    pub(crate) session: u64,
    pub(crate) from: u8,
    pub(crate) credits: Name,
}

/// The memory for slices, and for their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rings {
    pub(crate) slots: Name,
    pub(crate) journal: Name,
}

/// A stripe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(crate) lane: u8,
    pub(crate) stripe: u64,
    pub(crate) cell_bytes: u64,
    /// A description for the node's store.
    pub(crate) what: Vec<u8>,
}

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    /// The index of the member at fault; `None` for the client.
    pub(crate) member: Option<u8>,
    pub(crate) cause: Cause,
    pub(crate) why: String,
}

/// The kind of fault that ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// The connection to it is lost: its process or its machine has died.
    Lost,
    /// It could not be reached when the session was opened.
    Unreachable,
    /// It violated the protocol.
    Violation,
    /// Its store refused a stripe or a session, for example because it is full.
    Refused,
    /// One of its devices failed.
    Disk,
    /// Bytes that it keeps are not what the client sent.
    Checksum,
    /// It ended the session on purpose.
    Closed,
    /// It did nothing for longer than a session may.
    Idle,
}

impl Cause {
    /// The verb phrase for messages.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Lost => "was lost",
            Self::Unreachable => "could not be reached",
            Self::Violation => "broke the protocol",
            Self::Refused => "refused to take part",
            Self::Disk => "had a device error",
            Self::Checksum => "wrote wrong bytes",
            Self::Closed => "left the session",
            Self::Idle => "made no progress for too long",
        }
    }
}

/// Registered memory of a peer, as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Name {
    key: u64,
    address: u64,
    length: u64,
}

impl From<RemoteRegion> for Name {
    fn from(RemoteRegion { key, address, length }: RemoteRegion) -> Self {
        Self { key, address, length }
    }
}

impl From<Name> for RemoteRegion {
    fn from(Name { key, address, length }: Name) -> Self {
        Self { key, address, length }
    }
}

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("a message between relays has {found} {what}, expected at most {expected}")]
    TooMuch { what: &'static str, found: usize, expected: usize },
    #[error(
        "the peer uses version {found} of the relay protocol, expected {PROTOCOL}: run the same release of rackscan everywhere"
    )]
    Protocol { found: u32 },
}

impl Message {
    /// Encodes it. Own messages keep the bounds, so this does not fail.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self)
    }

    /// Decodes bytes from any peer.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let message: Self = codec::decode("a message between relays", bytes)?;
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), MessageError> {
        let most = |what, found, expected| {
            if found <= expected { Ok(()) } else { Err(MessageError::TooMuch { what, found, expected }) }
        };
        match self {
            Self::Open(open) => {
                of_our_protocol(open.protocol)?;
                most("members", open.members.len(), NODES_MAX)?;
                let longest = open.members.iter().map(|(_, address)| address.len()).max();
                most("bytes of an address", longest.unwrap_or(0), ADDRESS_BYTES_MAX)
            }
            Self::Join(join) => of_our_protocol(join.protocol),
            Self::Begin(begin) => most("bytes that describe a stripe", begin.what.len(), WHAT_BYTES_MAX),
            Self::Ends(ends) => most("bytes of a reason", ends.why.len(), WHY_BYTES_MAX),
            Self::Stored { kept, held, .. } => {
                most("cells of a stripe", kept.len().max(held.len()), PRIME_MAX)
            }
            Self::Rings(_) | Self::Ready | Self::Look => Ok(()),
        }
    }
}

fn of_our_protocol(found: u32) -> Result<(), MessageError> {
    if found == PROTOCOL { Ok(()) } else { Err(MessageError::Protocol { found }) }
}

/// Shortens a reason to what fits into a message.
pub(crate) fn short(mut why: String) -> String {
    let end = (0..=WHY_BYTES_MAX).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
    if why.len() > end {
        why.truncate(end);
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(bytes: usize) -> Message {
        Message::Begin(Begin { lane: 3, stripe: u64::MAX, cell_bytes: 4096, what: vec![7; bytes] })
    }

    #[test]
    fn messages_survive_their_bytes() {
        let name = Name { key: 1, address: 2, length: 3 };
        let ends = Ends { member: Some(4), cause: Cause::Checksum, why: "slice 7".to_owned() };
        let messages = [
            Message::Join(Join { protocol: PROTOCOL, session: 9, from: 1, credits: name }),
            Message::Rings(Rings { slots: name, journal: name }),
            Message::Ready,
            begin(WHAT_BYTES_MAX),
            Message::Stored { lane: 1, stripe: 17, kept: vec![1, u32::MAX], held: vec![7] },
            Message::Ends(ends),
            Message::Look,
        ];
        for message in messages {
            assert_eq!(Message::decode(&message.encode().unwrap()).unwrap(), message);
        }
    }

    #[test]
    fn messages_beyond_the_bounds_are_refused() {
        assert!(Message::decode(&begin(WHAT_BYTES_MAX + 1).encode().unwrap()).is_err());
        let stored = |cells| Message::Stored { lane: 0, stripe: 0, kept: Vec::new(), held: vec![7; cells] };
        assert!(Message::decode(&stored(PRIME_MAX).encode().unwrap()).is_ok());
        assert!(Message::decode(&stored(PRIME_MAX + 1).encode().unwrap()).is_err());
        let ends = |why| Message::Ends(Ends { member: None, cause: Cause::Lost, why }).encode().unwrap();
        let long = "\u{e9}".repeat(WHY_BYTES_MAX);
        assert!(Message::decode(&ends(long.clone())).is_err());
        assert!(Message::decode(&ends(short(long))).is_ok());
        let mut bytes = begin(10).encode().unwrap();
        bytes.push(0);
        assert!(Message::decode(&bytes).is_err(), "bytes left over");
        let credits = Name { key: 1, address: 2, length: 3 };
        let join = Join { protocol: PROTOCOL + 1, session: 9, from: 1, credits };
        let found = Message::decode(&Message::Join(join).encode().unwrap());
        assert!(matches!(found, Err(MessageError::Protocol { found }) if found == PROTOCOL + 1));
    }
}

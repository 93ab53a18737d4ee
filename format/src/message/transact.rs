//! Defines how messages of transactions are sent, and the status of a node's participant.
//!
//! `rackscan-ramp` defines the content of these messages; here they are bytes. A request carries an
//! ordered list of messages, of which at most one is answered. The answer is a list, too (a long
//! answer has several messages).
//!
//! Invariants
//! - A list longer than [`TRANSACT_BYTES_MAX`] never travels inside a message of the fabric: the
//!   node reads a long request from the requester's memory, and writes a long answer into the
//!   request's target.
//!
//! [`TRANSACT_BYTES_MAX`]: crate::limits::TRANSACT_BYTES_MAX

use serde::{Deserialize, Serialize};

use super::Target;

/// Bytes that travel inside a message, or beside it if they are long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// Inside the message; at most `TRANSACT_BYTES_MAX`.
    Here(#[serde(with = "in_one_piece")] Vec<u8>),
    /// In the requester's memory. In a request: the memory that holds exactly these bytes. In an
    /// answer: the part of the request's target, from its beginning, that they were written to.
    Beside(Target),
}

/// Serializes bytes as one block. Serialized one by one, as lists are, the bytes of an answer took
/// longer than its reads.
mod in_one_piece {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
    }
}

/// The memory of a node's participant, registered on the connection on which this is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipantRegion {
    /// Slots with the newest versions, for reading; offsets count from the beginning. `None` if
    /// there are no slots.
    pub slots: Option<Target>,
    /// The feed, for reading: `rackscan_ramp::feed`. `None` if there is no feed.
    pub feed: Option<Target>,
    /// The number of the participant's current life: slots of another life are ignored.
    pub life: u64,
}

/// Metrics of a node's participant. Counters count since it started; the fields at the beginning
/// are gauges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ParticipantStatus {
    /// Bytes that versions of keys may take; 0 if the node keeps no keys.
    pub budget_bytes: u64,
    /// Bytes that versions of keys take.
    pub used_bytes: u64,
    /// Bytes of superseded versions that readers may still ask for.
    pub held_bytes: u64,
    /// The number of keys.
    pub keys: u64,
    /// Transactions in doubt: prepared, and their outcome is not known here.
    pub in_doubt: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Whether the log accepts no more records.
    pub log_full: bool,
    /// Other nodes whose replica of the log has all acknowledged records.
    pub log_copies: u16,
    /// Bytes that were cut off the end of the log at the start because they are not complete
    /// records: unacknowledged records that a crash interrupted, or damage. They are kept beside
    /// the log. 0 if there were none, or if replicas at other nodes restored them.
    pub log_cut_bytes: u64,
    /// Requests.
    pub requests: u64,
    /// Transactions that were prepared.
    pub prepared: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Transactions that were refused.
    pub refused: u64,
    /// Transactions whose outcome was found by asking the other participants.
    pub ended_by_asking: u64,
    /// Batches of log records that were made durable, each with one device flush.
    pub log_batches: u64,
    /// Other nodes that should have a replica of the log.
    pub log_replicas: u16,
    /// The number of replicas that must have a record before it is acknowledged.
    pub log_replicas_min: u16,
    /// The number of the valid generation of the log; 0 before one is valid, and where there are no
    /// replicas.
    pub log_generation: u64,
    /// The number of other nodes that do not know the last generation of the log yet. While it is
    /// 0, two of four nodes may lose everything without loss of data.
    pub log_generation_unaware: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn a_payload_has_the_bytes_of_a_list_and_survives_them() {
        for bytes in [Vec::new(), vec![7; 1000]] {
            let payload = Payload::Here(bytes.clone());
            let encoded = codec::encode(&payload).unwrap();
            assert_eq!(encoded[1..], codec::encode(&bytes).unwrap());
            assert_eq!(codec::decode("a payload", &encoded), Ok(payload));
            assert!(codec::decode::<Payload>("a payload", &encoded[..encoded.len() - 1]).is_err());
        }
    }
}

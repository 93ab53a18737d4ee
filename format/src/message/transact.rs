//! How do the messages of transactions travel?
//!
//! What they say is for `rackscan-ramp`: here they are bytes. A request carries a list of them in
//! order, of which at most one is answered; what is answered to it comes back as a list, too (a
//! long answer is several messages).
//!
//! Invariants
//! - What is longer than [`TRANSACT_BYTES_MAX`] never travels in a message: the node pulls a
//!   request out of its source, and writes an answer into its target.
//!
//! [`TRANSACT_BYTES_MAX`]: crate::limits::TRANSACT_BYTES_MAX

use serde::{Deserialize, Serialize};

use super::Target;

/// Bytes that travel in a message, or beside it if they are long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// In the message; at most `TRANSACT_BYTES_MAX`.
    Here(#[serde(with = "in_one_piece")] Vec<u8>),
    /// In the requester's memory: of a request, exactly the bytes to be pulled; of an answer, where
    /// in the request's target they were written, from its beginning.
    Beside(Target),
}

/// Bytes that are copied at once: one by one, as lists are, those of an answer took longer than its
/// reads.
mod in_one_piece {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
    }
}

/// The memory of a node's home of transactions, registered on the connection over which this
/// travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeRegion {
    /// Slots with the newest versions, for reading; places in it are counted from its beginning.
    /// `None` if the home has none.
    pub slots: Option<Target>,
    /// Its feed, for reading: `rackscan_ramp::feed`. `None` if the home has none.
    pub feed: Option<Target>,
    /// Which life of the home: slots of another one are never believed.
    pub life: u64,
}

/// How a node's home of transactions does. Counts since it started, but for the gauges at the
/// beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HomeStatus {
    /// Bytes that its versions may take; 0 if the node keeps no keys.
    pub budget_bytes: u64,
    /// Bytes that they take.
    pub used_bytes: u64,
    /// Bytes of superseded versions that readers may yet ask for.
    pub held_bytes: u64,
    /// Keys.
    pub keys: u64,
    /// Transactions that are prepared and not known to have ended.
    pub in_doubt: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Whether its log takes no more records.
    pub log_full: bool,
    /// Other nodes whose copy of its log has all that was acknowledged.
    pub log_copies: u16,
    /// Bytes that were cut off the end of its log when it started, because they are no whole
    /// records: what a crash leaves of records that nobody was told of, or damage. They are kept
    /// beside the log. 0 if there were none, or if copies in other nodes gave them back.
    pub log_cut_bytes: u64,
    /// Requests.
    pub requests: u64,
    /// Transactions that were prepared.
    pub prepared: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Transactions that were refused.
    pub refused: u64,
    /// Transactions that were ended by asking the other homes.
    pub ended_by_asking: u64,
    /// Batches of the log that were made durable, each with one flush.
    pub log_batches: u64,
    /// Other nodes that are to have a replica of its log.
    pub log_replicas: u16,
    /// How many of them must have a record before it is acknowledged.
    pub log_replicas_min: u16,
    /// The number of its log's generation that counts; 0 before one does, and where there are no
    /// replicas.
    pub log_generation: u64,
    /// How many other nodes do not know the last generation of its log yet. Where it is 0, two of
    /// four nodes may lose everything.
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

//! What does a node say of its relays, and what is a stripe for that is relayed?

use serde::{Deserialize, Serialize};

use crate::codec::{self, CodecError};

/// Where the cells of a relayed stripe go, as the client tells every node that keeps some of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelayedTo {
    /// Nowhere: they are checked in memory and forgotten, as the paper measures.
    Memory,
    /// Into the scratch area, one behind the other, over what was there.
    Scratch,
}

impl RelayedTo {
    /// Its bytes.
    ///
    /// # Errors
    /// None that are known: it is small.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self)
    }

    /// The inverse of [`RelayedTo::encode`].
    ///
    /// # Errors
    /// Bytes that are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode("what a stripe is for", bytes)
    }
}

/// A relay of a node, and what it has done since it started.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RelayStatus {
    /// Where it listens.
    pub address: String,
    /// Sessions that it takes part in now.
    pub sessions: u64,
    /// Stripes that ended well.
    pub stripes: u64,
    /// Bytes of slices sent to other nodes.
    pub sent_bytes: u64,
    /// Bytes of slices received, from clients and other nodes.
    pub received_bytes: u64,
    /// Bytes of slices that were inputs of sums.
    pub xored_bytes: u64,
    /// Bytes of kept cells whose checksum was found right.
    pub kept_bytes: u64,
    /// Bytes given to devices.
    pub stored_bytes: u64,
    /// How often a slice had to wait for room at its receiver.
    pub waits_for_credit: u64,
    /// Bytes that the fabric counts as written one-sidedly: slices, their names, and credits.
    pub written_bytes: u64,
    /// Messages sent.
    pub messages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stripe_is_for_survives_its_bytes_and_nonsense_is_refused() {
        for to in [RelayedTo::Memory, RelayedTo::Scratch] {
            assert_eq!(RelayedTo::decode(&to.encode().unwrap()).unwrap(), to);
        }
        assert!(RelayedTo::decode(&[]).is_err());
        assert!(RelayedTo::decode(&[9]).is_err());
    }
}

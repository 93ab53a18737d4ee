//! Defines the status of a node's relay (the part of the node that forwards and stores stripes),
//! and what relayed stripes are for.
//!
//! Invariants
//! - Extents returned by [`RelayedTo::decode`] are whole sectors, and those of one cell together
//!   are no longer than the largest cell. The node checks whether they lie inside a device and what
//!   is stored there.

use serde::{Deserialize, Serialize};

use crate::{
    codec::{self, CodecError},
    ids::{DeviceId, TableId},
    limits::{CELL_BYTES_MAX, NODE_DEVICES_MAX, SECTOR_BYTES},
    segment::Extent,
    stripe_set::SetId,
};

/// The source and destination of the cells of a relayed stripe. The client sends it to every node
/// that holds data cells or keeps parity cells of the stripe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelayedTo {
    /// Nowhere: the cells are checked in memory and discarded, as the paper measures.
    Memory,
    /// Into the scratch area, one after the other, overwriting its content.
    Scratch,
    /// Into reserved parity cells of a load ([`ReserveParity`](super::ReserveParity)): the parity
    /// of the data that nodes have written for the load.
    Parity {
        /// The load.
        load: TableId,
        /// The number of the stripe set among those of the load.
        set: u32,
        /// The position of the first parity cell that the node keeps of this stripe, among all
        /// cells that it keeps of the set; its other cells of the stripe follow.
        first_cell: u32,
        /// The extents of each data cell that the node holds, in order; a cell whose extents are
        /// shorter than a cell continues with zeros.
        held: Vec<Vec<Extent>>,
    },
    /// Into places of a table whose part was lost at this node and then adopted
    /// ([`Adopt`](super::Adopt)).
    Rebuild {
        /// The table.
        table: TableId,
        /// The stripe set.
        set: SetId,
        /// The extents of each data cell that the node holds, in order; a cell whose extents are
        /// shorter than a cell continues with zeros.
        held: Vec<Vec<Extent>>,
        /// The extents that each rebuilt cell is written to, in order; bytes of the cell beyond its
        /// extents are not written.
        kept: Vec<Vec<Extent>>,
    },
}

impl RelayedTo {
    /// Encodes it.
    ///
    /// # Errors
    /// None in practice: the encoding is small.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self)
    }

    /// The inverse of [`RelayedTo::encode`].
    ///
    /// # Errors
    /// When the bytes do not parse, or extents cannot be those of a cell.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let to: Self = codec::decode(WHAT, bytes)?;
        let (held, kept): (&[_], &[_]) = match &to {
            Self::Memory | Self::Scratch => (&[], &[]),
            Self::Parity { held, .. } => (held, &[]),
            Self::Rebuild { held, kept, .. } => (held, kept),
        };
        let wrong = held.iter().chain(kept).find(|extents| !are_of_a_cell(extents));
        wrong.map_or(Ok(()), |extents| {
            let first = extents.first();
            let reason = format!(
                "a cell has {} extents, of which the first is {first:?}, expected whole sectors within a device, at most {CELL_BYTES_MAX} bytes together",
                extents.len()
            );
            Err(CodecError::Malformed { what: WHAT, reason })
        })?;
        Ok(to)
    }
}

const WHAT: &str = "what a stripe is for";

/// Whether the extents can be those of a cell or of the beginning of one.
fn are_of_a_cell(extents: &[Extent]) -> bool {
    let is_possible = |extent: &Extent| {
        let Extent { device: DeviceId(device), offset_bytes, length_bytes } = *extent;
        usize::from(device) < NODE_DEVICES_MAX
            && offset_bytes.is_multiple_of(SECTOR_BYTES.into())
            && length_bytes > 0
            && length_bytes.is_multiple_of(SECTOR_BYTES)
            && extent.end_bytes().is_some()
    };
    let bytes: u64 = extents.iter().map(|extent| u64::from(extent.length_bytes)).sum();
    extents.iter().all(is_possible) && bytes <= u64::from(CELL_BYTES_MAX)
}

/// The status of one relay of a node, with counters since it started.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The address it listens on.
    pub address: String,
    /// Sessions that it currently takes part in.
    pub sessions: u64,
    /// Stripes that completed without an error.
    pub stripes: u64,
    /// Bytes of slices sent to other nodes.
    pub sent_bytes: u64,
    /// Bytes of slices received, from clients and other nodes.
    pub received_bytes: u64,
    /// Bytes of slices that were inputs of sums.
    pub xored_bytes: u64,
    /// Bytes of kept cells whose checksum was found right.
    pub kept_bytes: u64,
    /// Bytes written to devices.
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

    fn extent(device: u8, offset_bytes: u64, length_bytes: u32) -> Extent {
        Extent { device: DeviceId(device), offset_bytes, length_bytes }
    }

    fn parity(held: Vec<Vec<Extent>>) -> RelayedTo {
        RelayedTo::Parity { load: TableId(7), set: 1, first_cell: 9, held }
    }

    fn rebuild(kept: Vec<Vec<Extent>>) -> RelayedTo {
        let set = SetId { load: TableId(7), number: 1 };
        RelayedTo::Rebuild { table: TableId(8), set, held: vec![vec![extent(0, 0, 4096)]], kept }
    }

    #[test]
    fn what_a_stripe_is_for_survives_its_bytes_and_nonsense_is_refused() {
        let cell = vec![extent(1, 1 << 40, 4096), extent(63, 8192, CELL_BYTES_MAX - 4096)];
        for to in [
            RelayedTo::Memory,
            RelayedTo::Scratch,
            parity(vec![cell.clone(), Vec::new()]),
            rebuild(vec![cell, Vec::new()]),
        ] {
            assert_eq!(RelayedTo::decode(&to.encode().unwrap()).unwrap(), to);
        }
        assert!(RelayedTo::decode(&[]).is_err());
        assert!(RelayedTo::decode(&[9]).is_err());
    }

    #[test]
    fn extents_that_cannot_be_those_of_a_cell_are_refused() {
        for wrong in [
            vec![extent(64, 0, 4096)],
            vec![extent(0, 512, 4096)],
            vec![extent(0, 0, 0)],
            vec![extent(0, 0, 4608)],
            vec![extent(0, u64::MAX - 4095, 8192)],
            vec![extent(0, 0, CELL_BYTES_MAX), extent(1, 0, 4096)],
            vec![extent(0, 0, u32::MAX - 4095)],
        ] {
            for to in [parity(vec![Vec::new(), wrong.clone()]), rebuild(vec![wrong.clone()])] {
                let error = RelayedTo::decode(&to.encode().unwrap()).unwrap_err().to_string();
                assert!(error.contains("whole sectors within a device"), "{error}");
            }
        }
    }
}

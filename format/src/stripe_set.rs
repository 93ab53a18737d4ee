//! Defines stripe sets (over which bytes of which nodes parity is computed) and table maps (what
//! every node knows about all parts of a protected table).
//!
//! ```text
//! stream   what one load wrote on one node: pages of its segments, one after the other              (NodeStream)
//! set      the streams of all nodes, cut into cells, and the parity cells computed over them        (StripeSet)
//! map      a table's definition, the directories of all nodes, and the sets with the table's pages  (TableMap)
//! ```
//!
//! The code that knows the geometry (`client::protected`) defines which cells form a stripe.
//!
//! Invariants (checked by [`TableMap::verify`])
//! - Each segment of the table lies in exactly one set, on the same node, with the extents of its
//!   directory.
//! - A set has a stream for each node of the table, in the order of the definition; its cells are
//!   whole sectors.
//! - A stream has a checksum for each of its cells. To check them, the cells must be read, so
//!   verification of a map does not check them; pages have their own checksums.
//! - A set may contain segments that the table does not have any more, because the other segments
//!   of the set cannot be reconstructed without their bytes.

use crate::{
    codec::{self, CodecError, Envelope},
    ids::{DeviceId, NodeId, SegmentId, TableId},
    limits::{
        CELL_BYTES_MAX, CELL_BYTES_MIN, MAP_BYTES_MAX, NODE_DEVICES_MAX, PAGE_BYTES_MAX, SECTOR_BYTES,
        STRIPE_SETS_MAX,
    },
    schema::{DefinitionError, Protection, TableDefinition},
    segment::{DirectoryError, Extent, NodeSegment, SegmentDirectory},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Identifies a stripe set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetId {
    /// The load that computed its parity.
    pub load: TableId,
    /// Its number among the sets of that load.
    pub number: u32,
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.load, self.number)
    }
}

/// A parity cell on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityCell {
    /// Where it is stored.
    pub extent: Extent,
    /// CRC-32C of its bytes.
    pub checksum: u32,
}

/// A segment as part of a stream: the pages of its chunks in column order, the pages of each chunk
/// in page order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSegment {
    /// The table version that wrote it.
    pub table: TableId,
    /// Its number.
    pub segment: SegmentId,
    /// Where its pages are stored.
    pub extents: Vec<Extent>,
}

impl StreamSegment {
    /// The segment that a directory describes.
    #[must_use]
    pub fn of(directory: &SegmentDirectory) -> Self {
        let pages = directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        let extents = pages.map(|page| page.extent).collect();
        Self { table: directory.table, segment: directory.segment, extents }
    }

    /// Whether it is the segment that `directory` describes, with the same extents.
    #[must_use]
    pub fn is_of(&self, directory: &SegmentDirectory) -> bool {
        let pages = directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        (self.table, self.segment) == (directory.table, directory.segment)
            && pages.map(|page| &page.extent).eq(&self.extents)
    }
}

/// One node's part of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStream {
    /// The node.
    pub node: NodeId,
    /// The segments; their pages are the stream.
    pub segments: Vec<StreamSegment>,
    /// The parity cells that the node keeps, ordered by stripe, then by slot.
    pub parity: Vec<ParityCell>,
    /// The CRC-32C of each cell of the stream, in order; the last cell is padded with zeros. So a
    /// reconstructed cell can be checked as a whole, before any of its pages is read.
    pub cells: Vec<u32>,
}

impl NodeStream {
    /// The pages of the stream, in order.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.segments.iter().flat_map(|segment| segment.extents.iter().copied())
    }

    /// Bytes of the stream.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.extents().map(|extent| u64::from(extent.length_bytes)).sum()
    }

    /// The number of cells of `cell_bytes` bytes that the stream is cut into.
    #[must_use]
    pub fn cells_of(&self, cell_bytes: u32) -> u64 {
        self.bytes().div_ceil(u64::from(cell_bytes.max(1)))
    }
}

/// Streams and the parity over them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeSet {
    /// Its id.
    pub id: SetId,
    /// The parity that protects it.
    pub protection: Protection,
    /// Bytes of each cell.
    pub cell_bytes: u32,
    /// The number of stripes.
    pub stripes: u64,
    /// The part of each node, in the order of the table's nodes.
    pub streams: Vec<NodeStream>,
}

impl StripeSet {
    /// Whether a segment lies in the set.
    #[must_use]
    pub fn has(&self, table: TableId, segment: SegmentId) -> bool {
        let segments = self.streams.iter().flat_map(|stream| &stream.segments);
        segments.into_iter().any(|found| (found.table, found.segment) == (table, segment))
    }
}

/// One node's part of a set, as its catalog reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSet {
    /// The set.
    pub id: SetId,
    /// The segments of the node's stream, in order.
    pub segments: Vec<(TableId, SegmentId)>,
    /// Directories of those of these segments that the table does not have any more.
    pub beside: Vec<SegmentDirectory>,
    /// The parity cells that the node keeps, in order.
    pub parity: Vec<ParityCell>,
}

/// One node's part of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TablePart {
    /// The node.
    pub node: NodeId,
    /// Its segments, with zone maps and withheld rows.
    pub segments: Vec<NodeSegment>,
    /// Directories of segments that the table does not have any more but that its stripe sets still
    /// hold.
    pub beside: Vec<SegmentDirectory>,
}

/// What every node of a protected table knows about all of its parts, so that the table survives
/// the loss of some nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableMap {
    /// The table.
    pub definition: TableDefinition,
    /// The part of each node, in the order of the definition.
    pub parts: Vec<TablePart>,
    /// The stripe sets in which the segments lie.
    pub sets: Vec<StripeSet>,
}

/// Why a map is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The bytes do not decode.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The table's definition is not valid.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A segment's directory is not valid.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Another field is not valid.
    #[error("the map of the protected table {table} is wrong: {what} is {found}, expected {expected}")]
    Field {
        /// The table.
        table: TableId,
        /// The field at fault.
        what: &'static str,
        /// The value found.
        found: String,
        /// The valid values.
        expected: String,
    },
}

impl TableMap {
    /// Encodes the map for files and transfers.
    ///
    /// # Errors
    /// When the map exceeds `MAP_BYTES_MAX`.
    pub fn encode_envelope(&self) -> Result<Vec<u8>, MapError> {
        let bytes = codec::encode_envelope(Envelope::Map, self)?;
        if bytes.len() as u64 > MAP_BYTES_MAX {
            return Err(self.fault(
                "its size",
                format!("{} bytes", bytes.len()),
                format!("at most {MAP_BYTES_MAX}"),
            ));
        }
        Ok(bytes)
    }

    /// Decodes and verifies a map; `bytes` must be exactly one map.
    ///
    /// # Errors
    /// When the bytes do not parse or the map breaks an invariant.
    pub fn decode_envelope(bytes: &[u8]) -> Result<Self, MapError> {
        let map: Self = codec::decode_envelope_all(Envelope::Map, "the map of a table", bytes)?;
        map.verify()?;
        Ok(map)
    }

    fn fault(&self, what: &'static str, found: String, expected: impl Into<String>) -> MapError {
        MapError::Field { table: self.definition.id, what, found, expected: expected.into() }
    }

    /// Checks the invariants above.
    ///
    /// # Errors
    /// The first field that breaks one.
    pub fn verify(&self) -> Result<(), MapError> {
        self.definition.verify()?;
        let Some(protection) = self.definition.protection else {
            return Err(self.fault("the table's protection", "none".to_owned(), "a parity"));
        };
        if !self.parts.iter().map(|part| &part.node).eq(&self.definition.nodes) {
            let nodes: Vec<NodeId> = self.parts.iter().map(|part| part.node).collect();
            return Err(self.fault(
                "its list of nodes",
                format!("{nodes:?}"),
                "the nodes of the table's definition",
            ));
        }
        if self.sets.len() > STRIPE_SETS_MAX {
            let found = self.sets.len().to_string();
            return Err(self.fault("the number of stripe sets", found, format!("at most {STRIPE_SETS_MAX}")));
        }
        let mut ids = BTreeSet::new();
        for set in &self.sets {
            if !ids.insert(set.id) {
                return Err(self.fault(
                    "a stripe set",
                    format!("{}, which is listed twice", set.id),
                    "each set once",
                ));
            }
            if set.protection != protection {
                let found = format!("{} (set {})", set.protection, set.id);
                return Err(self.fault("the protection of a stripe set", found, protection.to_string()));
            }
            self.verify_set(set)?;
        }
        self.verify_parts()
    }

    fn verify_set(&self, set: &StripeSet) -> Result<(), MapError> {
        if !(CELL_BYTES_MIN..=CELL_BYTES_MAX).contains(&set.cell_bytes) || !set.cell_bytes.is_power_of_two() {
            let expected = format!("a power of two from {CELL_BYTES_MIN} to {CELL_BYTES_MAX}");
            return Err(self.fault("the size of a cell", format!("{} bytes", set.cell_bytes), expected));
        }
        if !set.streams.iter().map(|stream| &stream.node).eq(&self.definition.nodes) {
            let found = format!("those of other nodes (set {})", set.id);
            return Err(self.fault("the streams of a stripe set", found, "those of the table's nodes"));
        }
        for stream in &set.streams {
            if let Some(cell) = stream.parity.iter().find(|cell| cell.extent.length_bytes != set.cell_bytes) {
                let found = format!("{} bytes (set {})", cell.extent.length_bytes, set.id);
                return Err(self.fault("a parity cell", found, format!("{} bytes", set.cell_bytes)));
            }
            let (cells, expected) = (stream.cells.len() as u64, stream.cells_of(set.cell_bytes));
            if cells != expected {
                let found = format!("{cells} at node {} (set {})", stream.node, set.id);
                return Err(self.fault("the number of checksums of cells", found, expected.to_string()));
            }
            let parity = stream.parity.iter().map(|cell| cell.extent);
            if let Some(extent) = stream.extents().chain(parity).find(|extent| !is_possible(extent)) {
                let found = format!("{extent:?} of node {} (set {})", stream.node, set.id);
                return Err(self.fault("an extent", found, "whole sectors within a device"));
            }
        }
        Ok(())
    }

    fn verify_parts(&self) -> Result<(), MapError> {
        let mut streamed: BTreeMap<(TableId, SegmentId), (NodeId, &StreamSegment)> = BTreeMap::new();
        for stream in self.sets.iter().flat_map(|set| &set.streams) {
            for segment in &stream.segments {
                if streamed.insert((segment.table, segment.segment), (stream.node, segment)).is_some() {
                    let found =
                        format!("segment {} of table {}, listed twice", segment.segment, segment.table);
                    return Err(self.fault("the segments of the stripe sets", found, "each segment once"));
                }
            }
        }
        let is_streamed = |node: NodeId, directory: &SegmentDirectory| {
            let found = streamed.get(&(directory.table, directory.segment));
            found.is_some_and(|(holder, found)| *holder == node && found.is_of(directory))
        };
        let (mut ids, mut rows) = (BTreeSet::new(), 0_u64);
        for (part, segment) in self.parts.iter().flat_map(|part| part.segments.iter().map(move |s| (part, s)))
        {
            let directory = &segment.directory;
            directory.verify(self.definition.columns.len(), NODE_DEVICES_MAX)?;
            let id = directory.segment;
            if let Err(error) = segment.withheld.verify(directory.rows) {
                return Err(self.fault("a withheld row", error.to_string(), format!("one of segment {id}")));
            }
            if !ids.insert(id) {
                return Err(self.fault(
                    "a segment",
                    format!("{id}, which is listed twice"),
                    "each segment once",
                ));
            }
            rows += u64::from(directory.rows);
            if !is_streamed(part.node, directory) {
                let found =
                    format!("none for segment {id} of table {} at node {}", directory.table, part.node);
                return Err(self.fault(
                    "the stripe set of a segment",
                    found,
                    "one with the segment's node and extents",
                ));
            }
        }
        for (part, directory) in self.parts.iter().flat_map(|part| part.beside.iter().map(move |d| (part, d)))
        {
            directory.verify(self.definition.columns.len(), NODE_DEVICES_MAX)?;
            if !is_streamed(part.node, directory) {
                let found = format!(
                    "none for segment {} of table {} at node {}",
                    directory.segment, directory.table, part.node
                );
                return Err(self.fault(
                    "the stripe set of a segment that the table does not have any more",
                    found,
                    "one with the segment's node and extents",
                ));
            }
        }
        if rows != self.definition.rows {
            return Err(self.fault("the number of rows", rows.to_string(), self.definition.rows.to_string()));
        }
        Ok(())
    }

    /// The part of a node, if it has one.
    #[must_use]
    pub fn part(&self, node: NodeId) -> Option<&TablePart> {
        self.parts.iter().find(|part| part.node == node)
    }

    /// A node's stream in each set.
    pub fn streams(&self, node: NodeId) -> impl Iterator<Item = (&StripeSet, &NodeStream)> {
        let of = move |set: &'_ StripeSet| set.streams.iter().position(|stream| stream.node == node);
        self.sets.iter().filter_map(move |set| Some((set, set.streams.get(of(set)?)?)))
    }
}

/// Whether the extent could lie on a device: whole sectors, a valid device number, at most one page
/// long.
fn is_possible(extent: &Extent) -> bool {
    let Extent { device: DeviceId(device), offset_bytes, length_bytes } = *extent;
    usize::from(device) < NODE_DEVICES_MAX
        && offset_bytes.is_multiple_of(SECTOR_BYTES.into())
        && (1..=PAGE_BYTES_MAX).contains(&length_bytes)
        && length_bytes.is_multiple_of(SECTOR_BYTES)
        && extent.end_bytes().is_some()
}

#[cfg(test)]
mod tests;

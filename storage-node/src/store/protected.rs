//! Contains the parity and the maps of protected tables on this node, and checks both before a
//! table is prepared.
//!
//! ```text
//! loads: segments, parity cells, a map --prepare--> HeldSet, KeptMap --> table
//!                                                      ^ also from the table that this one replaces
//! ```
//!
//! Invariants
//! - A table is prepared only if its map matches the data of this node page by page and cell by
//!   cell.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use rackscan_format::{
    ids::{DeviceId, NodeId, SegmentId, TableId},
    message::NodeSegment,
    schema::TableDefinition,
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
    stripe_set::{NodeStream, ParityCell, StripeSet, TableMap},
    zone::Zone,
};

use super::{
    allocate::{MetadataShare, StoredSegment},
    held_set::HeldSet,
    table_segment::TableSegment,
};

/// Neighbouring cells of parity that arrived, or were reserved, with one request.
#[derive(Debug, Clone)]
pub(crate) struct ParityPiece {
    stored: Arc<StoredSegment>,
    /// The state of each cell.
    pub(super) cells: Vec<PieceCell>,
}

/// The state of a parity cell of a load.
#[derive(Debug, Clone)]
pub(super) enum PieceCell {
    /// It is on the disk, with this CRC-32C.
    Written(u32),
    /// It was reserved. A stripe is writing it as long as this claim lives.
    Reserved(Weak<ParityClaim>),
}

/// Keeps the extents of cells that a stripe is being written to. They are freed after the last
/// device operation of the stripe has ended.
#[derive(Debug)]
pub(crate) struct ParityClaim {
    pub(super) _pieces: Vec<Arc<StoredSegment>>,
}

impl ParityPiece {
    /// Cells that have arrived, with their checksums.
    pub(crate) fn appended(stored: Arc<StoredSegment>, checksums: Vec<u32>) -> Self {
        Self { stored, cells: checksums.into_iter().map(PieceCell::Written).collect() }
    }

    /// Reserved space for this number of cells.
    pub(super) fn reserved(stored: Arc<StoredSegment>, cells: usize) -> Self {
        Self { stored, cells: vec![PieceCell::Reserved(Weak::new()); cells] }
    }

    /// The owner of the extents.
    pub(super) fn stored(&self) -> &Arc<StoredSegment> {
        &self.stored
    }

    /// The extent of each cell.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> {
        let pages = self.stored.directory().chunks.iter().flat_map(|chunk| &chunk.pages);
        pages.map(|page| page.extent)
    }

    /// The cells, if all are written; else the index of one that is not.
    fn written(&self) -> Result<Vec<ParityCell>, usize> {
        let cells = self.extents().zip(&self.cells).enumerate();
        let cells = cells.map(|(number, (extent, cell))| match cell {
            PieceCell::Written(checksum) => Ok(ParityCell { extent, checksum: *checksum }),
            PieceCell::Reserved(_) => Err(number),
        });
        cells.collect()
    }
}

/// The extents of parity cells as a directory, with which they are allocated and freed.
pub(crate) fn parity_directory(load: TableId, first_cell: u32, extents: &[Extent]) -> SegmentDirectory {
    let page = |extent: &Extent| PageEntry { extent: *extent, first_row: 0, rows: 1, zone: Zone::default() };
    let chunks = vec![ChunkDirectory { pages: extents.iter().map(page).collect() }];
    SegmentDirectory { table: load, segment: SegmentId(first_cell), rows: 1, chunks }
}

/// Extents with only the lengths of cells, before they are allocated.
pub(crate) fn parity_lengths(cells: usize, cell_bytes: u32) -> Vec<Extent> {
    vec![Extent { device: DeviceId(0), offset_bytes: 0, length_bytes: cell_bytes }; cells]
}

/// The encoded map of a table.
#[derive(Debug)]
pub(crate) struct KeptMap {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(super) _memory: MetadataShare,
}

/// The state of the map of a table.
#[derive(Debug, Clone)]
pub(crate) enum TableMapState {
    /// The table is not protected.
    NotProtected,
    /// The map is here.
    Kept(Arc<KeptMap>),
    /// The map is lost or damaged, for this reason.
    Lost(String),
}

/// Cells of a load, by set and first cell.
pub(super) type Parity = BTreeMap<(u32, u32), Arc<ParityPiece>>;

/// The state of a node that prepares a table.
pub(super) struct Preparing<'p> {
    pub(super) node: NodeId,
    pub(super) definition: &'p TableDefinition,
    pub(super) segments: &'p BTreeMap<SegmentId, TableSegment>,
    /// The sets of the table that is succeeded.
    pub(super) before: &'p [Arc<HeldSet>],
    /// The cells of the load, by set and first cell.
    pub(super) parity: &'p Parity,
}

impl Preparing<'_> {
    /// The sets that a map says this node has, if this node has them; else what is wrong.
    pub(super) fn sets(&self, map: &TableMap) -> Result<Vec<Arc<HeldSet>>, String> {
        let id = self.definition.id;
        if map.definition != *self.definition {
            return Err(format!("the map of table {id} here has another definition"));
        }
        check_part(map, self.node, self.segments)?;
        let sets = map.streams(self.node).map(|(set, stream)| self.set(set, stream));
        let sets = sets.collect::<Result<Vec<_>, _>>()?;
        check_beside(map, self.node, &sets)?;
        Ok(sets)
    }

    fn set(&self, set: &StripeSet, stream: &NodeStream) -> Result<Arc<HeldSet>, String> {
        if let Some(known) = self.before.iter().find(|known| known.is(set, stream)) {
            return Ok(Arc::clone(known));
        }
        let wrong =
            |what: &str| format!("the map of table {} names {what}, set {}", self.definition.id, set.id);
        if set.id.load != self.definition.id {
            return Err(wrong("a stripe set that the previous table does not have in this form"));
        }
        let (mut cells, mut pieces) = (Vec::new(), Vec::new());
        for ((_, first), piece) in self.parity.range((set.id.number, 0)..=(set.id.number, u32::MAX)) {
            if *first as usize != cells.len() {
                return Err(wrong("parity of which a part has not arrived"));
            }
            let written = piece.written().map_err(|number| {
                let cell = cells.len() + number;
                wrong(&format!("parity of which cell {cell} was reserved here and has not been written"))
            })?;
            cells.extend(written);
            pieces.push(Arc::clone(&piece.stored));
        }
        if cells != stream.parity {
            return Err(wrong("parity that differs from what has arrived"));
        }
        let found = stream.segments.iter().map(|named| {
            let known = self.segments.get(&named.segment).filter(|known| named.is_of(known.directory()));
            known.map(|known| Arc::clone(known.stored()))
        });
        let segments = found.collect::<Option<Vec<_>>>();
        let segments =
            segments.ok_or_else(|| wrong("a segment that the table does not have in this form"))?;
        Ok(Arc::new(HeldSet::new(set.id, segments, cells, pieces)))
    }
}

/// Checks that a map matches this node's segments.
pub(super) fn check_part(
    map: &TableMap,
    node: NodeId,
    segments: &BTreeMap<SegmentId, TableSegment>,
) -> Result<(), String> {
    let id = map.definition.id;
    let Some(part) = map.part(node) else {
        return Err(format!("the map of table {id} has no part of node {node}"));
    };
    let same = |named: &NodeSegment| {
        let known = segments.get(&named.directory.segment);
        known.is_some_and(|known| {
            **known.directory() == named.directory && *known.withheld() == named.withheld
        })
    };
    if part.segments.len() != segments.len() || !part.segments.iter().all(same) {
        return Err(format!("the map of table {id} describes other segments of node {node} than are here"));
    }
    Ok(())
}

/// Checks that the segments that the table no longer has, but its stripes have, are on this node as
/// a map says.
pub(super) fn check_beside(map: &TableMap, node: NodeId, sets: &[Arc<HeldSet>]) -> Result<(), String> {
    let Some(part) = map.part(node).filter(|part| !part.beside.is_empty()) else { return Ok(()) };
    let held = sets.iter().flat_map(|set| set.directories());
    let held: BTreeMap<_, _> =
        held.map(|directory| ((directory.table, directory.segment), directory)).collect();
    for directory in &part.beside {
        let name = (directory.table, directory.segment);
        if held.get(&name).is_none_or(|known| ***known != *directory) {
            let (id, (written, segment)) = (map.definition.id, name);
            return Err(format!(
                "the map of table {id} describes segment {segment} of table {written} differently than it is here"
            ));
        }
    }
    Ok(())
}

//! What does this node have of stripe sets, and what does it know of the tables that they protect?
//!
//! ```text
//! loads: segments, cells of parity, a map --prepare--> HeldSet, KeptMap --> table
//!                                                        ^ of the table that is succeeded
//! ```
//!
//! Invariants
//! - A set is there whole as long as one table has it: the pages of its segments, also of those
//!   that no table has any more, and its parity.
//! - What a map says of this node is what is here, page by page and cell by cell; else the table is
//!   not prepared.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

use rackscan_format::{
    ids::{DeviceId, NodeId, SegmentId, TableId},
    message::NodeSegment,
    schema::TableDefinition,
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
    stripe_set::{NodeStream, ParityCell, SetId, StripeSet, TableMap},
    zone::Zone,
};

use super::{
    allocate::{MetadataShare, StoredSegment},
    catalog_file::NodeSetRef,
    relayed::Lost,
    table::TableSegment,
};

/// Neighbouring cells of parity that came, or were reserved, with one request.
#[derive(Debug, Clone)]
pub(crate) struct ParityPiece {
    stored: Arc<StoredSegment>,
    /// What is known of each cell.
    pub(super) cells: Vec<PieceCell>,
}

/// A cell of parity of a load.
#[derive(Debug, Clone)]
pub(super) enum PieceCell {
    /// It is on the disk, with this CRC-32C.
    Written(u32),
    /// It was reserved, and is being written as long as this claim lives.
    Reserved(Weak<ParityClaim>),
}

/// Keeps the room of cells that a stripe is being written to. It is given away when the last device
/// operation of the stripe has ended.
#[derive(Debug)]
pub(crate) struct ParityClaim {
    pub(super) _pieces: Vec<Arc<StoredSegment>>,
}

impl ParityPiece {
    /// Cells that have come, with their checksums.
    pub(crate) fn appended(stored: Arc<StoredSegment>, checksums: Vec<u32>) -> Self {
        Self { stored, cells: checksums.into_iter().map(PieceCell::Written).collect() }
    }

    /// Room for so many cells.
    pub(super) fn reserved(stored: Arc<StoredSegment>, cells: usize) -> Self {
        Self { stored, cells: vec![PieceCell::Reserved(Weak::new()); cells] }
    }

    /// What holds the room.
    pub(super) fn stored(&self) -> &Arc<StoredSegment> {
        &self.stored
    }

    /// Where each cell lies.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> {
        let pages = self.stored.directory().chunks.iter().flat_map(|chunk| &chunk.pages);
        pages.map(|page| page.extent)
    }

    /// The cells, if all are written; else which one is not, counted from the piece's beginning.
    fn written(&self) -> Result<Vec<ParityCell>, usize> {
        let cells = self.extents().zip(&self.cells).enumerate();
        let cells = cells.map(|(number, (extent, cell))| match cell {
            PieceCell::Written(checksum) => Ok(ParityCell { extent, checksum: *checksum }),
            PieceCell::Reserved(_) => Err(number),
        });
        cells.collect()
    }
}

/// Extents of parity as a directory, by which room for them is taken and given back.
pub(crate) fn parity_directory(load: TableId, first_cell: u32, extents: &[Extent]) -> SegmentDirectory {
    let page = |extent: &Extent| PageEntry { extent: *extent, first_row: 0, rows: 1, zone: Zone::default() };
    let chunks = vec![ChunkDirectory { pages: extents.iter().map(page).collect() }];
    SegmentDirectory { table: load, segment: SegmentId(first_cell), rows: 1, chunks }
}

/// Lengths of cells, before they have a place.
pub(crate) fn parity_lengths(cells: usize, cell_bytes: u32) -> Vec<Extent> {
    vec![Extent { device: DeviceId(0), offset_bytes: 0, length_bytes: cell_bytes }; cells]
}

/// What this node has of a stripe set.
#[derive(Debug)]
pub(crate) struct HeldSet {
    id: SetId,
    segments: Vec<Arc<StoredSegment>>,
    /// How many pages come before each segment, and at last all of them.
    starts: Vec<u64>,
    cells: Vec<ParityCell>,
    /// They hold the room of the cells.
    _parity: Vec<Arc<StoredSegment>>,
    /// There as long as the set was adopted and has not been found whole.
    pub(super) lost: Mutex<Option<Lost>>,
}

impl HeldSet {
    pub(super) fn new(
        id: SetId,
        segments: Vec<Arc<StoredSegment>>,
        cells: Vec<ParityCell>,
        parity: Vec<Arc<StoredSegment>>,
    ) -> Self {
        let mut starts = vec![0_u64];
        for segment in &segments {
            let pages: usize = segment.directory().chunks.iter().map(|chunk| chunk.pages.len()).sum();
            starts.push(starts.last().copied().unwrap_or(0) + pages as u64);
        }
        Self { id, segments, starts, cells, _parity: parity, lost: Mutex::default() }
    }

    pub(crate) fn id(&self) -> SetId {
        self.id
    }

    /// How many pages its stream has.
    pub(super) fn pages(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Where they lie, in order.
    pub(super) fn pages_in_order(&self) -> impl Iterator<Item = Extent> {
        let chunks = self.segments.iter().flat_map(|segment| &segment.directory().chunks);
        chunks.flat_map(|chunk| &chunk.pages).map(|page| page.extent)
    }

    /// The cells of parity, in order.
    pub(super) fn cells(&self) -> &[ParityCell] {
        &self.cells
    }

    /// The segment in which a page of the stream lies, and the page's number among all of the
    /// segment's.
    pub(super) fn page_at(&self, number: u64) -> Option<(&Arc<SegmentDirectory>, usize)> {
        let at = self.starts.partition_point(|start| *start <= number).checked_sub(1)?;
        let directory = self.segments.get(at)?.directory();
        Some((directory, usize::try_from(number - self.starts[at]).ok()?))
    }

    /// Whether it is what a map says of this node.
    pub(super) fn is(&self, set: &StripeSet, stream: &NodeStream) -> bool {
        let named = self.segments.iter().map(|segment| segment.directory());
        self.id == set.id
            && self.cells == stream.parity
            && self.segments.len() == stream.segments.len()
            && named.zip(&stream.segments).all(|(directory, named)| named.is_of(directory))
    }

    /// Whether segments that were written under this table lie in it.
    pub(super) fn has_of(&self, table: TableId) -> bool {
        self.segments.iter().any(|segment| segment.directory().table == table)
    }

    /// The names of its segments, in the order of the stream, and its cells.
    pub(super) fn content(&self) -> (impl Iterator<Item = (TableId, SegmentId)>, &[ParityCell]) {
        let name = |segment: &Arc<StoredSegment>| (segment.directory().table, segment.directory().segment);
        (self.segments.iter().map(name), self.cells())
    }

    /// What the catalog says of it, in a table that has these segments.
    pub(super) fn in_table(&self, segments: &BTreeMap<SegmentId, TableSegment>) -> NodeSetRef<'_> {
        let has = |directory: &SegmentDirectory| {
            segments.get(&directory.segment).is_some_and(|known| known.directory().table == directory.table)
        };
        let directories = self.segments.iter().map(|segment| &**segment.directory());
        NodeSetRef {
            id: self.id,
            segments: self.content().0.collect(),
            beside: directories.filter(|directory| !has(directory)).collect(),
            parity: &self.cells,
        }
    }
}

/// The map of a table, as its file has it.
#[derive(Debug)]
pub(crate) struct KeptMap {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(super) _memory: MetadataShare,
}

/// Whether the map of a table is here.
#[derive(Debug, Clone)]
pub(crate) enum MapHere {
    /// The table is not protected.
    Needless,
    /// It is.
    Kept(Arc<KeptMap>),
    /// It should be, but is lost or damaged.
    Lost(String),
}

/// Cells of a load, by set and first cell.
pub(super) type Parity = BTreeMap<(u32, u32), Arc<ParityPiece>>;

/// What a node has that is preparing a table.
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
    /// The sets that a map says this node has, if it has them; else what is wrong.
    pub(super) fn sets(&self, map: &TableMap) -> Result<Vec<Arc<HeldSet>>, String> {
        let id = self.definition.id;
        if map.definition != *self.definition {
            return Err(format!("the map of table {id} here defines it otherwise"));
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
            return Err(wrong("a stripe set that the table before does not have so"));
        }
        let (mut cells, mut pieces) = (Vec::new(), Vec::new());
        for ((_, first), piece) in self.parity.range((set.id.number, 0)..=(set.id.number, u32::MAX)) {
            if *first as usize != cells.len() {
                return Err(wrong("parity of which a part has not come"));
            }
            let written = piece.written().map_err(|number| {
                let cell = cells.len() + number;
                wrong(&format!("parity of which cell {cell} was reserved here and has not been written"))
            })?;
            cells.extend(written);
            pieces.push(Arc::clone(&piece.stored));
        }
        if cells != stream.parity {
            return Err(wrong("parity that is not what has come"));
        }
        let found = stream.segments.iter().map(|named| {
            let known = self.segments.get(&named.segment).filter(|known| named.is_of(known.directory()));
            known.map(|known| Arc::clone(known.stored()))
        });
        let segments = found.collect::<Option<Vec<_>>>();
        let segments = segments.ok_or_else(|| wrong("a segment that the table does not have so"))?;
        Ok(Arc::new(HeldSet::new(set.id, segments, cells, pieces)))
    }
}

/// Whether what a map says of this node's segments is what is here.
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
        return Err(format!(
            "the map of table {id} says other things of the segments of node {node} than are here"
        ));
    }
    Ok(())
}

/// Whether the segments that the table has no more, but its stripes have, are on this node as a map
/// says.
pub(super) fn check_beside(map: &TableMap, node: NodeId, sets: &[Arc<HeldSet>]) -> Result<(), String> {
    let Some(part) = map.part(node).filter(|part| !part.beside.is_empty()) else { return Ok(()) };
    let held = sets.iter().flat_map(|set| &set.segments).map(|segment| segment.directory());
    let held: BTreeMap<_, _> =
        held.map(|directory| ((directory.table, directory.segment), directory)).collect();
    for directory in &part.beside {
        let name = (directory.table, directory.segment);
        if held.get(&name).is_none_or(|known| ***known != *directory) {
            let (id, (written, segment)) = (map.definition.id, name);
            return Err(format!(
                "the map of table {id} says other things of segment {segment} of table {written} than are here"
            ));
        }
    }
    Ok(())
}

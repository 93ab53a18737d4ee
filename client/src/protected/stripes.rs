//! Looks up places of a stripe set: where on which devices the bytes of a cell lie, and in which
//! cells a page or parity cell of a node lies.
//!
//! Invariants
//! - Before anything is looked up, the map's description of the set was compared with the layout:
//!   it has as many stripes and parity cells as its streams need.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

use rackscan_format::{
    ids::{SegmentId, TableId},
    schema::Protection,
    segment::Extent,
    stripe_set::StripeSet,
};
use rackscan_stripe::{Cell, Recovery};

use super::{
    plans::Plans,
    streams::{Held, Layout},
};

/// A part of a cell on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) extent: Extent,
    /// Its offset in the range that was asked for.
    pub(crate) at: usize,
}

/// The pages of a stream, and where each begins.
#[derive(Debug)]
struct Stream {
    extents: Vec<Extent>,
    starts: Vec<u64>,
    bytes: u64,
}

impl Stream {
    fn of(extents: impl Iterator<Item = Extent>) -> Self {
        let extents: Vec<Extent> = extents.collect();
        let mut bytes = 0;
        let starts = extents.iter().map(|extent| {
            bytes += u64::from(extent.length_bytes);
            bytes - u64::from(extent.length_bytes)
        });
        let starts = starts.collect();
        Self { extents, starts, bytes }
    }

    /// The extents of these bytes of the stream; bytes behind its end have none.
    fn pieces(&self, from: u64, length: u64) -> Vec<Piece> {
        let end = from.saturating_add(length).min(self.bytes);
        let first = self.starts.partition_point(|start| *start <= from).saturating_sub(1);
        let mut pieces = Vec::new();
        for (start, extent) in self.starts[first.min(self.starts.len())..]
            .iter()
            .zip(&self.extents[first.min(self.extents.len())..])
        {
            let (begin, stop) = (from.max(*start), end.min(start + u64::from(extent.length_bytes)));
            if begin >= stop {
                break;
            }
            let extent = Extent {
                device: extent.device,
                offset_bytes: extent.offset_bytes + (begin - start),
                length_bytes: u32::try_from(stop - begin).expect("a part of an extent: no longer than it"),
            };
            let at = usize::try_from(begin - from).expect("an offset in a range of a cell: it fits 32 bits");
            pieces.push(Piece { extent, at });
        }
        pieces
    }
}

/// A stripe set, with its layout and the positions of its segments.
#[derive(Debug)]
pub(crate) struct Stripes {
    pub(crate) set: StripeSet,
    pub(crate) layout: Layout,
    streams: Vec<Stream>,
    /// For each segment: the position of its node, and which pages of that node's stream are its
    /// own.
    segments: HashMap<(TableId, SegmentId), (usize, Range<usize>)>,
    plans: Plans,
}

/// The content of a place of a node. Places number the pages of its stream first, then its parity
/// cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
    /// A page: where it begins in the stream, and its bytes.
    Page { start: u64, length: u64 },
    /// The parity cell with this number.
    Parity { index: u64 },
}

/// A range of bytes of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellRange {
    pub(crate) stripe: u64,
    pub(crate) cell: Cell,
    pub(crate) from: u64,
    pub(crate) length: u64,
}

impl Stripes {
    /// The set, whose parity need not be stored yet.
    pub(crate) fn unproved(set: StripeSet) -> Result<Self, String> {
        let layout = layout(set.protection, set.streams.len())?;
        let streams: Vec<Stream> = set.streams.iter().map(|stream| Stream::of(stream.extents())).collect();
        let expected = layout.stripes(set.cell_bytes, streams.iter().map(|stream| stream.bytes));
        if set.stripes != expected {
            return Err(format!("set {} has {} stripes, its streams need {expected}", set.id, set.stripes));
        }
        let mut segments = HashMap::new();
        for (node, stream) in set.streams.iter().enumerate() {
            let mut first = 0;
            for segment in &stream.segments {
                let pages = first..first + segment.extents.len();
                first = pages.end;
                segments.insert((segment.table, segment.segment), (node, pages));
            }
        }
        Ok(Self { set, layout, streams, segments, plans: Plans::default() })
    }

    /// The set, with all of its parity.
    pub(crate) fn new(set: StripeSet) -> Result<Self, String> {
        let stripes = Self::unproved(set)?;
        for (node, stream) in stripes.set.streams.iter().enumerate() {
            let (found, expected) =
                (stream.parity.len() as u64, stripes.layout.parity_cells(node, stripes.set.stripes));
            if found != expected {
                let (id, node) = (stripes.set.id, stream.node);
                return Err(format!("set {id} has {found} parity cells at node {node}, expected {expected}"));
            }
        }
        Ok(stripes)
    }

    pub(crate) fn cell_bytes(&self) -> u64 {
        self.set.cell_bytes.into()
    }

    /// The place of a page at its node, and where the page begins in the stream; `None` if it does
    /// not lie in the set. The page is identified by its segment and its extent.
    pub(crate) fn position(
        &self,
        node: usize,
        table: TableId,
        segment: SegmentId,
        page: &Extent,
    ) -> Option<(u64, u64)> {
        let (holder, pages) = self.segments.get(&(table, segment))?;
        let stream = self.streams.get(node).filter(|_| *holder == node)?;
        let found = stream.extents.get(pages.clone())?.iter().position(|extent| extent == page)?;
        Some(((pages.start + found) as u64, *stream.starts.get(pages.start + found)?))
    }

    /// Number of places of a node.
    pub(crate) fn places(&self, node: usize) -> u64 {
        let pages = self.streams.get(node).map_or(0, |stream| stream.extents.len());
        (pages + self.set.streams.get(node).map_or(0, |stream| stream.parity.len())) as u64
    }

    /// Bytes of all places of a node.
    pub(crate) fn held_bytes(&self, node: usize) -> u64 {
        let cells = self.set.streams.get(node).map_or(0, |stream| stream.parity.len());
        self.streams.get(node).map_or(0, |stream| stream.bytes) + cells as u64 * self.cell_bytes()
    }

    /// The content of a place of a node; `None` behind the last one.
    pub(crate) fn spot(&self, node: usize, place: u64) -> Option<Spot> {
        let stream = self.streams.get(node)?;
        let at = usize::try_from(place).ok()?;
        if let (Some(start), Some(extent)) = (stream.starts.get(at), stream.extents.get(at)) {
            return Some(Spot::Page { start: *start, length: extent.length_bytes.into() });
        }
        let index = place - stream.extents.len() as u64;
        (place < self.places(node)).then_some(Spot::Parity { index })
    }

    pub(crate) fn bytes_of(&self, spot: Spot) -> u64 {
        match spot {
            Spot::Page { length, .. } => length,
            Spot::Parity { .. } => self.cell_bytes(),
        }
    }

    /// The ranges of cells that make up a place of a node.
    pub(crate) fn ranges_of(&self, node: usize, spot: Spot) -> Option<Vec<CellRange>> {
        match spot {
            Spot::Page { start, length } => self.ranges(node, start, length),
            Spot::Parity { index } => {
                let (stripe, cell) = self.layout.parity_cell(node, index)?;
                Some(vec![CellRange { stripe, cell, from: 0, length: self.cell_bytes() }])
            }
        }
    }

    /// The position of the node whose stream has a segment.
    pub(crate) fn place_of(&self, table: TableId, segment: SegmentId) -> Option<usize> {
        self.segments.get(&(table, segment)).map(|(place, _)| *place)
    }

    /// Whether a segment lies in the set.
    pub(crate) fn has(&self, table: TableId, segment: SegmentId) -> bool {
        self.segments.contains_key(&(table, segment))
    }

    /// The ranges of cells that make up these bytes of a node's stream, in order.
    pub(crate) fn ranges(&self, node: usize, from: u64, length: u64) -> Option<Vec<CellRange>> {
        let (cell_bytes, mut at, end) = (self.cell_bytes(), from, from.checked_add(length)?);
        let mut ranges = Vec::new();
        while at < end {
            let (index, within) = (at / cell_bytes, at % cell_bytes);
            let length = (cell_bytes - within).min(end - at);
            let (stripe, cell) = self.layout.data_cell(node, index)?;
            ranges.push(CellRange { stripe, cell, from: within, length });
            at += length;
        }
        Some(ranges)
    }

    /// The plan that recovers all of these cells without the nodes at these positions; `None` if
    /// the parity does not allow it.
    pub(crate) fn plan(&self, stripe: u64, cells: &[Cell], lost: &BTreeSet<usize>) -> Option<Arc<Recovery>> {
        self.plans.of(self.layout.geometry(), stripe, cells, lost)
    }

    /// The node that has a range of a cell, and the pieces; bytes that no piece covers are zeros.
    pub(crate) fn pieces(&self, range: &CellRange) -> Option<(usize, Vec<Piece>)> {
        let Held { node, index, is_parity } = self.layout.held(range.stripe, range.cell)?;
        if !is_parity {
            let from = index.checked_mul(self.cell_bytes())?.checked_add(range.from)?;
            return Some((node, self.streams.get(node)?.pieces(from, range.length)));
        }
        let parity = self.set.streams.get(node)?.parity.get(usize::try_from(index).ok()?)?.extent;
        let extent = Extent {
            device: parity.device,
            offset_bytes: parity.offset_bytes.checked_add(range.from)?,
            length_bytes: u32::try_from(range.length).ok()?,
        };
        Some((node, vec![Piece { extent, at: 0 }]))
    }
}

fn layout(protection: Protection, nodes: usize) -> Result<Layout, String> {
    Layout::new(protection, nodes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::ids::DeviceId;

    fn extent(offset_bytes: u64, length_bytes: u32) -> Extent {
        Extent { device: DeviceId(0), offset_bytes, length_bytes }
    }

    #[test]
    fn bytes_of_a_stream_are_found_on_the_device_and_end_with_it() {
        let stream =
            Stream::of([extent(80 << 10, 8192), extent(0, 4096), extent(40 << 10, 12_288)].into_iter());
        assert_eq!(stream.bytes, 24_576);
        let found = |from, length| {
            stream
                .pieces(from, length)
                .iter()
                .map(|p| (p.extent.offset_bytes, p.extent.length_bytes, p.at))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(0, 24_576), [(80 << 10, 8192, 0), (0, 4096, 8192), (40 << 10, 12_288, 12_288)]);
        assert_eq!(found(4096, 4096), [(84 << 10, 4096, 0)]);
        assert_eq!(found(8192, 8192), [(0, 4096, 0), (40 << 10, 4096, 4096)]);
        assert_eq!(found(20_480, 1 << 20), [(48 << 10, 4096, 0)]);
        assert_eq!(found(24_576, 4096), []);
        assert_eq!(Stream::of(std::iter::empty()).pieces(0, 4096), []);
    }
}

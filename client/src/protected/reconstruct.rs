//! Reconstructs the pages of a lost node from surviving nodes.
//!
//! Pages that are wanted at the same time are reconstructed together (`together`). A page for which
//! that fails is reconstructed alone:
//!
//! ```text
//! page -> its ranges of cells
//!      -> for each range: the fewest surviving cells that XOR to it (`rackscan-stripe`); the same range of each is read
//!      -> XOR -> the page, which is verified
//! ```
//!
//! Invariants
//! - A page is returned only if its checksum and identity are right, whatever the survivors sent.
//! - A survivor that is lost during the reconstruction counts as lost, and everything is read
//!   again. This ends, because each time one more node is lost.
//! - If the page has a wrong checksum, the reconstruction is repeated without one survivor after
//!   the other, as far as the parity allows it: a survivor may have sent corrupt bytes without
//!   noticing.
//! - At most [`RECONSTRUCTIONS_MAX`] pages are reconstructed alone at a time, and at most
//!   [`RANGES_READ_MAX`] ranges are read for each.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    page::{PageIdentity, PageView},
};
use rackscan_scan::PageWanted;
use rackscan_stripe::{Cell, Node, xor};

use super::{
    gather::GatherError,
    stripes::{CellRange, Piece, Stripes},
};
use crate::{
    ClientError, Cluster, FetchedPages, PageBuffer,
    limits::{RANGES_READ_MAX, RECONSTRUCTIONS_MAX},
};

/// A segment of a lost node.
pub(super) struct LostSegment<'a> {
    pub(super) name: &'a str,
    pub(super) stripes: &'a Stripes,
    /// The node, by its position in the set.
    pub(super) place: usize,
    pub(super) table: TableId,
    pub(super) segment: SegmentId,
    /// Whether the node is available, so that its pages are to be repaired.
    pub(super) is_there: bool,
}

impl Cluster {
    /// Bytes that other nodes read for each byte of a segment, if the whole segment is
    /// reconstructed without its node and without the nodes that are unavailable now: an average
    /// over the stripes of a rotation. `None` if no map is known, or the parity does not survive
    /// that loss.
    #[must_use]
    pub fn rebuilt_from(&self, table: TableId, segment: SegmentId) -> Option<f64> {
        let (_, stripes) = self.shared.maps.find(table, segment)?;
        let place = stripes.place_of(table, segment)?;
        let lost: BTreeSet<usize> = self.places_unavailable(&stripes).chain([place]).collect();
        let (mut cells, mut read) = (0_u32, 0_u32);
        // In as many stripes as there are nodes, each node has each column once.
        for stripe in 0..nodes_of(&stripes) {
            let column = stripes.layout.column(stripe, place)?;
            let data = stripes.layout.geometry().data().iter();
            let wanted: Vec<Cell> = data.filter(|cell| cell.column == column).copied().collect();
            if !wanted.is_empty() {
                let reads = stripes.plan(stripe, &wanted, &lost)?.reads.len();
                cells += u32::try_from(wanted.len()).ok()?;
                read += u32::try_from(reads).ok()?;
            }
        }
        Some(f64::from(read) / f64::from(cells.max(1)))
    }

    /// Reconstructs pages of a segment. `lost` is why the node did not give them, and whether it is
    /// available; then its pages are repaired in the background.
    ///
    /// # Errors
    /// `lost`, if the pages are not protected; or why they cannot be reconstructed.
    pub(crate) async fn reconstruct(
        &self,
        node: NodeId,
        table: TableId,
        segment: SegmentId,
        pages: &[PageWanted],
        (lost, is_there): (ClientError, bool),
        fetched: &mut FetchedPages,
    ) -> Result<Vec<PageBuffer>, ClientError> {
        let found = self.stripes_of(table, segment).await.unwrap_or_else(|error| {
            tracing::warn!(%table, %error, "the map of a table with lost pages could not be read");
            None
        });
        let Some((map, stripes)) = found else { return Err(lost) };
        let Some(place) = stripes.set.streams.iter().position(|stream| stream.node == node) else {
            return Err(lost);
        };
        let lost =
            LostSegment { name: &map.definition.name, stripes: &stripes, place, table, segment, is_there };
        let (together, read) = self.reconstruct_together(&lost, pages).await?;
        fetched.survivor_bytes += read;
        let one = |(page, done): (&PageWanted, Option<PageBuffer>)| {
            let (lost, page) = (&lost, *page);
            async move {
                match done {
                    Some(done) => Ok((done, 0)),
                    None => self.reconstruct_page(lost, page).await,
                }
            }
        };
        let mut reconstructing =
            stream::iter(pages.iter().zip(together).map(one)).buffered(RECONSTRUCTIONS_MAX);
        let mut buffers = Vec::with_capacity(pages.len());
        while let Some((page, bytes_read)) = reconstructing.try_next().await? {
            fetched.reconstructed_pages += 1;
            fetched.survivor_bytes += bytes_read;
            buffers.push(page);
        }
        Ok(buffers)
    }

    /// Reconstructs one page alone. Returns it, and how many bytes were read for it.
    async fn reconstruct_page(
        &self,
        lost: &LostSegment<'_>,
        page: PageWanted,
    ) -> Result<(PageBuffer, u64), ClientError> {
        let _permit = self.shared.reconstructions.acquire().await.map_err(|_| ClientError::Closed)?;
        let length = u64::from(page.extent.length_bytes);
        let position = lost.stripes.position(lost.place, lost.table, lost.segment, &page.extent);
        let ranges = position.and_then(|(_, start)| lost.stripes.ranges(lost.place, start, length));
        let mut unavailable = self.lost_places(lost);
        let (Some((place, _)), Some(ranges)) = (position, ranges) else {
            return Err(self.lost_pages_error(
                lost,
                page,
                &unavailable,
                "its extent is not part of the stripes".to_owned(),
            ));
        };
        let mut read = 0;
        let mut outcome = self.reconstruct_without(lost, page, &ranges, &mut unavailable, &mut read).await?;
        if outcome.is_err() && unavailable.len() < lost.stripes.set.protection.lost_max() {
            for other in (0..lost.stripes.set.streams.len()).filter(|other| !unavailable.contains(other)) {
                let mut also = unavailable.clone();
                also.insert(other);
                let again = self.reconstruct_without(lost, page, &ranges, &mut also, &mut read).await?;
                if again.is_ok() {
                    outcome = again;
                    break;
                }
            }
        }
        let bytes = outcome.map_err(|problem| {
            self.shared.maps.forget(lost.table, lost.segment);
            self.lost_pages_error(lost, page, &unavailable, problem)
        })?;
        if lost.is_there {
            self.repair_later(lost.stripes, lost.stripes.set.streams[lost.place].node, place, &bytes);
        }
        let copied = self.shared.pages.filled(bytes.len(), |buffer| {
            buffer.copy_from_slice(&bytes);
            Ok::<_, std::convert::Infallible>(())
        });
        match copied {
            Ok(page) => Ok((page, read)),
            Err(never) => match never {},
        }
    }

    /// Reconstructs a page without the `unavailable` nodes, to which nodes are added that turn out
    /// to be lost. The inner error says why the page could not be reconstructed or is wrong.
    async fn reconstruct_without(
        &self,
        lost: &LostSegment<'_>,
        page: PageWanted,
        ranges: &[CellRange],
        unavailable: &mut BTreeSet<usize>,
        read: &mut u64,
    ) -> Result<Result<Vec<u8>, String>, ClientError> {
        let mut bytes = Vec::new();
        loop {
            match self.reconstruct_ranges(lost, ranges, unavailable, &mut bytes, read).await {
                Ok(()) => break,
                Err(GatherError::Lost(place)) if unavailable.insert(place) => {}
                Err(GatherError::Lost(_) | GatherError::TooManyLost) => {
                    return Ok(Err(format!("its parity {} does not bear that", lost.stripes.set.protection)));
                }
                Err(GatherError::Error(error)) => return Err(error),
            }
        }
        let identity =
            PageIdentity { table: lost.table, segment: lost.segment, column: page.column, page: page.page };
        Ok(match PageView::open(&bytes, &identity) {
            Ok(_) => Ok(bytes),
            Err(fault) => Err(format!("the data of the surviving nodes does not reconstruct it: {fault}")),
        })
    }

    /// The positions of unavailable nodes, of the node whose page is wanted, and of slow nodes as
    /// far as the parity allows it.
    pub(super) fn lost_places(&self, lost: &LostSegment<'_>) -> BTreeSet<usize> {
        let mut places: BTreeSet<usize> = self.places_unavailable(lost.stripes).chain([lost.place]).collect();
        for node in self.slow() {
            let place = lost.stripes.set.streams.iter().position(|stream| stream.node == node);
            if places.len() < lost.stripes.set.protection.lost_max() {
                places.extend(place);
            }
        }
        places
    }

    /// The positions in the set of unavailable nodes.
    pub(super) fn places_unavailable<'s>(&self, stripes: &'s Stripes) -> impl Iterator<Item = usize> + 's {
        let unavailable = self.unavailable();
        let streams = stripes.set.streams.iter().enumerate();
        streams.filter(move |(_, stream)| unavailable.contains(&stream.node)).map(|(place, _)| place)
    }

    /// Reconstructs the ranges into `bytes`, one behind the other.
    async fn reconstruct_ranges(
        &self,
        lost: &LostSegment<'_>,
        ranges: &[CellRange],
        unavailable: &BTreeSet<usize>,
        bytes: &mut Vec<u8>,
        read: &mut u64,
    ) -> Result<(), GatherError> {
        bytes.clear();
        for range in ranges {
            let sources = sources(lost.stripes, range, unavailable)?;
            let length = usize::try_from(range.length).expect("a range of a cell: it fits 32 bits");
            let from = bytes.len();
            bytes.resize(from + length, 0);
            let one = |(place, pieces): (usize, Vec<Piece>)| async move {
                let node = lost.stripes.set.streams[place].node;
                self.read_pieces(node, &pieces, length).await.map_err(|error| {
                    if error.is_unreadable() { GatherError::Lost(place) } else { GatherError::Error(error) }
                })
            };
            let mut reading = stream::iter(sources).map(one).buffer_unordered(RANGES_READ_MAX);
            while let Some(source) = reading.try_next().await? {
                *read += range.length;
                // Both have the length of the range.
                xor::xor_into(&mut bytes[from..], &source).map_err(|_| GatherError::TooManyLost)?;
            }
        }
        Ok(())
    }

    fn lost_pages_error(
        &self,
        lost: &LostSegment<'_>,
        page: PageWanted,
        unavailable: &BTreeSet<usize>,
        problem: String,
    ) -> ClientError {
        let nodes = unavailable.iter().filter_map(|place| lost.stripes.set.streams.get(*place));
        ClientError::LostPages {
            table: lost.name.to_owned(),
            pages: format!(
                "page {} of column {} of segment {} (bytes {}..+{} of device {})",
                page.page,
                page.column,
                lost.segment,
                page.extent.offset_bytes,
                page.extent.length_bytes,
                page.extent.device
            ),
            nodes: nodes.map(|stream| stream.node.to_string()).collect::<Vec<_>>().join(", "),
            problem,
        }
    }
}

fn nodes_of(stripes: &Stripes) -> u64 {
    stripes.set.streams.len() as u64
}

/// The pieces to XOR for a range of a lost cell: the same range of surviving cells, without cells
/// that are all zeros.
fn sources(
    stripes: &Stripes,
    range: &CellRange,
    unavailable: &BTreeSet<usize>,
) -> Result<Vec<(usize, Vec<Piece>)>, GatherError> {
    let geometry = stripes.layout.geometry();
    let nodes: Vec<Node> =
        unavailable.iter().filter_map(|place| u8::try_from(*place).ok()).map(Node).collect();
    let columns = geometry.lost_with(range.stripe, &nodes).map_err(|_| GatherError::TooManyLost)?;
    let cells = geometry.degraded(columns).sources(range.cell);
    let cells = cells.ok().flatten().ok_or(GatherError::TooManyLost)?;
    let of = |cell| stripes.pieces(&CellRange { cell, ..*range }).ok_or(GatherError::TooManyLost);
    let found = cells.into_iter().map(of).collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().filter(|(_, pieces)| !pieces.is_empty()).collect())
}

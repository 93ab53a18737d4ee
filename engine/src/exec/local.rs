//! Scans a segment from devices that are attached to the engine's host, without its node.

use super::{
    ScanError,
    capture::PageRead,
    context::Waiting,
    work::{SegmentWork, Sink, scan_here},
};
use rackscan_client::{FetchedPages, PageBuffer};
use rackscan_scan::PageWanted;
use std::time::Instant;

/// Reads pages from attached devices and scans them in the engine, from `first_block` on.
pub(super) async fn scan(work: &SegmentWork, first_block: u32, sink: &mut Sink) -> Result<(), ScanError> {
    scan_here(work, first_block, sink, async |wanted| read(work, &wanted).await).await
}

/// Reads pages from attached devices. Corrupt pages of a protected table are reconstructed from
/// other nodes.
pub(super) async fn read(work: &SegmentWork, wanted: &[PageWanted]) -> Result<Vec<PageBuffer>, ScanError> {
    let extents: Vec<_> = wanted.iter().map(|page| page.extent).collect();
    if let Some(capture) = &work.capture {
        let at = Instant::now();
        let reads = wanted.iter().map(|page| PageRead { at, column: page.column, extent: page.extent });
        capture.record(work.node, reads).await;
    }
    let bytes = extents.iter().map(|extent| u64::from(extent.length_bytes)).sum();
    let (waiting, began) = (work.query.loads.wait(work.node, Waiting::Device), Instant::now());
    let pages = work.query.devices.read(work.node, &extents).await;
    // Failed reads count as reads, too.
    work.meter.read(bytes, began, &waiting);
    let (segment, mut fetched) = ((work.directory.table, work.directory.segment), FetchedPages::default());
    let pages = work.query.cluster.made_right(work.node, segment, wanted, pages?, &mut fetched).await?;
    if fetched.reconstructed_pages > 0 {
        work.meter.fetched(&fetched, &waiting);
    }
    Ok(pages)
}

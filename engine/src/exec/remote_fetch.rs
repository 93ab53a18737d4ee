//! How is a segment scanned from pages that its node sends?

use super::{
    ScanError,
    capture::PageRead,
    context::Waiting,
    segment::{SegmentWork, Sink, scan_here},
};
use rackscan_scan::PageWanted;

/// Fetches pages and scans them here, from `first_block` on.
pub(super) async fn scan(work: &SegmentWork, first_block: u32, sink: &mut Sink) -> Result<(), ScanError> {
    scan_here(work, first_block, sink, async |wanted| {
        let (table, segment) = (work.directory.table, work.directory.segment);
        let waiting = work.query.loads.wait(work.node, Waiting::Pages);
        let fetched = work.query.cluster.fetch(work.node, table, segment, &wanted).await?;
        work.meter.fetched(&fetched, &waiting);
        drop(waiting);
        if let Some(capture) = &work.capture {
            let reads = wanted.iter().zip(&fetched.read_at);
            let read = |(page, at): (&PageWanted, &Option<_>)| {
                at.map(|at| PageRead { at, column: page.column, extent: page.extent })
            };
            let reads = reads.filter_map(read);
            capture.record(work.node, reads).await;
        }
        if let Some(load) = fetched.load {
            work.query.loads.report(work.node, load);
        }
        Ok(fetched.pages)
    })
    .await
}

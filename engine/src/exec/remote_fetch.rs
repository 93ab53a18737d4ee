//! Scans a segment in the engine, from pages that its node sends.

use super::{
    ScanError,
    capture::PageRead,
    context::Waiting,
    local,
    work::{SegmentWork, Sink, scan_here},
};
use rackscan_planner::Placement;
use rackscan_scan::PageWanted;

/// Fetches pages and scans them in the engine, from `first_block` on. If the node is lost
/// meanwhile, the scan goes on with pages that are read without the node, where that is possible.
pub(super) async fn scan(work: &SegmentWork, first_block: u32, sink: &mut Sink) -> Result<(), ScanError> {
    scan_here(work, first_block, sink, async |wanted| {
        if work.meter.is_placed(Placement::Local) {
            return local::read(work, &wanted).await;
        }
        let (table, segment) = (work.directory.table, work.directory.segment);
        let waiting = work.query.loads.wait(work.node, Waiting::Pages);
        let fetched = match work.query.cluster.fetch(work.node, table, segment, &wanted).await {
            Ok(fetched) => fetched,
            Err(error) if work.goes_on_without_node(&error) => {
                drop(waiting);
                return local::read(work, &wanted).await;
            }
            Err(error) => return Err(error.into()),
        };
        if fetched.reconstructed_pages > 0 {
            work.is_degraded("its pages are reconstructed from other nodes");
        }
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

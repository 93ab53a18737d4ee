//! How is a segment scanned from devices that the engine reads itself?

use super::{
    ScanError,
    capture::PageRead,
    context::Waiting,
    segment::{SegmentWork, Sink, scan_here},
};
use std::time::Instant;

/// Reads pages from attached devices and scans them here.
pub(super) async fn scan(work: &SegmentWork, sink: &mut Sink) -> Result<(), ScanError> {
    scan_here(work, 0, sink, async |wanted| {
        let extents: Vec<_> = wanted.iter().map(|page| page.extent).collect();
        if let Some(capture) = &work.capture {
            let at = Instant::now();
            let reads = wanted.iter().map(|page| PageRead { at, column: page.column, extent: page.extent });
            capture.record(work.node, reads).await;
        }
        let bytes = extents.iter().map(|extent| u64::from(extent.length_bytes)).sum();
        let (waiting, began) = (work.query.loads.wait(work.node, Waiting::Device), Instant::now());
        let pages = work.query.devices.read(work.node, &extents).await;
        // Failed reads are reads, too.
        work.meter.read(bytes, began, &waiting);
        Ok(pages?)
    })
    .await
}

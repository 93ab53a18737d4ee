//! How is a segment scanned from devices that the engine reads itself?

use super::{
    ScanError,
    segment::{SegmentWork, Sink, scan_here},
};

/// Reads pages from attached devices and scans them here.
pub(super) async fn scan(work: &SegmentWork, sink: &mut Sink) -> Result<(), ScanError> {
    scan_here(work, 0, sink, async |wanted| {
        let extents: Vec<_> = wanted.iter().map(|page| page.extent).collect();
        work.tally.read(extents.iter().map(|extent| u64::from(extent.length_bytes)).sum());
        Ok(work.query.devices.read(work.node, &extents).await?)
    })
    .await
}

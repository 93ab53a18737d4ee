//! Scans changed rows that are in no segment yet.
//!
//! The same code scans them as scans a segment. Their pages are already in memory, so no placement
//! is decided and no IO is needed.

use super::{
    ScanError,
    work::{SegmentWork, Sink, scan_here},
};
use rackscan_delta::run::Run;
use rackscan_scan::PageWanted;

/// Scans a run of changed rows.
pub(super) async fn scan(work: &SegmentWork, run: &Run, sink: &mut Sink) -> Result<(), ScanError> {
    let pages = |wanted: Vec<PageWanted>| {
        let pages: Option<Vec<_>> = wanted.iter().map(|page| run.page(page.column, page.page)).collect();
        // A directory lists only pages that its run has. If one were missing, the scan would report
        // that it got too few pages.
        std::future::ready(Ok(pages.unwrap_or_default()))
    };
    scan_here(work, 0, sink, pages).await
}

//! Scans changed rows that are in no segment yet.
//!
//! They are scanned like a segment, by the same code. Their pages are already in memory, so nothing
//! is placed, read or waited for.

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
    let stats = scan_here(work, 0, sink, pages).await?;
    work.counters.beside(&stats);
    Ok(())
}

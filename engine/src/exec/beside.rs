//! How are changed rows scanned that lie beside the segments?
//!
//! As a segment, by the same code; but their pages are here already, so nothing is placed, read or
//! waited for.

use super::{
    ScanError,
    segment::{SegmentWork, Sink, scan_here},
};
use rackscan_delta::run::Run;
use rackscan_scan::PageWanted;

/// Scans a run of changed rows.
pub(super) async fn scan(work: &SegmentWork, run: &Run, sink: &mut Sink) -> Result<(), ScanError> {
    let pages = |wanted: Vec<PageWanted>| {
        let pages: Option<Vec<_>> = wanted.iter().map(|page| run.page(page.column, page.page)).collect();
        // A directory has no page that its run does not have; if it had, the scan would be told of
        // too few.
        std::future::ready(Ok(pages.unwrap_or_default()))
    };
    let stats = scan_here(work, 0, sink, pages).await?;
    work.counters.beside(&stats);
    Ok(())
}

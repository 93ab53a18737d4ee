//! Records which pages a scan has read, if the requester traces its query.
//!
//! Invariants
//! - Every reported page was read. A scan whose reads might not fit into the reply is bounced
//!   before it reads anything; the requester then fetches the segment and records the reads itself.

use std::time::Instant;

use az::SaturatingAs;
use rackscan_format::{
    limits::PAGE_READS_MAX,
    message::{BounceReason, PageRead, Refusal, RefusalCode},
    program::ScanProgram,
    segment::SegmentDirectory,
};
use rackscan_scan::PageWanted;

/// A segment may be scanned twice for one reply: with batches of the usual size, and with small
/// ones if the first does not fit.
const SCANS_MAX: usize = 2;

/// The reads of one job.
pub(super) struct Reads {
    since: Instant,
    pages: Vec<PageRead>,
}

impl Reads {
    /// Starts without reads, for a request that arrived at `since`.
    pub(super) fn since(since: Instant) -> Self {
        Self { since, pages: Vec::new() }
    }

    /// Records that the device was asked for this page now.
    pub(super) fn note(&mut self, page: &PageWanted) {
        let after_us = self.since.elapsed().as_micros().saturating_as::<u32>();
        self.pages.push(PageRead { column: page.column, page: page.page, after_us });
    }

    pub(super) fn into_pages(self) -> Vec<PageRead> {
        self.pages
    }
}

/// Bounces a scan that might read more pages than a reply can report.
pub(super) fn check_room(program: &ScanProgram, directory: &SegmentDirectory) -> Result<(), Refusal> {
    let chunks = program.inputs.iter().filter_map(|input| directory.chunk(input.column));
    let pages: usize = chunks.map(|chunk| chunk.pages.len()).sum();
    let pages_max = PAGE_READS_MAX / SCANS_MAX;
    if pages <= pages_max {
        return Ok(());
    }
    let text = format!(
        "the scan may read {pages} pages, and a reply can report at most {pages_max} of a traced query; fetch the segment"
    );
    Err(Refusal::new(RefusalCode::Bounced(BounceReason::Memory), text))
}

#[cfg(test)]
mod tests {
    use rackscan_format::{
        ids::{ColumnId, DeviceId, SegmentId, TableId},
        program::{Input, Output, PROGRAM_VERSION},
        schema::ColumnType,
        segment::{ChunkDirectory, Extent, PageEntry},
        zone::Zone,
    };

    use super::*;

    fn directory(pages: &[usize]) -> SegmentDirectory {
        let extent = Extent { device: DeviceId(0), offset_bytes: 4096, length_bytes: 4096 };
        let entry = PageEntry { extent, first_row: 0, rows: 1024, zone: Zone::default() };
        let chunks = pages.iter().map(|&pages| ChunkDirectory { pages: vec![entry.clone(); pages] });
        SegmentDirectory { table: TableId(1), segment: SegmentId(0), rows: 1024, chunks: chunks.collect() }
    }

    #[test]
    fn a_scan_whose_reads_might_not_fit_a_reply_is_refused_before_it_reads() {
        let input = |column| Input { column: ColumnId(column), column_type: ColumnType::Int64 };
        let program = ScanProgram {
            version: PROGRAM_VERSION,
            table: TableId(1),
            inputs: vec![input(0), input(2)],
            nodes: Vec::new(),
            filter: Vec::new(),
            output: Output::Rows(Vec::new()),
            limit_rows: None,
            key_filters: Vec::new(),
        };
        // The second column is not the program's.
        assert_eq!(check_room(&program, &directory(&[1300, 4096, 1300])), Ok(()));
        let refusal = check_room(&program, &directory(&[1300, 4096, 1301])).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Bounced(BounceReason::Memory));
        assert!(refusal.text.contains("2601 pages") && refusal.text.contains("2600"), "{}", refusal.text);
    }
}

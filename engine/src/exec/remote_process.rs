//! How is a segment scanned in its node?

use super::{
    ScanError,
    capture::PageRead,
    context::Waiting,
    segment::{SegmentWork, Sink},
};
use rackscan_client::{ProcessAnswer, Processed};
use rackscan_format::message::BounceReason;
use std::time::{Duration, Instant};

/// A node gave the scan back.
pub(super) struct Bounced {
    /// The first block whose rows have not come.
    pub(super) first_block: u32,
    /// Why.
    pub(super) reason: BounceReason,
    /// What the node said.
    pub(super) text: String,
}

/// Asks the node for rows until the segment is done, or the node bounces the rest of it.
pub(super) async fn scan(work: &SegmentWork, sink: &mut Sink) -> Result<Option<Bounced>, ScanError> {
    let (segment, mut first_block) = (work.directory.segment, 0);
    loop {
        let asking = work.query.loads.wait(work.node, Waiting::Scan);
        let began = Instant::now();
        let answer = work
            .query
            .cluster
            .process(work.node, &work.program, segment, first_block, work.capture.is_some())
            .await?;
        work.meter.waited(began);
        let together = asking.together;
        drop(asking);
        let processed = match answer {
            ProcessAnswer::Processed(processed) => processed,
            ProcessAnswer::Bounced { reason, text, load } => {
                work.query.loads.report(work.node, load);
                return Ok(Some(Bounced { first_block, reason, text }));
            }
        };
        work.query.loads.report(work.node, processed.load);
        work.meter.processed(&processed, together);
        record(work, &processed).await?;
        for batch in processed.batches {
            if sink.put(work, batch).await.is_err() {
                return Ok(None);
            }
        }
        match processed.next_block {
            Some(next) if next > first_block => first_block = next,
            Some(_) => return Err(ScanError::NoProgress { node: work.node, first_block }),
            None => return Ok(None),
        }
    }
}

/// Records the pages that the node says it read.
async fn record(work: &SegmentWork, processed: &Processed) -> Result<(), ScanError> {
    let Some(capture) = &work.capture else { return Ok(()) };
    let mut reads = Vec::with_capacity(processed.reads.len());
    for read in &processed.reads {
        let Some(entry) = work.directory.page(read.column, read.page) else {
            let (node, column, page) = (work.node, read.column, read.page);
            return Err(ScanError::UnknownPage { node, column, page });
        };
        let at = processed.asked_at + Duration::from_micros(read.after_us.into());
        reads.push(PageRead { at, column: read.column, extent: entry.extent });
    }
    capture.record(work.node, reads.into_iter()).await;
    Ok(())
}

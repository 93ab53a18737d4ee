//! Asks a segment's node to scan the segment, and returns the rows that the node sends.

use super::{
    ScanError,
    capture::PageRead,
    context::Waiting,
    work::{SegmentWork, Sink},
};
use rackscan_client::{ProcessAnswer, Processed, SegmentPart};
use rackscan_format::message::BounceReason;
use std::time::{Duration, Instant};

/// How the scan in the node ended.
pub(super) enum Ended {
    /// All rows have arrived, or the query needs no more.
    Here,
    /// The node returned the rest of the scan.
    Bounced {
        /// The first block whose rows have not arrived.
        first_block: u32,
        /// The node's reason.
        reason: BounceReason,
        /// The node's message.
        text: String,
    },
    /// The node was lost, and the rest can be scanned without it.
    NodeLost {
        /// The first block whose rows have not arrived.
        first_block: u32,
    },
    /// The node was lost, and pages of the rest are reconstructed from other nodes.
    Degraded {
        /// The first block whose rows have not arrived.
        first_block: u32,
    },
}

/// Requests rows from the node until the segment is done or the rest must be scanned elsewhere.
pub(super) async fn scan(work: &SegmentWork, sink: &mut Sink) -> Result<Ended, ScanError> {
    let mut first_block = 0;
    let program = work.runtime_filter.offered(&work.narrowed, &work.query.cluster);
    loop {
        let asking = work.query.loads.wait(work.node, Waiting::Scan);
        let began = Instant::now();
        let part = SegmentPart {
            table: work.directory.table,
            segment: work.directory.segment,
            first_block,
            withheld: work.withheld.clone(),
            report_reads: work.capture.is_some(),
        };
        let answer = work.query.cluster.process(work.node, &program, &part).await;
        work.meter.waited(began);
        let together = asking.together;
        drop(asking);
        let processed = match answer {
            Ok(ProcessAnswer::Processed(processed)) => processed,
            Ok(ProcessAnswer::Bounced { reason, text, load }) => {
                work.query.loads.report(work.node, load);
                return Ok(Ended::Bounced { first_block, reason, text });
            }
            Err(error) if work.goes_on_without_node(&error) => return Ok(Ended::NodeLost { first_block }),
            Err(error) if work.is_made_up_for(&error) => return Ok(Ended::Degraded { first_block }),
            Err(error) => return Err(error.into()),
        };
        work.query.loads.report(work.node, processed.load);
        work.runtime_filter.searched(processed.cost.keys_tested, processed.cost.keys_kept);
        work.meter.processed(&processed, together);
        record(work, &processed).await?;
        let Processed { batches, next_block, .. } = *processed;
        for batch in batches {
            if sink.put(work, batch).await.is_err() {
                return Ok(Ended::Here);
            }
        }
        match next_block {
            Some(next) if next > first_block => first_block = next,
            Some(_) => return Err(ScanError::NoProgress { node: work.node, first_block }),
            None => return Ok(Ended::Here),
        }
    }
}

/// Records the pages that the node reports as read.
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

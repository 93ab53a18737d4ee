//! How is a segment scanned in its node?

use super::{
    ScanError,
    segment::{SegmentWork, Sink},
};
use rackscan_client::ProcessAnswer;
use std::time::Instant;

/// A node had no room for the scan.
pub(super) struct Bounced {
    /// The first block whose rows have not come.
    pub(super) first_block: u32,
    /// What the node said.
    pub(super) reason: String,
}

/// Asks the node for rows until the segment is done, or the node bounces the rest of it.
pub(super) async fn scan(work: &SegmentWork, sink: &mut Sink) -> Result<Option<Bounced>, ScanError> {
    let mut first_block = 0;
    loop {
        let asking = work.query.loads.asking(work.node);
        let began = Instant::now();
        let answer =
            work.query.cluster.process(work.node, &work.program, work.directory.segment, first_block).await?;
        work.tally.waited(began.elapsed());
        drop(asking);
        let processed = match answer {
            ProcessAnswer::Processed(processed) => processed,
            ProcessAnswer::Bounced { reason, load } => {
                work.query.loads.report(work.node, load);
                return Ok(Some(Bounced { first_block, reason }));
            }
        };
        work.query.loads.report(work.node, processed.load);
        work.tally.processed(&processed);
        for batch in processed.batches {
            if sink.put(batch).await.is_err() {
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

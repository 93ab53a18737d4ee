//! Runs a scan at a node and receives its rows.
//!
//! Invariants
//! - One call returns one answer: it covers whole blocks from `first_block` on, and names the block
//!   at which to continue, which is always a later one.
//! - If the target memory is too small for the result of one block, the call repeats with the size
//!   that the node requests, within a bound.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::record_batch::RecordBatch;
use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    limits::WITHHELD_HERE_BYTES_MAX,
    message::{
        Answer, BounceReason, Cost, LoadReport, PageRead, Payload, Refusal, RefusalCode, Request, Target,
    },
    program::VerifiedProgram,
    segment::SegmentDirectory,
    withheld::WithheldRows,
};
use rackscan_scan::{output_schema, wire};

use crate::{
    ClientError, Cluster,
    driver::Reply,
    limits::{PROCESS_TARGET_BYTES, PROCESS_TARGET_BYTES_MAX},
    message_names::unexpected_answer,
    target::Span,
};

const DURING: &str = "process";

/// The answer of a node that was asked to scan a segment.
#[derive(Debug)]
pub enum ProcessAnswer {
    /// Rows or groups.
    Processed(Box<Processed>),
    /// The node is too busy to scan; the segment can be fetched instead, with the same result.
    Bounced {
        /// Why.
        reason: BounceReason,
        /// Why, with numbers, for a message.
        text: String,
        /// The load of the node.
        load: LoadReport,
    },
}

/// A program that nodes can be asked to run. Its key filters are in registered memory, where nodes
/// can read them as long as this lives.
#[derive(Debug)]
pub struct OfferedProgram {
    program: Arc<VerifiedProgram>,
    key_filters: Vec<Span>,
}

impl OfferedProgram {
    /// A program without key filters.
    #[must_use]
    pub fn plain(program: Arc<VerifiedProgram>) -> Self {
        Self { program, key_filters: Vec::new() }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Arc<VerifiedProgram> {
        &self.program
    }
}

/// The part of a segment that a node is asked to scan.
#[derive(Clone, Debug)]
pub struct SegmentPart {
    /// The table under which the segment was written.
    pub table: TableId,
    /// The segment.
    pub segment: SegmentId,
    /// The first block to scan: 0, or where the last answer ended.
    pub first_block: u32,
    /// The rows of the segment that this scan leaves out.
    pub withheld: Option<Arc<WithheldRows>>,
    /// Whether the node reports which pages it reads.
    pub report_reads: bool,
}

impl SegmentPart {
    /// All rows from a block on, without a report of the pages that are read.
    #[must_use]
    pub fn from_block(directory: &SegmentDirectory, first_block: u32) -> Self {
        let SegmentDirectory { table, segment, .. } = *directory;
        Self { table, segment, first_block, withheld: None, report_reads: false }
    }

    /// The encoded withheld rows; empty if there are none.
    fn withheld_bytes(&self) -> &[u8] {
        self.withheld.as_deref().map_or(&[], WithheldRows::as_bytes)
    }
}

/// The target memory of one request: for its result, and behind that for withheld rows that do not
/// fit a message.
struct RequestMemory {
    span: Span,
    target: Target,
    withheld: Option<Payload>,
}

impl RequestMemory {
    /// Allocates at least `target_bytes` for the result. Result and withheld rows share one span: a
    /// caller that waited for memory while it holds some might wait for ever.
    async fn take(cluster: &Cluster, target_bytes: usize, withheld: &[u8]) -> Result<Self, ClientError> {
        let beside = if withheld.len() > WITHHELD_HERE_BYTES_MAX { withheld } else { &[] };
        let bytes = target_bytes.saturating_add(beside.len());
        let span = cluster.shared.memory.take(bytes, "the result of a scan").await?;
        let whole = span.as_target();
        if beside.is_empty() {
            let withheld = (!withheld.is_empty()).then(|| Payload::Here(withheld.to_vec()));
            return Ok(Self { span, target: whole, withheld });
        }
        let (result_bytes, length_bytes) = (span.length_bytes() - beside.len(), beside.len() as u64);
        // The span was allocated with room for them.
        span.copy_in(result_bytes, beside).map_err(|_| ClientError::MemoryTooSmall {
            what: "a list of withheld rows",
            wanted_bytes: bytes,
            available_bytes: span.length_bytes(),
            advice: "this is a bug, please report it",
        })?;
        let target = Target { length_bytes: result_bytes as u64, ..whole };
        let offset_bytes = whole.offset_bytes + target.length_bytes;
        let withheld = Some(Payload::Beside(Target { offset_bytes, length_bytes, ..whole }));
        Ok(Self { span, target, withheld })
    }
}

/// The result of (a part of) one segment.
#[derive(Debug)]
pub struct Processed {
    /// The rows, or the partial groups.
    pub batches: Vec<RecordBatch>,
    /// Number of rows (or groups) in them.
    pub rows: u64,
    /// The block from which to continue; `None` when the segment is done.
    pub next_block: Option<u32>,
    /// The node's cost.
    pub cost: Cost,
    /// Bytes that crossed the wire: requests, replies and rows.
    pub wire_bytes: u64,
    /// Requests that were answered.
    pub round_trips: u32,
    /// The load of the node.
    pub load: LoadReport,
    /// When the answered request was sent.
    pub asked_at: Instant,
    /// From then to the reply.
    pub waited: Duration,
    /// Time that the caller's thread spent on decoding the rows.
    pub decoding: Duration,
    /// The pages that the node read, if that was asked for.
    pub reads: Vec<PageRead>,
}

/// The node's description of the bytes that it wrote.
struct Written {
    bytes: usize,
    batches: u32,
    rows: u64,
}

impl Cluster {
    /// Copies a program's key filters to memory that nodes can read as long as the result lives.
    /// `None` if there is no memory for them now.
    #[must_use]
    pub fn offer(&self, program: Arc<VerifiedProgram>) -> Option<OfferedProgram> {
        let mut key_filters = Vec::new();
        for filter in program.key_filters() {
            let bytes = filter.to_bytes();
            let span = self.shared.memory.take_to_keep(bytes.len())?;
            span.copy_in(0, &bytes).ok()?;
            key_filters.push(span);
        }
        Some(OfferedProgram { program, key_filters })
    }

    /// Runs a program at the node over a part of a segment.
    ///
    /// # Errors
    /// A lost or refusing node; see [`ClientError`]. A busy one is [`ProcessAnswer::Bounced`].
    pub async fn process(
        &self,
        node: NodeId,
        offered: &OfferedProgram,
        part: &SegmentPart,
    ) -> Result<ProcessAnswer, ClientError> {
        let (mut target_bytes, mut wire_bytes, mut round_trips) = (PROCESS_TARGET_BYTES, 0, 0);
        let (program, first_block) = (&offered.program, part.first_block);
        loop {
            let RequestMemory { span, target, withheld } =
                RequestMemory::take(self, target_bytes, part.withheld_bytes()).await?;
            let request = Request::Process {
                program: program.program().clone(),
                key_filters: offered.key_filters.iter().map(Span::as_target).collect(),
                table: part.table,
                segment: part.segment,
                withheld,
                first_block,
                target,
                report_reads: part.report_reads,
            };
            let asked_at = Instant::now();
            let mut reply = self.ask_unless_outpaced(node, request, span).await?;
            wire_bytes += reply.message_bytes;
            let waited = asked_at.elapsed();
            round_trips += 1;
            let load = reply.message.load;
            match std::mem::replace(&mut reply.message.outcome, Ok(Answer::Done)) {
                Ok(Answer::Processed { written_bytes, batches: count, rows, next_block, cost, reads }) => {
                    let written = written(node, &target, written_bytes, count, rows)?;
                    check_progress(node, first_block, next_block)?;
                    let decoding = Instant::now();
                    let batches = self.read_batches(node, program, &reply, &written)?;
                    wire_bytes += written_bytes;
                    return Ok(ProcessAnswer::Processed(Box::new(Processed {
                        batches,
                        rows,
                        next_block,
                        cost,
                        wire_bytes,
                        round_trips,
                        load,
                        asked_at,
                        waited,
                        decoding: decoding.elapsed(),
                        reads,
                    })));
                }
                Ok(other) => return Err(unexpected_answer(node, DURING, &other, "the result of a scan")),
                Err(Refusal { code: RefusalCode::Bounced(reason), text, .. }) => {
                    return Ok(ProcessAnswer::Bounced { reason, text, load });
                }
                // The connection has its maximum of requests at the node: that is a queue, too.
                Err(Refusal { code: RefusalCode::Busy, text, .. }) => {
                    return Ok(ProcessAnswer::Bounced { reason: BounceReason::Queue, text, load });
                }
                Err(refusal) if refusal.code == RefusalCode::TargetTooSmall => {
                    target_bytes = larger_target(node, target_bytes, refusal.needed_bytes)?;
                }
                // Corrupt or lost pages are reconstructed when they are fetched.
                Err(refusal) if self.can_be_reconstructed(node, part.table, part.segment, &refusal).await => {
                    return Ok(ProcessAnswer::Bounced {
                        reason: BounceReason::Memory,
                        text: refusal.text,
                        load,
                    });
                }
                Err(refusal) => {
                    return Err(ClientError::Refused { node, during: DURING, refusal: Box::new(refusal) });
                }
            }
        }
    }

    /// Copies the batches out of the target, so that the peer cannot change them, and decodes them.
    fn read_batches(
        &self,
        node: NodeId,
        program: &VerifiedProgram,
        reply: &Reply,
        written: &Written,
    ) -> Result<Vec<RecordBatch>, ClientError> {
        let bad = |found: String| bad_answer(node, found, "the batches that its reply announced");
        let span = reply.span.as_ref().ok_or(ClientError::Closed)?;
        let copied = self.shared.pages.filled(written.bytes, |bytes| span.copy_out(0, bytes));
        let copied = copied.map_err(|error| bad(error.to_string()))?;
        let schema = output_schema(program);
        let (mut batches, mut rows, mut rest) = (Vec::new(), 0_u64, copied.bytes());
        while !rest.is_empty() {
            let (batch, bytes) = wire::decode(rest, &schema).map_err(|error| bad(error.to_string()))?;
            // A decoder that consumes nothing would loop for ever.
            let Some(after) = rest.get(bytes.max(1)..) else {
                return Err(bad(format!("a batch of {bytes} bytes")));
            };
            rest = after;
            rows += batch.num_rows() as u64;
            batches.push(batch);
        }
        if batches.len() as u64 != u64::from(written.batches) || rows != written.rows {
            return Err(bad(format!(
                "{} batches of {rows} rows, but announced {} batches of {} rows",
                batches.len(),
                written.batches,
                written.rows
            )));
        }
        Ok(batches)
    }
}

fn written(
    node: NodeId,
    target: &Target,
    written_bytes: u64,
    batches: u32,
    rows: u64,
) -> Result<Written, ClientError> {
    match usize::try_from(written_bytes) {
        Ok(bytes) if written_bytes <= target.length_bytes => Ok(Written { bytes, batches, rows }),
        _ => {
            let found = format!("{written_bytes} bytes of rows");
            Err(bad_answer(
                node,
                found,
                &format!("at most {}, the size of their memory", target.length_bytes),
            ))
        }
    }
}

/// Checks that the scan continues at a later block; else it would be requested without end.
fn check_progress(node: NodeId, first_block: u32, next_block: Option<u32>) -> Result<(), ClientError> {
    match next_block {
        Some(next) if next <= first_block => {
            let found = format!("block {next} as the next block");
            Err(bad_answer(node, found, &format!("a block after {first_block}")))
        }
        _ => Ok(()),
    }
}

fn larger_target(node: NodeId, target_bytes: usize, needed_bytes: u64) -> Result<usize, ClientError> {
    match usize::try_from(needed_bytes) {
        Ok(needed) if needed > target_bytes && needed <= PROCESS_TARGET_BYTES_MAX => Ok(needed),
        _ => {
            let expected = format!("more than {target_bytes} and at most {PROCESS_TARGET_BYTES_MAX}");
            Err(bad_answer(
                node,
                format!("{needed_bytes} bytes needed for the result of one block"),
                &expected,
            ))
        }
    }
}

fn bad_answer(node: NodeId, found: String, expected: &str) -> ClientError {
    ClientError::BadAnswer { node, during: DURING, found, expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_that_does_not_get_on_is_an_error() {
        assert!(check_progress(NodeId(1), 3, None).is_ok() && check_progress(NodeId(1), 3, Some(4)).is_ok());
        for next in [0, 3] {
            assert!(check_progress(NodeId(1), 3, Some(next)).is_err());
        }
    }

    #[test]
    fn a_target_grows_to_what_is_needed_within_a_bound() {
        assert_eq!(larger_target(NodeId(1), 4096, 5000).unwrap(), 5000);
        for needed in [0, 4096, PROCESS_TARGET_BYTES_MAX as u64 + 1, u64::MAX] {
            assert!(larger_target(NodeId(1), 4096, needed).is_err(), "{needed}");
        }
    }
}

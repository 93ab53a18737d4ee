//! Reads from surviving nodes, with few requests, the bytes from which lost cells are recovered,
//! and XORs them.
//!
//! ```text
//! intervals with their plans    which cells of survivors must be XORed to recover a range of lost cells
//!  -> pieces of devices, by node; neighbouring pieces are one read, many reads are one request to a node
//!  -> requests to all nodes at the same time, into registered memory
//!  -> XOR straight out of registered memory, tile by tile -> the ranges of the lost cells
//! ```
//!
//! A *round* is a group of intervals whose bytes fit into the memory of one gathering.
//!
//! Invariants
//! - All memory of one gathering is allocated at once, at most [`GATHER_BYTES`] plus the padding of
//!   slots; a task that waits for memory holds none.
//! - Registered memory is copied out and never borrowed, because peers may write it.
//! - Only what the plans name is read: no byte twice, and nothing behind the end of a stream.

use std::ops::Range;

use futures::future::try_join_all;
use rackscan_fabric::OutOfBounds;
use rackscan_format::{
    ids::DeviceId,
    limits::{RAW_TRANSFERS_MAX, SECTOR_BYTES},
    message::{Answer, RawRead, Request},
};
use rackscan_stripe::{Cell, Recovery, Repair, xor};
use std::sync::Arc;

use super::{
    intervals::Interval,
    stripes::{CellRange, Stripes},
};
use crate::{
    ClientError, Cluster,
    limits::{GATHER_BYTES, GATHER_READ_BYTES, GATHER_REQUEST_BYTES, GATHER_TILE_BYTES, SLOT_BYTES},
    message_names::unexpected_answer,
    target::Span,
};

/// Why bytes could not be gathered.
#[derive(Debug)]
pub(super) enum GatherError {
    /// One more node is lost: its position in the set.
    Lost(usize),
    /// More nodes are lost than the parity allows.
    TooManyLost,
    Error(ClientError),
}

/// An interval of lost cells, and the plan that recovers it.
#[derive(Debug)]
pub(super) struct PlannedInterval {
    pub(super) interval: Interval,
    pub(super) plan: Arc<Recovery>,
}

/// One request to one node.
#[derive(Debug)]
struct NodeRequest {
    node: usize,
    reads: Vec<RawRead>,
    bytes: usize,
}

/// A piece of a source, and where its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// Offset in the interval.
    at: usize,
    length: usize,
    request: usize,
    /// Offset in the request's memory.
    offset: usize,
}

/// A piece to be read, for a source of an interval.
struct NeededPiece {
    node: usize,
    device: DeviceId,
    offset_bytes: u64,
    length: u32,
    interval: usize,
    source: usize,
    at: usize,
}

/// The requests to survivors for one round.
#[derive(Debug)]
pub(super) struct Reads {
    planned: Vec<PlannedInterval>,
    requests: Vec<NodeRequest>,
    /// The pieces in order, by interval and by the plan's `reads`. Gaps between them are zeros.
    sources: Vec<Vec<Vec<Part>>>,
}

/// Survivors' bytes, in registered memory.
#[derive(Debug)]
pub(super) struct Gathered {
    reads: Reads,
    spans: Vec<Span>,
}

impl PlannedInterval {
    /// Maximum bytes that are read for the interval.
    fn bytes(&self) -> u64 {
        (self.interval.range.end - self.interval.range.start).saturating_mul(self.plan.reads.len() as u64)
    }

    /// Divides the interval into parts that fit one gathering, at least a sector each.
    fn parts(self) -> impl Iterator<Item = Self> {
        let sector = u64::from(SECTOR_BYTES);
        let step = GATHER_BYTES / (self.plan.reads.len() as u64).max(1) / sector * sector;
        let Self { interval: Interval { stripe, cells, range: Range { start, end } }, plan } = self;
        let step = step.max(sector);
        (0..(end - start).div_ceil(step)).map(move |part| {
            let from = start + part * step;
            let range = from..end.min(from + step);
            Self { interval: Interval { stripe, cells: cells.clone(), range }, plan: Arc::clone(&plan) }
        })
    }
}

/// Divides intervals into rounds, which are gathered one after the other. Each round fits the
/// memory of one gathering.
pub(super) fn rounds(planned: Vec<PlannedInterval>) -> Vec<Vec<PlannedInterval>> {
    let mut rounds: Vec<Vec<PlannedInterval>> = Vec::new();
    let mut bytes = 0;
    for part in planned.into_iter().flat_map(PlannedInterval::parts) {
        bytes += part.bytes();
        match rounds.last_mut() {
            Some(round) if bytes <= GATHER_BYTES => round.push(part),
            _ => {
                bytes = part.bytes();
                rounds.push(vec![part]);
            }
        }
    }
    rounds
}

impl Reads {
    /// The requests of a round; `None` if a plan names a cell that does not exist.
    pub(super) fn new(stripes: &Stripes, planned: Vec<PlannedInterval>) -> Option<Self> {
        let mut needed = Vec::new();
        for (number, PlannedInterval { interval, plan }) in planned.iter().enumerate() {
            let (from, length) = (interval.range.start, interval.range.end - interval.range.start);
            for (source, cell) in plan.reads.iter().enumerate() {
                let range = CellRange { stripe: interval.stripe, cell: *cell, from, length };
                let (node, pieces) = stripes.pieces(&range)?;
                needed.extend(pieces.into_iter().map(|piece| NeededPiece {
                    node,
                    device: piece.extent.device,
                    offset_bytes: piece.extent.offset_bytes,
                    length: piece.extent.length_bytes,
                    interval: number,
                    source,
                    at: piece.at,
                }));
            }
        }
        needed.sort_unstable_by_key(|piece| (piece.node, piece.device, piece.offset_bytes));
        let sources = planned.iter().map(|planned| vec![Vec::new(); planned.plan.reads.len()]).collect();
        let mut reads = Self { planned, requests: Vec::new(), sources };
        needed.iter().for_each(|piece| reads.add(piece));
        for source in reads.sources.iter_mut().flatten() {
            in_order(source);
        }
        Some(reads)
    }

    fn add(&mut self, piece: &NeededPiece) {
        let length = piece.length as usize;
        let fits = |asked: &NodeRequest| {
            asked.node == piece.node
                && asked.bytes + length <= GATHER_REQUEST_BYTES
                && (asked.reads.len() < RAW_TRANSFERS_MAX
                    || asked.reads.last().is_some_and(|read| follows(read, piece)))
        };
        if !self.requests.last().is_some_and(fits) {
            self.requests.push(NodeRequest { node: piece.node, reads: Vec::new(), bytes: 0 });
        }
        let request = self.requests.len() - 1;
        let asked = &mut self.requests[request];
        let offset = asked.bytes;
        asked.bytes += length;
        match asked.reads.last_mut() {
            Some(read) if follows(read, piece) => read.length_bytes += piece.length,
            _ => asked.reads.push(RawRead {
                device: piece.device,
                offset_bytes: piece.offset_bytes,
                length_bytes: piece.length,
                target_offset_bytes: offset as u64,
            }),
        }
        let part = Part { at: piece.at, length, request, offset };
        self.sources[piece.interval][piece.source].push(part);
    }

    /// Bytes that the requests read.
    pub(super) fn bytes(&self) -> u64 {
        self.requests.iter().map(|asked| asked.bytes as u64).sum()
    }
}

/// Whether a piece lies just behind a read, and the merged read is not too large.
fn follows(read: &RawRead, piece: &NeededPiece) -> bool {
    read.device == piece.device
        && read.offset_bytes.checked_add(read.length_bytes.into()) == Some(piece.offset_bytes)
        && read.length_bytes.saturating_add(piece.length) <= GATHER_READ_BYTES
}

/// Sorts the parts of a source, and merges those that are also adjacent in memory.
fn in_order(parts: &mut Vec<Part>) {
    parts.sort_unstable_by_key(|part| part.at);
    parts.dedup_by(|next, part| {
        let follows = part.at + part.length == next.at
            && (part.request, part.offset + part.length) == (next.request, next.offset);
        if follows {
            part.length += next.length;
        }
        follows
    });
}

impl Cluster {
    /// Sends the requests of a round to all nodes at the same time.
    pub(super) async fn gather(&self, stripes: &Stripes, reads: Reads) -> Result<Gathered, GatherError> {
        let slots = |asked: &NodeRequest| asked.bytes.next_multiple_of(SLOT_BYTES);
        let all = reads.requests.iter().map(slots).sum();
        if all == 0 {
            return Ok(Gathered { reads, spans: Vec::new() });
        }
        let mut left = self.shared.memory.take(all, "ranges of stripes").await.map_err(GatherError::Error)?;
        let mut asking = Vec::with_capacity(reads.requests.len());
        for asked in &reads.requests {
            let span = left.split_off(slots(asked));
            asking.push(self.gather_from(stripes, asked, span));
        }
        drop(left);
        let spans = try_join_all(asking).await?;
        Ok(Gathered { reads, spans })
    }

    async fn gather_from(
        &self,
        stripes: &Stripes,
        asked: &NodeRequest,
        span: Span,
    ) -> Result<Span, GatherError> {
        let node = stripes.set.streams[asked.node].node;
        let failed = |error: ClientError| match error.is_unreadable() {
            true => GatherError::Lost(asked.node),
            false => GatherError::Error(error),
        };
        let request = Request::ReadRaw { reads: asked.reads.clone(), target: span.as_target() };
        let mut reply = self.ask(node, request, Some(span)).await.map_err(failed)?;
        match reply.take_answer(node, "raw read").map_err(failed)? {
            Answer::Transferred { .. } => reply.span.ok_or(GatherError::Error(ClientError::Closed)),
            other => {
                Err(GatherError::Error(unexpected_answer(node, "raw read", &other, "the end of a raw read")))
            }
        }
    }
}

impl Gathered {
    /// Bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        self.reads.bytes()
    }

    /// Computes the wanted cells tile by tile, and passes to `into`: interval, cell, offset in the
    /// cell, bytes.
    ///
    /// # Errors
    /// [`GatherError::TooManyLost`] if a plan does not list what it needs; no plan does that.
    pub(super) fn sums(&self, mut into: impl FnMut(&Interval, Cell, u64, &[u8])) -> Result<(), GatherError> {
        let (mut sums, mut tile) = (Vec::new(), vec![0; GATHER_TILE_BYTES]);
        for (PlannedInterval { interval, plan }, sources) in
            self.reads.planned.iter().zip(&self.reads.sources)
        {
            sums.resize(plan.repairs.len() * GATHER_TILE_BYTES, 0);
            let length = usize::try_from(interval.range.end - interval.range.start)
                .map_err(|_| GatherError::TooManyLost)?;
            let repairs: Vec<Vec<Term<'_>>> = terms(plan, sources).ok_or(GatherError::TooManyLost)?;
            for start in (0..length).step_by(GATHER_TILE_BYTES) {
                let range = start..length.min(start + GATHER_TILE_BYTES);
                for (at, (repair, terms)) in plan.repairs.iter().zip(&repairs).enumerate() {
                    let (before, rest) = sums.split_at_mut(at * GATHER_TILE_BYTES);
                    let sum = &mut rest[..range.len()];
                    self.sum(terms, &range, (before, sum, &mut tile))
                        .map_err(|_| GatherError::TooManyLost)?;
                    if interval.cells.contains(&repair.cell) {
                        into(interval, repair.cell, interval.range.start + start as u64, sum);
                    }
                }
            }
        }
        Ok(())
    }

    /// Computes a tile of a sum from its terms.
    fn sum(
        &self,
        terms: &[Term<'_>],
        range: &Range<usize>,
        (before, sum, tile): (&[u8], &mut [u8], &mut [u8]),
    ) -> Result<(), OutOfBounds> {
        let mut is_begun = false;
        for term in terms {
            match term {
                Term::Sum(earlier) => {
                    let from = earlier * GATHER_TILE_BYTES;
                    put(sum, &before[from..from + range.len()], &mut is_begun);
                }
                Term::Source(parts) => {
                    let first = parts.partition_point(|part| part.at + part.length <= range.start);
                    for part in parts[first..].iter().take_while(|part| part.at < range.end) {
                        let (begin, end) = (part.at.max(range.start), range.end.min(part.at + part.length));
                        let within = begin - range.start..end - range.start;
                        let from = part.offset + (begin - part.at);
                        if !is_begun && within.len() == range.len() {
                            self.spans[part.request].copy_out(from, sum)?;
                            is_begun = true;
                            continue;
                        }
                        if !is_begun {
                            sum.fill(0);
                            is_begun = true;
                        }
                        let tile = &mut tile[..within.len()];
                        self.spans[part.request].copy_out(from, tile)?;
                        put(&mut sum[within], tile, &mut is_begun);
                    }
                }
            }
        }
        if !is_begun {
            sum.fill(0);
        }
        Ok(())
    }
}

/// XORs bytes into a sum, or begins the sum with them.
fn put(sum: &mut [u8], bytes: &[u8], is_begun: &mut bool) {
    if *is_begun {
        xor::xor_into(sum, bytes).expect("a term has the length of its part of the sum");
    } else {
        sum.copy_from_slice(bytes);
        *is_begun = true;
    }
}

/// A term of a sum.
enum Term<'g> {
    Source(&'g [Part]),
    /// The sum of an earlier repair.
    Sum(usize),
}

/// The terms of each repair of a plan; `None` if a term is neither read nor repaired before.
fn terms<'g>(plan: &Recovery, sources: &'g [Vec<Part>]) -> Option<Vec<Vec<Term<'g>>>> {
    let term = |at: usize, cell: &Cell| {
        let source = plan.reads.iter().position(|read| read == cell).map(|read| Term::Source(&sources[read]));
        let earlier = || plan.repairs[..at].iter().position(|repair| repair.cell == *cell).map(Term::Sum);
        source.or_else(earlier)
    };
    let of = |(at, repair): (usize, &Repair)| repair.from.iter().map(|cell| term(at, cell)).collect();
    plan.repairs.iter().enumerate().map(of).collect()
}

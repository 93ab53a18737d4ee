//! Measures the bandwidth of one-sided writes and reads, next to a copy of the same size within one
//! process.
//!
//! Invariants
//! - The plain copy uses as much source and target memory as the wire's transfers, so that
//!   processor caches help both alike.
//! - At the end all transfers have completed, and the written bytes are read back and compared.

use std::time::Instant;

use rackscan_fabric::{Connection, Event, Operation, Region, RemoteRegion};

use super::{
    FabricBenchError, FabricLine, FabricOptions, Partner, Place, error::unexpected, most,
    partner::REGION_BYTES, times,
};
use crate::Provenance;

/// Sizes of a transfer in bytes.
const SIZES: [usize; 4] = [4 << 10, 32 << 10, 128 << 10, 1 << 20];
/// Transfers in flight.
const DEPTH: usize = 16;
/// Mebibytes that one turn moves.
const MEBIBYTES_PER_TURN: u32 = 512;

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Write,
    Read,
}

/// Measures both directions in all sizes.
pub(super) fn measure(
    partner: &mut Partner,
    place: &Place,
    options: &FabricOptions,
) -> Result<Vec<FabricLine>, FabricBenchError> {
    let ours = Region::allocate(REGION_BYTES)?;
    let pattern: Vec<u8> =
        (0..REGION_BYTES as u64).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 16).to_le_bytes()[0]).collect();
    ours.copy_in(0, &pattern)?;
    let mut copy = vec![0_u8; REGION_BYTES];
    let mut lines = Vec::new();
    for bytes in SIZES {
        let (mut writes, mut reads, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.repeat {
            let count = transfers(bytes, options);
            copies.push(plain_copies(&pattern, &mut copy, bytes, count));
            let memory = partner.memory;
            let connection = &mut partner.ends.both;
            writes.push(transfer(connection, &ours, memory, Direction::Write, (bytes, count))?);
            reads.push(transfer(connection, &ours, memory, Direction::Read, (bytes, count))?);
        }
        let memcpy = most(&copies);
        for (what, wire, runs) in [
            ("copy", "memcpy".to_owned(), copies),
            ("write", place.wire(), writes),
            ("read", place.wire(), reads),
        ] {
            let best = most(&runs);
            let provenance = Provenance::now("fabric", 0.0);
            let (unit, against, ratio) = ("GB/s", "memcpy", best / memcpy);
            lines.push(FabricLine { provenance, what, wire, bytes, unit, runs, best, against, ratio });
        }
    }
    read_back(partner, &ours, &pattern)?;
    Ok(lines)
}

/// Number of transfers of a turn; at least once over the whole region.
fn transfers(bytes: usize, options: &FabricOptions) -> usize {
    let mebibytes = times(MEBIBYTES_PER_TURN, options.effort) as usize;
    ((mebibytes << 20) / bytes).max(REGION_BYTES / bytes)
}

fn rate(bytes: usize, count: usize, started: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let moved = (bytes * count) as f64;
    moved / started.elapsed().as_secs_f64() / 1e9
}

fn plain_copies(source: &[u8], target: &mut [u8], bytes: usize, count: usize) -> f64 {
    let places = REGION_BYTES / bytes;
    let started = Instant::now();
    for number in 0..count {
        let at = number % places * bytes;
        target[at..at + bytes].copy_from_slice(&source[at..at + bytes]);
        std::hint::black_box(&mut *target);
    }
    rate(bytes, count, started)
}

fn transfer(
    connection: &mut Connection,
    ours: &Region,
    theirs: RemoteRegion,
    direction: Direction,
    (bytes, count): (usize, usize),
) -> Result<f64, FabricBenchError> {
    let places = REGION_BYTES / bytes;
    let mut events = Vec::new();
    let started = Instant::now();
    for number in 0..count {
        let at = number % places * bytes;
        let slice = ours.slice(at, bytes)?;
        let operation = match direction {
            Direction::Write => Operation::Write { source: slice, target: theirs, target_offset: at as u64 },
            Direction::Read => Operation::Read { source: theirs, source_offset: at as u64, target: slice },
        };
        connection.post(0, operation)?;
        complete(connection, &mut events, DEPTH)?;
    }
    complete(connection, &mut events, 0)?;
    Ok(rate(bytes, count, started))
}

/// Polls until at most `left` transfers are in flight.
fn complete(
    connection: &mut Connection,
    events: &mut Vec<Event>,
    left: usize,
) -> Result<(), FabricBenchError> {
    while connection.in_flight() > left {
        if connection.poll(events) == 0 {
            // On tcp, other threads of this process must run.
            std::thread::yield_now();
        }
        for event in events.drain(..) {
            match event {
                Event::Completed { outcome, .. } => drop(outcome?),
                other => return Err(unexpected(&other, "a completion")),
            }
        }
    }
    Ok(())
}

/// Reads the other process's memory and compares it with what was written.
fn read_back(partner: &mut Partner, ours: &Region, pattern: &[u8]) -> Result<(), FabricBenchError> {
    ours.zero(0, REGION_BYTES)?;
    let memory = partner.memory;
    transfer(&mut partner.ends.both, ours, memory, Direction::Read, (1 << 20, REGION_BYTES >> 20))?;
    if ours.to_vec(0, REGION_BYTES)? == pattern {
        return Ok(());
    }
    Err(FabricBenchError::Partner {
        found: "other bytes than were written into its memory".into(),
        expected: "the bytes that were written",
    })
}

//! Keeps the reads and writes in progress in a simulated network, cut into pieces that move at
//! different times.
//!
//! Invariants
//! - The pieces cover the transfer without gaps or overlaps. Two pieces meet at a multiple of the
//!   granule (the unit that is never torn) in the remote memory. The first piece begins and the
//!   last one ends where the transfer does.
//! - A write copies its source no later than its completion, because the side that posted it may
//!   change the source afterwards.
//! - Where two writes of a connection overlap, the later one's piece moves after the earlier one's.

use std::ops::Range;

use super::{
    agenda::EndNumber,
    config::{Order, SimConfig, Tearing},
    region::same_memory,
    seed::Random,
};
use crate::{
    limits::SIM_PIECES_MAX,
    region::{Region, RegionSlice},
};

/// The poster's side of a transfer.
#[derive(Debug)]
pub(super) enum Local {
    /// The source of a write or the target of a read.
    Memory(RegionSlice),
    /// Bytes of a write that were already copied.
    Taken(Vec<u8>),
}

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Write,
    Read,
}

/// Bytes that move at one time.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Counted from the start of the transfer.
    pub(super) range: Range<usize>,
    pub(super) due_ns: u64,
    pub(super) moved: bool,
}

/// A write or read in progress.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) link: u64,
    pub(super) end: EndNumber,
    /// The place whose memory it touches.
    pub(super) owner: usize,
    pub(super) direction: Direction,
    pub(super) local: Local,
    pub(super) remote: Region,
    pub(super) remote_offset: usize,
    pub(super) pieces: Vec<Piece>,
    pub(super) left: usize,
    /// Whether its success was reported, so that it happens whatever becomes of the connection.
    pub(super) completed: bool,
}

impl Transfer {
    /// Copies the source now, before its owner may change it.
    pub(super) fn take_source(&mut self) {
        if let (Direction::Write, Local::Memory(slice)) = (self.direction, &self.local) {
            self.local = Local::Taken(copy_of(slice.region(), slice.offset(), slice.len()));
        }
    }

    /// Moves a piece. Returns its offset in the remote memory and its bytes.
    pub(super) fn move_piece(&mut self, piece: usize) -> (usize, Vec<u8>) {
        let piece = &mut self.pieces[piece];
        piece.moved = true;
        self.left -= 1;
        let range = piece.range.clone();
        let offset = self.remote_offset + range.start;
        let bytes = match (self.direction, &self.local) {
            (Direction::Read, _) => copy_of(&self.remote, offset, range.len()),
            (Direction::Write, Local::Taken(bytes)) => bytes[range.clone()].to_vec(),
            (Direction::Write, Local::Memory(slice)) => {
                copy_of(slice.region(), slice.offset() + range.start, range.len())
            }
        };
        let stored = match (self.direction, &self.local) {
            (Direction::Write, _) => self.remote.copy_in(offset, &bytes),
            (Direction::Read, Local::Memory(slice)) => {
                slice.region().copy_in(slice.offset() + range.start, &bytes)
            }
            (Direction::Read, Local::Taken(_)) => Ok(()),
        };
        stored.expect("the bounds were checked when the transfer began");
        (offset, bytes)
    }

    /// When the last piece that overlaps a range of the same memory becomes visible.
    pub(super) fn seen_ns(&self, remote: &Region, range: &Range<usize>) -> u64 {
        if !same_memory(&self.remote, remote) {
            return 0;
        }
        let overlaps = |piece: &&Piece| {
            let (start, end) = (self.remote_offset + piece.range.start, self.remote_offset + piece.range.end);
            !piece.moved && start < range.end && range.start < end
        };
        self.pieces.iter().filter(overlaps).map(|piece| piece.due_ns).max().unwrap_or(0)
    }
}

/// A copy of memory whose bounds were checked when the transfer began.
fn copy_of(region: &Region, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    region.copy_out(offset, &mut bytes).expect("the bounds were checked when the transfer began");
    bytes
}

/// Cuts a transfer to or from `offset` of the remote memory into ranges counted from its start.
fn cut(random: &mut Random, tearing: Tearing, offset: usize, bytes: usize) -> Vec<Range<usize>> {
    let tearing = match tearing {
        Tearing::Drawn => [Tearing::Whole, Tearing::At8, Tearing::At64][random.index(3)],
        chosen => chosen,
    };
    let granule = match tearing {
        Tearing::At8 => 8,
        Tearing::At64 => 64,
        Tearing::Whole | Tearing::Drawn => usize::MAX,
    };
    // The possible cuts are the multiples of the granule between the two ends.
    let (first, last) = (offset / granule + 1, (offset + bytes).div_ceil(granule));
    let possible = last.saturating_sub(first);
    let mut cuts: Vec<usize> = if possible < SIM_PIECES_MAX {
        (first..last).map(|at| at * granule - offset).collect()
    } else {
        (1..SIM_PIECES_MAX).map(|_| (first + random.index(possible)) * granule - offset).collect()
    };
    cuts.extend([0, bytes]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// The pieces of a transfer that reaches the remote memory at `from_ns`.
pub(super) fn pieces(
    random: &mut Random,
    config: &SimConfig,
    from_ns: u64,
    remote: Range<usize>,
) -> Vec<Piece> {
    let ranges = cut(random, config.tearing, remote.start, remote.len());
    let mut times: Vec<u64> = ranges.iter().map(|_| from_ns + random.nanoseconds(&config.landing)).collect();
    if config.order == Order::Ascending {
        times.sort_unstable();
    }
    let piece = |(range, due_ns)| Piece { range, due_ns, moved: false };
    ranges.into_iter().zip(times).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seed::Seed;

    #[test]
    fn pieces_cover_a_transfer_and_meet_at_multiples_of_the_granule() {
        let mut random = Random::new(Seed::new(3));
        for (tearing, granule) in [(Tearing::At8, 8), (Tearing::At64, 64)] {
            for (offset, bytes) in
                [(0, 0), (0, 1), (5, 3), (5, 4), (7, 64), (64, 64), (1, 4096), (3, 1 << 20)]
            {
                let ranges = cut(&mut random, tearing, offset, bytes);
                let covered: usize = ranges.iter().map(Range::len).sum();
                assert_eq!((covered, ranges.len() <= SIM_PIECES_MAX), (bytes, true), "{offset} {bytes}");
                assert!(ranges.iter().all(|range| !range.is_empty()));
                for pair in ranges.windows(2) {
                    assert_eq!(pair[0].end, pair[1].start);
                    assert_eq!((offset + pair[0].end) % granule, 0, "{offset} {bytes} {pair:?}");
                }
            }
        }
        assert_eq!(cut(&mut random, Tearing::Whole, 5, 1000).len(), 1);
        assert_eq!(cut(&mut random, Tearing::At8, 8, 16), [0..8, 8..16]);
    }
}

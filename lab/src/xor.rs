//! Measures the XOR of cells on one core, next to a plain kernel that reads and writes as much.
//!
//! ```text
//! for each block size, from memory and from the cache
//!   for each turn     target ^= source, block by block (`stripe`),
//!                     then target += source by a plain loop;
//!                     the first turn does not count
//! ```
//!
//! Both kernels read two blocks and write one. "From memory" means that target and source have
//! [`MEMORY_BYTES`] each and are traversed in order; "from the cache" means that the same two
//! blocks are used again and again. This is figure 4 of the paper (`redundant-writes`, section
//! 2.3).
//!
//! Invariants
//! - Everything runs on the calling thread.
//! - The two kernels alternate. A ratio is the median of the ratios of adjacent turns.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use rackscan_figures::{Axis, Chart, Figure, Kind, Report, Scale, Section, Series, Table};
use rackscan_stripe::xor::xor_into;
use serde::Serialize;

use crate::{
    limits::{XOR_BLOCK_BYTES_MAX, XOR_BLOCK_BYTES_MIN},
    median::median,
    record::Provenance,
};

/// Bytes of target and of source; they do not fit any cache.
pub const MEMORY_BYTES: usize = 64 << 20;

/// A measurement.
#[derive(Debug, Clone)]
pub struct XorSpeed {
    /// Sizes of blocks in bytes: powers of two.
    pub blocks: Vec<usize>,
    /// Number of turns that count.
    pub rounds: u32,
    /// Minimum duration of a turn; it goes through the memory at least once.
    pub turn: Duration,
    /// Source of the figures.
    pub provenance: Provenance,
}

/// Where the blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// More memory than caches hold, in order.
    Memory,
    /// The same blocks again and again.
    Cache,
}

/// One block size, as one JSON line.
#[derive(Debug, Clone, Serialize)]
pub struct XorLine {
    /// Source of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Bytes per XOR call.
    pub block_bytes: usize,
    /// Where the blocks are.
    pub from: From,
    /// GB/s read and written: three times the target's bytes.
    pub gb_per_s: f64,
    /// The same of the plain kernel.
    pub plain_gb_per_s: f64,
    /// The XOR's rate relative to the plain kernel's, over adjacent turns.
    pub over_plain: f64,
    /// GB/s of each turn.
    pub turns_gb_per_s: Vec<f64>,
}

/// A block size that cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "blocks of {found} bytes are not possible; expected a power of two from {XOR_BLOCK_BYTES_MIN} to {XOR_BLOCK_BYTES_MAX} bytes"
)]
pub struct BlockError {
    /// The size.
    pub found: usize,
}

impl XorSpeed {
    /// Runs the measurement; `progress` receives each block size before it is measured.
    ///
    /// # Errors
    /// [`BlockError`], before anything runs.
    pub fn run(&self, progress: &mut dyn FnMut(usize)) -> Result<Vec<XorLine>, BlockError> {
        let fits = |bytes: &usize| {
            bytes.is_power_of_two() && (XOR_BLOCK_BYTES_MIN..=XOR_BLOCK_BYTES_MAX).contains(bytes)
        };
        if let Some(found) = self.blocks.iter().find(|bytes| !fits(bytes)) {
            return Err(BlockError { found: *found });
        }
        let (mut target, source) = (vec![0x5a_u8; MEMORY_BYTES], vec![0xc3_u8; MEMORY_BYTES]);
        let mut lines = Vec::new();
        for from in [From::Memory, From::Cache] {
            for block_bytes in &self.blocks {
                progress(*block_bytes);
                lines.extend(self.line(*block_bytes, from, &mut target, &source));
            }
        }
        Ok(lines)
    }

    fn line(&self, block_bytes: usize, from: From, target: &mut [u8], source: &[u8]) -> Option<XorLine> {
        let whole = if from == From::Memory { MEMORY_BYTES } else { block_bytes };
        let (target, source) = (&mut target[..whole], &source[..whole]);
        let (mut xored, mut plain) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            let turns =
                [self.turn(target, source, block_bytes, xor), self.turn(target, source, block_bytes, add)];
            if round > 0 {
                xored.push(turns[0]);
                plain.push(turns[1]);
            }
        }
        let ratios = xored.iter().zip(&plain).map(|(xored, plain)| xored / plain).collect();
        Some(XorLine {
            provenance: self.provenance.clone(),
            block_bytes,
            from,
            gb_per_s: median(xored.clone())?,
            plain_gb_per_s: median(plain)?,
            over_plain: median(ratios)?,
            turns_gb_per_s: xored,
        })
    }

    /// GB/s of one kernel over these bytes, repeated until the turn is over.
    fn turn(
        &self,
        target: &mut [u8],
        source: &[u8],
        block_bytes: usize,
        kernel: fn(&mut [u8], &[u8]),
    ) -> f64 {
        let (start, mut bytes) = (Instant::now(), 0_u64);
        loop {
            // Many blocks between two readings of the clock.
            for _ in 0..(1_usize << 20).div_ceil(target.len()) {
                for (target, source) in target.chunks_mut(block_bytes).zip(source.chunks(block_bytes)) {
                    kernel(black_box(target), black_box(source));
                }
                bytes += 3 * target.len() as u64;
            }
            let elapsed = start.elapsed();
            if elapsed >= self.turn {
                return rate(bytes, elapsed);
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people: 53 bits are plenty")]
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9
}

fn xor(target: &mut [u8], source: &[u8]) {
    // Both have the same length.
    if xor_into(target, source).is_err() {
        target.fill(0);
    }
}

/// The minimum work on two blocks that are read and one that is written.
fn add(target: &mut [u8], source: &[u8]) {
    let ((target, _), (source, _)) = (target.as_chunks_mut::<8>(), source.as_chunks::<8>());
    for (target, source) in target.iter_mut().zip(source) {
        *target = u64::from_le_bytes(*target).wrapping_add(u64::from_le_bytes(*source)).to_le_bytes();
    }
}

/// The lines as a table.
#[must_use]
pub fn table(lines: &[XorLine]) -> Table {
    let head = ["block", "from", "GB/s", "plain GB/s", "/ plain"];
    let row = |line: &XorLine| {
        vec![
            format!("{} KiB", line.block_bytes >> 10),
            if line.from == From::Memory { "memory" } else { "cache" }.to_owned(),
            format!("{:.2}", line.gb_per_s),
            format!("{:.2}", line.plain_gb_per_s),
            format!("{:.2}", line.over_plain),
        ]
    };
    Table {
        caption: "XOR of a block into another on one core, beside a plain loop that reads and writes as much; GB/s of all bytes read and written".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: lines.iter().map(row).collect(),
    }
}

/// A report page of the measurement: figure 4 of the paper.
#[must_use]
pub fn report(lines: &[XorLine], provenance: &Provenance) -> Report {
    #[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
    let series = |name: &str, from: From, of: fn(&XorLine) -> f64| {
        let points = lines.iter().filter(|line| line.from == from);
        Series::new(name, points.map(|line| (line.block_bytes as f64, of(line))))
    };
    let chart = Chart {
        title: "XOR on one core".to_owned(),
        kind: Kind::Lines,
        x: Axis::new("bytes of a block", Scale::Log2),
        y: Axis::new("GB/s read and written", Scale::Automatic),
        series: vec![
            series("xor, memory", From::Memory, |line| line.gb_per_s),
            series("plain, memory", From::Memory, |line| line.plain_gb_per_s),
            series("xor, cache", From::Cache, |line| line.gb_per_s),
            series("plain, cache", From::Cache, |line| line.plain_gb_per_s),
        ],
    };
    let caption = "Figure 4 of the paper: how fast blocks are XORed by their size.".to_owned();
    let figures = vec![Figure { name: "xor".to_owned(), caption, chart }];
    let section =
        Section { heading: "XOR".to_owned(), text: Vec::new(), tables: vec![table(lines)], figures };
    Report {
        title: "How fast cells are XORed".to_owned(),
        provenance: provenance.named("blocks in memory and in the cache".to_owned()),
        sections: vec![section],
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(blocks: Vec<usize>) -> XorSpeed {
        XorSpeed { blocks, rounds: 1, turn: Duration::ZERO, provenance: Provenance::now("xor", 0.0) }
    }

    #[test]
    fn every_block_size_has_a_line_from_memory_and_one_from_the_cache() {
        let lines = speed(vec![4096, 1 << 20]).run(&mut |_| ()).unwrap();
        let found: Vec<_> = lines.iter().map(|line| (line.block_bytes, line.from)).collect();
        let expected =
            [(4096, From::Memory), (1 << 20, From::Memory), (4096, From::Cache), (1 << 20, From::Cache)];
        assert_eq!(found, expected);
        assert!(lines.iter().all(|line| line.gb_per_s > 0.0 && line.over_plain > 0.0));
        assert_eq!(report(&lines, &lines[0].provenance).points.len(), 4);
    }

    #[test]
    fn blocks_that_cannot_be_measured_are_refused() {
        for found in [0, 100, 32 << 20] {
            assert_eq!(speed(vec![4096, found]).run(&mut |_| ()).unwrap_err(), BlockError { found });
        }
    }
}

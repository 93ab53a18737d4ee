//! Measures how fast cells and slices are XORed on one core, relative to a plain kernel that reads
//! two buffers and writes a third.
//!
//! ```text
//! cargo run --release -p rackscan-relay --example sumbench -- \
//!     [TURNS] [MILLISECONDS A TURN] [MIB OF A LARGE BUFFER]
//! ```
//!
//! Prints one JSON line: for buffers of 64 KiB and for larger ones (64 MiB, beyond most last-level
//! caches) the median gigabytes (10^9) per second, read and written, of
//! - `plain`: c = a + b in words of 64 bits, over ordinary memory,
//! - `into`: a ^= b over ordinary memory ([`xor_into`]),
//! - `all_2`, `all_4`, `all_9`: the XOR of so many buffers of ordinary memory into another
//!   ([`xor_all`]),
//! - `sum_2`, `sum_4`, `sum_9`: the XOR of so many regions into another, as nodes sum slices that
//!   peers may write ([`Region::xor_from`]),
//! - `crc`: the checksum of a region ([`Region::crc32c_append`]), which reads one.
//!
//! `over_plain` is the median of the ratios of turns next to each other. The first turn does not
//! count.

use rackscan_fabric::Region;
use rackscan_stripe::xor::{xor_all, xor_into};
use serde_json::json;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

const SMALL_BYTES: usize = 64 << 10;
const SOURCES: usize = 9;

/// What is measured, in the order of its turns.
const KERNELS: [&str; 9] = ["plain", "into", "all_2", "all_4", "all_9", "sum_2", "sum_4", "sum_9", "crc"];

/// What has turns: words for the plain kernel, bytes for the others, in ordinary memory and in
/// regions, all of one length.
struct Buffers {
    words: [Vec<u64>; 3],
    bytes: Vec<u8>,
    views: Vec<Vec<u8>>,
    target: Region,
    sources: Vec<Region>,
}

impl Buffers {
    fn new(bytes: usize) -> Result<Self, Box<dyn Error>> {
        let words = [1, 2, 3].map(|seed: u64| (0..bytes / 8).map(|at| at as u64 * seed).collect());
        let mut random = fastrand::Rng::with_seed(0x57_0032);
        let mut view = || (0..bytes).map(|_| random.u8(..)).collect();
        let views: Vec<Vec<u8>> = (0..SOURCES).map(|_| view()).collect();
        let sources = (0..SOURCES).map(|_| Region::allocate(bytes)).collect::<Result<Vec<_>, _>>()?;
        for (source, view) in sources.iter().zip(&views) {
            source.copy_in(0, view)?;
        }
        Ok(Self { words, bytes: vec![1; bytes], views, target: Region::allocate(bytes)?, sources })
    }

    /// Runs a kernel once; says how many bytes it read and wrote.
    fn run(&mut self, kernel: &str) -> Result<usize, Box<dyn Error>> {
        let bytes = self.target.bytes();
        let sum = |count: usize| -> Result<usize, Box<dyn Error>> {
            let places: Vec<(&Region, usize)> =
                self.sources[..count].iter().map(|source| (source, 0)).collect();
            self.target.xor_from(0, black_box(&places), bytes)?;
            Ok((count + 1) * bytes)
        };
        let views: Vec<&[u8]> = self.views.iter().map(Vec::as_slice).collect();
        let all = |target: &mut [u8], count: usize| -> Result<usize, Box<dyn Error>> {
            xor_all(target, black_box(&views[..count]))?;
            black_box(target);
            Ok((count + 1) * bytes)
        };
        match kernel {
            "plain" => {
                let [a, b, c] = &mut self.words;
                for ((c, a), b) in c.iter_mut().zip(black_box(a)).zip(black_box(b)) {
                    *c = a.wrapping_add(*b);
                }
                black_box(c);
                Ok(3 * bytes)
            }
            "into" => {
                xor_into(&mut self.bytes, black_box(views[0]))?;
                black_box(&mut self.bytes);
                Ok(3 * bytes)
            }
            "all_2" => all(&mut self.bytes, 2),
            "all_4" => all(&mut self.bytes, 4),
            "all_9" => all(&mut self.bytes, SOURCES),
            "sum_2" => sum(2),
            "sum_4" => sum(4),
            "sum_9" => sum(SOURCES),
            _ => {
                black_box(self.sources[0].crc32c_append(0, 0, bytes)?);
                Ok(bytes)
            }
        }
    }

    /// Gigabytes per second of a kernel that runs for so long, at least once.
    fn turn(&mut self, kernel: &str, time: Duration) -> Result<f64, Box<dyn Error>> {
        let (start, mut bytes) = (Instant::now(), 0);
        loop {
            bytes += self.run(kernel)?;
            let elapsed = start.elapsed();
            if elapsed >= time {
                return Ok(bytes as f64 / elapsed.as_secs_f64() / 1e9);
            }
        }
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).map_or(0.0, |number| (number * 1e3).round() / 1e3)
}

fn measured(bytes: usize, turns: usize, time: Duration) -> Result<serde_json::Value, Box<dyn Error>> {
    let mut buffers = Buffers::new(bytes)?;
    let mut found = vec![Vec::new(); KERNELS.len()];
    for turn in 0..=turns {
        for (kernel, found) in KERNELS.iter().zip(&mut found) {
            let speed = buffers.turn(kernel, time)?;
            if turn > 0 {
                found.push(speed);
            }
        }
    }
    let plain = found[0].clone();
    let line = |(kernel, found): (&&str, &Vec<f64>)| {
        let ratios = found.iter().zip(&plain).map(|(speed, plain)| speed / plain).collect();
        ((*kernel).to_owned(), json!({"gb_per_s": median(found.clone()), "over_plain": median(ratios)}))
    };
    let kernels: serde_json::Map<_, _> = KERNELS.iter().zip(&found).map(line).collect();
    Ok(json!({"buffer_bytes": bytes, "kernels": kernels}))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default: u32| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (turns, ms, large_mib) = (argument(0, 5)?, argument(1, 50)?, argument(2, 64)?);
    let turns = usize::try_from(turns.clamp(1, 10_000))?;
    let large = usize::try_from(large_mib.clamp(1, 1024))? << 20;
    let time = Duration::from_millis(u64::from(ms));
    let sizes = [measured(SMALL_BYTES, turns, time)?, measured(large, turns, time)?];
    let line = json!({
        "command": format!("sumbench {turns} {ms} {}", large >> 20),
        "commit": std::env::var("RACKSCAN_COMMIT").unwrap_or_else(|_| "unknown".to_owned()),
        "turns": turns,
        "sizes": sizes,
    });
    println!("{line}");
    Ok(())
}

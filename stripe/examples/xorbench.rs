//! How fast are cells XORed on one core, next to a plain kernel that reads two buffers and writes a third?
//!
//!     cargo run --release -p rackscan-stripe --example xorbench -- [TURNS] [MILLISECONDS A TURN] [MIB OF A LARGE BUFFER]
//!
//! Prints one JSON line: for buffers of 64 KiB and for larger ones (64 MiB, beyond most last-level caches) the median gigabytes (10^9) per second of
//! - `plain`: c = a + b in words of 64 bits, which reads two buffers and writes one,
//! - `into`: a ^= b, which reads two and writes one of them,
//! - `all_2`, `all_4`, `all_9`: the XOR of so many buffers into another.
//!
//! Bytes are those that are read and written: three buffers for the first three, k + 1 for k sources. `over_plain` is the median of the
//! ratios of turns next to each other. The first turn does not count.

use rackscan_stripe::xor::{LengthError, xor_all, xor_into};
use serde_json::json;
use std::hint::black_box;
use std::time::{Duration, Instant};

const SMALL_BYTES: usize = 64 << 10;
const SOURCES: usize = 9;

/// What is measured, in the order of its turns.
const KERNELS: [&str; 5] = ["plain", "into", "all_2", "all_4", "all_9"];

/// What has turns: words for the plain kernel, bytes for the others, all of one length.
struct Buffers {
    words: [Vec<u64>; 3],
    target: Vec<u8>,
    sources: Vec<Vec<u8>>,
}

impl Buffers {
    fn new(bytes: usize) -> Self {
        let words = [1, 2, 3].map(|seed: u64| (0..bytes / 8).map(|at| at as u64 * seed).collect());
        let mut random = fastrand::Rng::with_seed(0x57_0032);
        let mut source = || (0..bytes).map(|_| random.u8(..)).collect();
        Self { words, target: vec![1; bytes], sources: (0..SOURCES).map(|_| source()).collect() }
    }

    /// Runs a kernel once; says how many bytes it read and wrote.
    fn run(&mut self, kernel: &str) -> Result<usize, LengthError> {
        let bytes = self.target.len();
        let views: Vec<&[u8]> = self.sources.iter().map(Vec::as_slice).collect();
        let all = |target: &mut [u8], count: usize| {
            xor_all(target, black_box(&views[..count])).map(|()| (count + 1) * bytes)
        };
        match kernel {
            "plain" => {
                let [a, b, c] = &mut self.words;
                add(black_box(a), black_box(b), c);
                black_box(c);
                Ok(3 * bytes)
            }
            "into" => xor_into(&mut self.target, black_box(views[0])).map(|()| 3 * bytes),
            "all_2" => all(&mut self.target, 2),
            "all_4" => all(&mut self.target, 4),
            _ => all(&mut self.target, SOURCES),
        }
    }

    /// Gigabytes per second of a kernel that runs for so long, at least once.
    fn turn(&mut self, kernel: &str, time: Duration) -> Result<f64, LengthError> {
        let (start, mut bytes) = (Instant::now(), 0);
        loop {
            bytes += self.run(kernel)?;
            black_box(&mut self.target);
            let elapsed = start.elapsed();
            if elapsed >= time {
                return Ok(bytes as f64 / elapsed.as_secs_f64() / 1e9);
            }
        }
    }
}

/// The plain kernel: as compilers make it, without a thought.
fn add(a: &[u64], b: &[u64], c: &mut [u64]) {
    for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
        *c = a.wrapping_add(*b);
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

fn measured(bytes: usize, turns: usize, time: Duration) -> Result<serde_json::Value, LengthError> {
    let mut buffers = Buffers::new(bytes);
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
        let three = |number: f64| (number * 1e3).round() / 1e3;
        let figures = json!({"gb_per_s": three(median(found.clone())), "over_plain": three(median(ratios))});
        ((*kernel).to_owned(), figures)
    };
    let kernels: serde_json::Map<_, _> = KERNELS.iter().zip(&found).map(line).collect();
    Ok(json!({"buffer_bytes": bytes, "kernels": kernels}))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default: u32| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (turns, ms, large_mib) = (argument(0, 5)?, argument(1, 50)?, argument(2, 64)?);
    let turns = usize::try_from(turns.clamp(1, 10_000))?;
    let large = usize::try_from(large_mib.clamp(1, 1024))? << 20;
    let time = Duration::from_millis(u64::from(ms));
    let sizes = [measured(SMALL_BYTES, turns, time)?, measured(large, turns, time)?];
    let line = json!({
        "command": format!("xorbench {turns} {ms} {}", large >> 20),
        "commit": std::env::var("RACKSCAN_COMMIT").unwrap_or_else(|_| "unknown".to_owned()),
        "turns": turns,
        "sizes": sizes,
    });
    println!("{line}");
    Ok(())
}

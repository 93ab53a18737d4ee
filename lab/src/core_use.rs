//! Samples how busy each core of this machine is.
//!
//! Invariants
//! - A share covers the time between two samples and is from 0 to 1. Time in which a core waits for
//!   a device counts as idle.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::limits::CORE_SAMPLES_MAX;
use crate::record::Provenance;

/// The shares of all cores at one point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreUse {
    /// Time since sampling began.
    pub at: Duration,
    /// Busy share of each core since the previous sample, from 0 to 1.
    pub busy: Vec<f64>,
}

/// The share of one core at one point in time, as a line of JSON.
#[derive(Debug, Clone, Serialize)]
pub struct CoreLine {
    /// Source of the figure.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// `core use`.
    pub what: &'static str,
    /// Number of the core.
    pub core: usize,
    /// Seconds since sampling began.
    pub since_s: f64,
    /// Busy share since the sample before, in per cent.
    pub busy_percent: f64,
}

impl CoreUse {
    /// A line for each core.
    pub fn lines<'p>(&'p self, provenance: &'p Provenance) -> impl Iterator<Item = CoreLine> + 'p {
        self.busy.iter().enumerate().map(|(core, busy)| CoreLine {
            provenance: provenance.clone(),
            what: "core use",
            core,
            since_s: self.at.as_secs_f64(),
            busy_percent: busy * 100.0,
        })
    }
}

/// Ticks of one core since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ticks {
    idle: u64,
    all: u64,
}

/// Samples every `interval` until `over` is set.
pub(crate) fn watch(interval: Duration, over: &AtomicBool) -> Vec<CoreUse> {
    let begun = Instant::now();
    let mut samples = Vec::new();
    let mut before = read();
    while !over.load(Ordering::Relaxed) && samples.len() < CORE_SAMPLES_MAX {
        std::thread::sleep(interval);
        let now = read();
        let busy = before.iter().zip(&now).map(|(before, now)| share(*before, *now)).collect();
        samples.push(CoreUse { at: begun.elapsed(), busy });
        before = now;
    }
    samples
}

fn read() -> Vec<Ticks> {
    parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Parses the lines `cpu0`, `cpu1`, ... of /proc/stat: user, nice, system, idle, iowait, irq,
/// softirq, steal.
fn parse(stat: &str) -> Vec<Ticks> {
    let cores = stat.lines().filter(|line| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    });
    let ticks = |line: &str| {
        let fields: Vec<u64> =
            line.split_whitespace().skip(1).take(8).map(|word| word.parse().unwrap_or(0)).collect();
        let idle = fields.iter().skip(3).take(2).sum();
        Ticks { idle, all: fields.iter().sum() }
    };
    cores.map(ticks).collect()
}

#[expect(clippy::cast_precision_loss, reason = "ticks of a second or so")]
fn share(before: Ticks, now: Ticks) -> f64 {
    let all = now.all.saturating_sub(before.all);
    let idle = now.idle.saturating_sub(before.idle);
    if all == 0 { 0.0 } else { 1.0 - idle.min(all) as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_samples() {
        let before =
            parse("cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 10 100 5 0 0 0 7 7\ncpu1 0 0 0 50 0 0 0 0 0 0\nintr 1\n");
        let now =
            parse("cpu  9 9 9 9 9 9 9 9\ncpu0 40 0 20 150 15 0 0 0 7 7\ncpu1 0 0 0 50 0 0 0 0 0 0\nintr 1\n");
        assert_eq!(before.len(), 2);
        assert!((share(before[0], now[0]) - 0.4).abs() < 1e-9, "40 of 100 ticks were busy");
        assert!(share(before[1], now[1]).abs() < 1e-9, "no time has passed");
    }

    #[test]
    fn every_core_of_this_machine_is_watched() {
        let over = AtomicBool::new(false);
        let samples = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                over.store(true, Ordering::Relaxed);
            });
            watch(Duration::from_millis(20), &over)
        });
        assert!(!samples.is_empty());
        for sample in samples {
            assert!(!sample.busy.is_empty() && sample.busy.iter().all(|share| (0.0..=1.0).contains(share)));
        }
    }
}

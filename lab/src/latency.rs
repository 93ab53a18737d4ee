//! Defines the histograms that count latencies.
//!
//! Invariants
//! - A latency is stored with three significant digits, from a nanosecond to `LATENCY_MAX`. Longer
//!   latencies count as `LATENCY_MAX`.
//! - Recording a latency neither fails nor allocates.

use std::io;
use std::time::Duration;

use az::SaturatingAs;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::limits::{LATENCY_DIGITS, LATENCY_MAX};

/// Steps of a percentile distribution for each halving of the distance to 100 %, as the tools of
/// HdrHistogram write.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// A histogram of durations.
#[derive(Debug, Clone)]
pub struct Latencies {
    nanoseconds: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let longest = LATENCY_MAX.as_nanos().saturating_as::<u64>();
        let nanoseconds = Histogram::new_with_bounds(1, longest, LATENCY_DIGITS);
        Self { nanoseconds: nanoseconds.expect("limits.rs asserts that the bounds are possible") }
    }
}

impl Latencies {
    /// Records one duration.
    pub fn record(&mut self, latency: Duration) {
        self.nanoseconds.saturating_record(latency.as_nanos().saturating_as::<u64>());
    }

    /// Adds all durations of another histogram.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so this cannot fail.
        let added = self.nanoseconds.add(&other.nanoseconds);
        debug_assert!(added.is_ok(), "histograms of equal bounds: {added:?}");
    }

    /// Number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// The duration that `percent` percent of all do not exceed; zero if there are none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.nanoseconds.value_at_percentile(percent))
    }

    /// Pairs of a duration and the number of values between it and the previous one, for drawing.
    pub fn counts(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let recorded = self.nanoseconds.iter_recorded();
        recorded
            .map(|step| (Duration::from_nanos(step.value_iterated_to()), step.count_since_last_iteration()))
    }

    /// Writes the percentile distribution in the text format of HdrHistogram (`.hgrm`), in
    /// microseconds.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_percentiles(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let us = |nanoseconds: u64| Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6;
        let all = &self.nanoseconds;
        writeln!(
            out,
            "{:>12} {:>14} {:>10} {:>14}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        )?;
        let mut so_far = 0;
        for step in all.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
            so_far += step.count_since_last_iteration();
            let (value, quantile) = (us(step.value_iterated_to()), step.quantile_iterated_to());
            match quantile < 1.0 {
                true => {
                    let inverse = 1.0 / (1.0 - quantile);
                    writeln!(out, "{value:12.3} {quantile:2.12} {so_far:10} {inverse:14.2}")?;
                }
                false => writeln!(out, "{value:12.3} {quantile:2.12} {so_far:10}")?,
            }
        }
        let (mean, deviation) = (all.mean() / 1e3, all.stdev() / 1e3);
        writeln!(out, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")?;
        writeln!(out, "#[Max     = {:12.3}, Total count    = {:12}]", us(all.max()), all.len())?;
        let parts = (2 * 10_u64.pow(LATENCY_DIGITS.into())).next_power_of_two();
        writeln!(out, "#[Buckets = {:12}, SubBuckets     = {parts:12}]", all.buckets())
    }

    /// The usual percentiles.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        if self.count() == 0 {
            return LatencySummary::default();
        }
        let us = |nanoseconds: u64| Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6;
        let at = |percent| us(self.nanoseconds.value_at_percentile(percent));
        LatencySummary {
            count: self.count(),
            min_us: us(self.nanoseconds.min()),
            mean_us: self.nanoseconds.mean() / 1e3,
            p50_us: at(50.0),
            p90_us: at(90.0),
            p99_us: at(99.0),
            p999_us: at(99.9),
            max_us: us(self.nanoseconds.max()),
        }
    }
}

/// Percentiles in microseconds; zero if nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of recorded durations.
    pub count: u64,
    /// The minimum.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The maximum.
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_merged_histograms_are_those_of_all_values() {
        let (mut low, mut high) = (Latencies::default(), Latencies::default());
        for us in 1..=500 {
            low.record(Duration::from_micros(us));
            high.record(Duration::from_micros(500 + us));
        }
        low.add(&high);
        let summary = low.summary();
        assert_eq!(summary.count, 1000);
        for (found, expected) in [
            (summary.p50_us, 500.0),
            (summary.p99_us, 990.0),
            (summary.p999_us, 999.0),
            (summary.min_us, 1.0),
        ] {
            assert!((found - expected).abs() <= expected * 0.002, "{found} instead of {expected}");
        }
        assert_eq!(low.counts().map(|(_, count)| count).sum::<u64>(), 1000);
    }

    #[test]
    fn the_percentile_distribution_has_the_format_of_hdrhistogram() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|us| latencies.record(Duration::from_micros(us)));
        let mut text = Vec::new();
        latencies.write_percentiles(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("Value") && lines[1].is_empty(), "{text}");
        let rows = lines[2..].iter().filter(|line| !line.starts_with('#'));
        let fields: Vec<Vec<f64>> =
            rows.map(|line| line.split_whitespace().map(|field| field.parse().unwrap()).collect()).collect();
        let median = fields.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!((495.0..505.0).contains(&median[0]) && (490.0..510.0).contains(&median[2]), "{median:?}");
        let last = fields.last().unwrap();
        assert!((last[1] - 1.0).abs() < 1e-9 && (last[2] - 1000.0).abs() < 1e-9, "{last:?}");
        assert!(text.contains("Total count    =         1000]"), "{text}");
    }

    #[test]
    fn absurdly_long_and_empty_are_no_failures() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.summary(), LatencySummary::default());
        latencies.record(Duration::MAX);
        latencies.record(Duration::ZERO);
        assert_eq!(latencies.count(), 2);
        assert!(latencies.percentile(100.0) >= LATENCY_MAX);
    }
}

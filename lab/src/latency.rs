//! Defines the histograms that count latencies.
//!
//! Invariants
//! - A latency is stored with three significant digits, from a nanosecond to `LATENCY_MAX`. Longer
//!   latencies count as `LATENCY_MAX`.
//! - Recording a latency neither fails nor allocates.

use std::time::Duration;

use az::SaturatingAs;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::limits::{LATENCY_DIGITS, LATENCY_MAX};

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
    fn absurdly_long_and_empty_are_no_failures() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.summary(), LatencySummary::default());
        latencies.record(Duration::MAX);
        latencies.record(Duration::ZERO);
        assert_eq!(latencies.count(), 2);
        assert!(latencies.percentile(100.0) >= LATENCY_MAX);
    }
}

//! Counts what a node has done since it started.
//!
//! Invariants
//! - All counters are in one plain structure that is always compiled; every thread of the node adds
//!   to it.
//! - Counters never decrease. The exceptions, which are gauges, are `connections_open`,
//!   `connections_with_boxes` and `memory_used_bytes`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rackscan_format::message::NodeCounters;

macro_rules! metrics {
    ($($name:ident),* $(,)?) => {
        /// See [`NodeCounters`], whose fields these become.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Metrics {
            /// The present counters. Each is exact; the values may be from slightly different
            /// points in time.
            pub(crate) fn counters(&self) -> NodeCounters {
                NodeCounters { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

metrics!(
    fetch_requests,
    process_requests,
    append_requests,
    raw_requests,
    other_requests,
    refused_requests,
    bounced_requests,
    pages_read,
    disk_read_bytes,
    disk_written_bytes,
    wire_written_bytes,
    wire_read_bytes,
    rows_scanned,
    rows_selected,
    scan_cpu_us,
    connections_accepted,
    connections_refused,
    connections_open,
    connections_with_boxes,
    inbox_messages,
    posted_messages,
    inbox_moves,
    inbox_stalls,
    memory_used_bytes,
    memory_peak_bytes,
);

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

/// Takes from a number that other code has added to.
pub(crate) fn take(number: &AtomicU64, count: u64) {
    let before = number.fetch_sub(count, Relaxed);
    debug_assert!(before >= count, "{count} taken from {before}");
}

impl Metrics {
    /// Counts memory of the budget as used.
    pub(crate) fn memory_taken(&self, bytes: u64) {
        let used = self.memory_used_bytes.fetch_add(bytes, Relaxed) + bytes;
        self.memory_peak_bytes.fetch_max(used, Relaxed);
    }

    /// Counts memory of the budget as free.
    pub(crate) fn memory_returned(&self, bytes: u64) {
        self.memory_used_bytes.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_memory_outlives_its_use() {
        let metrics = Metrics::default();
        metrics.memory_taken(10);
        metrics.memory_taken(20);
        metrics.memory_returned(25);
        metrics.memory_taken(1);
        let counters = metrics.counters();
        assert_eq!((counters.memory_used_bytes, counters.memory_peak_bytes), (6, 30));
    }
}

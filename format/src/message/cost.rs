//! Defines how a node reports the resources that a request used, and how busy the node is.
//!
//! Invariants
//! - Times are measured by the node and do not include the wire.

use serde::{Deserialize, Serialize};

/// The resources that serving one request used at the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Pages read from devices.
    pub pages_read: u32,
    /// Pages taken from the node's cache.
    pub pages_cached: u32,
    /// Pages of the program's columns that zone maps excluded.
    pub pages_skipped_by_zone: u32,
    /// Pages of the output's columns that were not read because no row in them was selected.
    pub pages_skipped_by_selection: u32,
    /// Bytes read from devices.
    pub disk_bytes: u64,
    /// Bytes that a scan read from the node's cache.
    pub cached_bytes: u64,
    /// Rows that the filter was evaluated on.
    pub rows_scanned: u64,
    /// Rows that passed the filter.
    pub rows_selected: u64,
    /// Rows that were tested with the program's key filters.
    pub keys_tested: u64,
    /// Rows that passed the key filters.
    pub keys_kept: u64,
    /// Microseconds from the request's arrival to its reply.
    pub elapsed_us: u64,
    /// Microseconds of CPU time the scan took.
    pub cpu_us: u64,
    /// Microseconds the request waited for a scan worker.
    pub queued_us: u64,
    /// Microseconds a scan worker was busy with the request, reading and computing.
    pub worker_us: u64,
    /// For a fetch: microseconds from the request's arrival until its pages were read. For a scan:
    /// microseconds that its worker waited for pages.
    pub read_us: u64,
}

/// The load of the node; it is part of every reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadReport {
    /// Scans waiting for a worker.
    pub scans_queued: u16,
    /// Scans running.
    pub scans_running: u16,
    /// Scan workers.
    pub scan_workers: u16,
    /// Reads in flight at the devices.
    pub reads_in_flight: u16,
    /// Thousandths of a processor that the node may use: all processors that it may run on, or less
    /// if a quota limits it. 0 if unknown.
    pub cpu_milli: u32,
}

//! What did a request take at its node, and how busy is the node?
//!
//! Invariants
//! - Times that a node measures are its own: they say nothing of the wire.

use serde::{Deserialize, Serialize};

/// What serving one request took at the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Pages read from devices.
    pub pages_read: u32,
    /// Pages taken from the node's cache.
    pub pages_cached: u32,
    /// Pages of the program's columns that zone maps made unnecessary.
    pub pages_skipped_by_zone: u32,
    /// Pages of its output's columns in which no row was selected.
    pub pages_skipped_by_selection: u32,
    /// Bytes read from devices.
    pub disk_bytes: u64,
    /// Bytes that a scan took from the node's cache.
    pub cached_bytes: u64,
    /// Rows that reached the filter.
    pub rows_scanned: u64,
    /// Rows that passed it.
    pub rows_selected: u64,
    /// Rows that the program's key filters were asked about.
    pub keys_tested: u64,
    /// Rows that they kept.
    pub keys_kept: u64,
    /// Microseconds from the request's arrival to its reply.
    pub elapsed_us: u64,
    /// Microseconds of CPU time the scan took.
    pub cpu_us: u64,
    /// Microseconds the request waited for a scan worker.
    pub queued_us: u64,
    /// Microseconds a scan worker was busy with it, reading and computing.
    pub worker_us: u64,
    /// Microseconds until its pages were read: of a fetch since it arrived, of a scan the time its
    /// worker waited for them.
    pub read_us: u64,
}

/// How busy the node is; it travels with every reply.
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
    /// Thousandths of a processor that the node may use: all that it may run on, less where a quota
    /// holds it back. 0 if that is not known.
    pub cpu_milli: u32,
}

//! Defines the options of an engine.

use crate::{
    limits::{
        FLUSH_ROWS_DEFAULT, NARROWED_ROWS_MIN_DEFAULT, PARTITION_PAGE_BYTES_MAX, SEGMENTS_IN_FLIGHT_DEFAULT,
    },
    memory::SpillOptions,
    rules::AggregatePushdown,
};
use rackscan_planner::{Calibration, Policy};

/// How an engine runs queries.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The policy of placements, unless a query has its own.
    pub policy: Policy,
    /// Partitions of a plan: the threads that work on one query.
    pub threads: usize,
    /// The constants of the cost model.
    pub calibration: Calibration,
    /// Bytes that operators above the scans (joins, aggregations, sorts) of all queries may hold
    /// together; unlimited if `None`.
    pub memory_bytes: Option<usize>,
    /// Where they write what does not fit; the system's temporary folder if `None`.
    pub spill: Option<SpillOptions>,
    /// When aggregations run inside scans.
    pub aggregates: AggregatePushdown,
    /// Segments of one partition in flight at a time, from 1 to 64.
    pub segments_in_flight: usize,
    /// Bytes of stored pages that the segments of one partition hold together, at most 256 MiB. A
    /// segment needs at least one block of each column, whatever its share.
    pub partition_page_bytes: usize,
    /// Rows of the smallest table whose scan is narrowed by the keys of joins above it.
    pub narrowed_rows_min: u64,
    /// Changed rows of a table from which on it is flushed in the background; never if `None`.
    pub flush_rows_min: Option<u64>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            policy: Policy::Auto,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            calibration: Calibration::default(),
            memory_bytes: None,
            spill: None,
            aggregates: AggregatePushdown::default(),
            segments_in_flight: SEGMENTS_IN_FLIGHT_DEFAULT,
            partition_page_bytes: PARTITION_PAGE_BYTES_MAX,
            narrowed_rows_min: NARROWED_ROWS_MIN_DEFAULT,
            flush_rows_min: Some(FLUSH_ROWS_DEFAULT),
        }
    }
}

//! Defines the report of a query's scans.
//!
//! A [`ScanReport`] is what EXPLAIN shows of one scan: always the plan, and the figures (counts,
//! bytes and times) once the scan has run.

mod text;

use crate::memory::MemoryFigures;
use rackscan_format::message::BounceReason;
use rackscan_planner::{Placement, Policy, Reason};
use serde::Serialize;
use std::{collections::BTreeMap, fmt, time::Duration};

pub(crate) use text::{Bytes, plural};

/// How many bounces are kept with their reasons; more are only counted.
pub(crate) const BOUNCES_KEPT_MAX: usize = 16;

/// A segment that a node bounced: it answered with raw pages, and the engine scanned them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bounce {
    /// The node.
    pub node: u16,
    /// The segment.
    pub segment: u32,
    /// The reason.
    pub reason: BounceReason,
    /// The node's message.
    pub text: String,
}

/// A node that was lost while the scan ran, and bypassed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeLoss {
    /// The node.
    pub node: u16,
    /// The first error by which it was lost.
    pub text: String,
}

/// Why a segment got its placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ScanReason {
    /// The policy forces it.
    #[serde(rename = "forced")]
    Forced,
    /// It was expected to end soonest there.
    #[serde(rename = "price")]
    Price,
    /// The placement had not been measured, and its price was near the best one.
    #[serde(rename = "explored")]
    Explored,
    /// A local scan was expected to end soonest, but the same pages were read past the node's cache
    /// before. This time they were fetched through the cache, so that it keeps them.
    #[serde(rename = "to fill the cache")]
    Kept,
    /// The node's queue of scans was full.
    #[serde(rename = "bounced: queue")]
    BouncedQueue,
    /// The node's memory was full.
    #[serde(rename = "bounced: memory")]
    BouncedMemory,
    /// The node was lost, and its devices were read without it.
    #[serde(rename = "node lost")]
    NodeLost,
    /// The node was lost, and its pages were reconstructed from other nodes.
    #[serde(rename = "degraded")]
    Degraded,
    /// The scan took more CPU time than the node gives to one scan.
    #[serde(rename = "bounced: CPU quota")]
    BouncedCpuQuota,
    /// The scan took more memory than the node gives to one scan.
    #[serde(rename = "bounced: memory quota")]
    BouncedMemoryQuota,
}

impl From<Reason> for ScanReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Forced => Self::Forced,
            Reason::Price => Self::Price,
            Reason::Explored => Self::Explored,
            Reason::Kept => Self::Kept,
            Reason::NodeLost => Self::NodeLost,
        }
    }
}

impl From<BounceReason> for ScanReason {
    fn from(reason: BounceReason) -> Self {
        match reason {
            BounceReason::Queue => Self::BouncedQueue,
            BounceReason::Memory => Self::BouncedMemory,
            BounceReason::CpuQuota => Self::BouncedCpuQuota,
            BounceReason::MemoryQuota => Self::BouncedMemoryQuota,
        }
    }
}

impl fmt::Display for ScanReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forced => Reason::Forced.fmt(f),
            Self::Price => Reason::Price.fmt(f),
            Self::Explored => Reason::Explored.fmt(f),
            Self::Kept => Reason::Kept.fmt(f),
            Self::NodeLost => Reason::NodeLost.fmt(f),
            Self::Degraded => f.write_str("degraded"),
            Self::BouncedQueue => write!(f, "bounced: {}", BounceReason::Queue),
            Self::BouncedMemory => write!(f, "bounced: {}", BounceReason::Memory),
            Self::BouncedCpuQuota => write!(f, "bounced: {}", BounceReason::CpuQuota),
            Self::BouncedMemoryQuota => write!(f, "bounced: {}", BounceReason::MemoryQuota),
        }
    }
}

/// How many segments got a placement for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonCount {
    /// The placement.
    pub placement: Placement,
    /// The reason.
    pub reason: ScanReason,
    /// How many segments.
    pub segments: u64,
}

/// Numbers of segments by placement, planned or actual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SegmentCounts {
    /// By the engine, from devices it reads itself.
    pub local: u64,
    /// By the engine, from pages that nodes sent.
    pub remote_fetch: u64,
    /// By nodes.
    pub remote_process: u64,
}

impl SegmentCounts {
    /// The number under one placement.
    #[must_use]
    pub fn of(&self, placement: Placement) -> u64 {
        match placement {
            Placement::Local => self.local,
            Placement::RemoteFetch => self.remote_fetch,
            Placement::RemoteProcess => self.remote_process,
        }
    }

    pub(crate) fn of_mut(&mut self, placement: Placement) -> &mut u64 {
        match placement {
            Placement::Local => &mut self.local,
            Placement::RemoteFetch => &mut self.remote_fetch,
            Placement::RemoteProcess => &mut self.remote_process,
        }
    }

    /// All segments.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.local + self.remote_fetch + self.remote_process
    }

    fn add(&mut self, other: &Self) {
        self.local += other.local;
        self.remote_fetch += other.remote_fetch;
        self.remote_process += other.remote_process;
    }
}

/// What scanning took, in the engine and in nodes. Times are sums over segments, so they may exceed
/// the query's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Requests that nodes answered.
    pub requests: u64,
    /// How often a segment waited for a node's memory or answer: by requests, and by reads of the
    /// node's cache, which send no request.
    pub round_trips: u64,
    /// Pages that were used.
    pub pages_read: u64,
    /// Pages of the scan's columns that zone maps made unnecessary.
    pub pages_skipped_by_zone: u64,
    /// Payload pages in which no row was selected.
    pub pages_skipped_by_selection: u64,
    /// Bytes read from devices.
    pub disk_bytes: u64,
    /// Bytes that crossed the wire as pages or rows.
    pub wire_bytes: u64,
    /// Pages of lost nodes that were reconstructed.
    pub pages_reconstructed: u64,
    /// Bytes that other nodes sent for them; included in `wire_bytes`.
    pub survivor_bytes: u64,
    /// Bytes of the values that were returned.
    pub useful_bytes: u64,
    /// Rows that reached the filter.
    pub rows_scanned: u64,
    /// Rows that passed it.
    pub rows_selected: u64,
    /// Rows that were tested by key filters.
    pub keys_tested: u64,
    /// Rows that the key filters kept.
    pub keys_kept: u64,
    /// Rows (or groups) that were returned.
    pub rows_out: u64,
    /// Microseconds in which the engine's threads scanned, or decoded what nodes had scanned.
    pub engine_scan_us: u64,
    /// Microseconds of CPU time of the same work.
    pub engine_cpu_us: u64,
    /// Microseconds that segments waited for devices or nodes, up to the decoding of rows that
    /// nodes sent. Overlaps with scans of other segments.
    pub wait_us: u64,
    /// Microseconds from the arrival of requests at nodes to their replies.
    pub node_elapsed_us: u64,
    /// Microseconds of CPU time of scans in nodes.
    pub node_cpu_us: u64,
    /// Microseconds that requests waited for a node's scan worker.
    pub node_queued_us: u64,
}

impl Figures {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.round_trips += other.round_trips;
        self.pages_read += other.pages_read;
        self.pages_skipped_by_zone += other.pages_skipped_by_zone;
        self.pages_skipped_by_selection += other.pages_skipped_by_selection;
        self.disk_bytes += other.disk_bytes;
        self.wire_bytes += other.wire_bytes;
        self.pages_reconstructed += other.pages_reconstructed;
        self.survivor_bytes += other.survivor_bytes;
        self.useful_bytes += other.useful_bytes;
        self.rows_scanned += other.rows_scanned;
        self.rows_selected += other.rows_selected;
        self.keys_tested += other.keys_tested;
        self.keys_kept += other.keys_kept;
        self.rows_out += other.rows_out;
        self.engine_scan_us += other.engine_scan_us;
        self.engine_cpu_us += other.engine_cpu_us;
        self.wait_us += other.wait_us;
        self.node_elapsed_us += other.node_elapsed_us;
        self.node_cpu_us += other.node_cpu_us;
        self.node_queued_us += other.node_queued_us;
    }
}

/// The scan of changed rows that are in no segment yet: by the engine, from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangedRows {
    /// Runs of changed rows.
    pub runs: u64,
    /// Rows that reached the filter.
    pub rows_scanned: u64,
    /// Rows that passed it.
    pub rows_selected: u64,
}

impl ChangedRows {
    pub(crate) fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.rows_scanned += other.rows_scanned;
        self.rows_selected += other.rows_selected;
    }
}

/// The figures of a scan that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScanFigures {
    /// Segments by the placement in which their scan ended; a bounced one counts as fetched.
    pub segments: SegmentCounts,
    /// The same, by reason.
    pub reasons: Vec<ReasonCount>,
    /// Nodes that took part.
    pub nodes: u64,
    /// Segments that were bounced.
    pub bounced: u64,
    /// The first bounces.
    pub bounces: Vec<Bounce>,
    /// Nodes that were lost and bypassed, each once.
    pub losses: Vec<NodeLoss>,
    /// Segments that were not scanned, because an index says that they have no wanted row.
    pub passed_over: u64,
    /// The scan of changed rows, which is not included in the other figures.
    pub changed: ChangedRows,
    /// The scan of the index that said which rows are wanted, not included in the other figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_lookup: Option<Figures>,
    /// The total of all placements.
    #[serde(flatten)]
    pub work: Figures,
    /// The same by placement. What a node did for a segment that it then bounced counts as done by
    /// the node.
    pub by_placement: BTreeMap<Placement, Figures>,
}

impl ScanFigures {
    /// The work of all placements and of the index lookup.
    #[must_use]
    pub fn all_work(&self) -> Figures {
        let mut all = self.work.clone();
        self.index_lookup.iter().for_each(|lookup| all.add(lookup));
        all
    }

    /// Adds another scan's figures. `nodes` becomes the larger of the two, because the nodes
    /// themselves are not kept.
    pub(crate) fn add(&mut self, other: &Self) {
        self.segments.add(&other.segments);
        for more in &other.reasons {
            let same =
                |count: &&mut ReasonCount| (count.placement, count.reason) == (more.placement, more.reason);
            match self.reasons.iter_mut().find(same) {
                Some(count) => count.segments += more.segments,
                None => self.reasons.push(more.clone()),
            }
        }
        self.nodes = self.nodes.max(other.nodes);
        self.bounced += other.bounced;
        self.passed_over += other.passed_over;
        let room = BOUNCES_KEPT_MAX.saturating_sub(self.bounces.len());
        self.bounces.extend(other.bounces.iter().take(room).cloned());
        for loss in &other.losses {
            if self.losses.iter().all(|known| known.node != loss.node) {
                self.losses.push(loss.clone());
            }
        }
        self.changed.add(&other.changed);
        if let Some(lookup) = &other.index_lookup {
            self.index_lookup.get_or_insert_default().add(lookup);
        }
        self.work.add(&other.work);
        for (placement, figures) in &other.by_placement {
            self.by_placement.entry(*placement).or_default().add(figures);
        }
    }
}

/// What a placement would cost for a whole scan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementPrice {
    /// Milliseconds of all its segments, one after the other, by the price model alone; `None` when
    /// the placement cannot apply.
    pub milliseconds: Option<f64>,
    /// The same, corrected by what the scanned segments taught and by the measured speed of nodes;
    /// `None` before that.
    pub corrected_milliseconds: Option<f64>,
    /// Why it cannot apply.
    pub why_not: Option<String>,
}

/// What the zone maps of one conjunct rule out on their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConjunctZones {
    /// Rows in blocks that they rule out.
    pub rows_ruled_out: u64,
    /// Pages of the scan's columns that only have such blocks, so that they need not be read.
    pub pages_ruled_out: u64,
}

/// A conjunct that an operator above added while the query ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuntimeFilterConjunct {
    /// The conjunct as SQL.
    pub sql: String,
    /// What zone maps rule out by it alone.
    pub zone_maps: ConjunctZones,
}

/// How operators above a scan narrowed it: by keys of joins and thresholds of a top-k.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeFilterReport {
    /// The operators and the columns that they filter.
    pub sources: Vec<String>,
    /// The conjuncts that were added, in their last state.
    pub conjuncts: Vec<RuntimeFilterConjunct>,
    /// Segments whose scan began after some conjuncts were known.
    pub segments: u64,
    /// Whether key filters were given up because they kept most rows.
    pub keys_given_up: bool,
}

/// Why a conjunct runs above the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RemainingReason {
    /// Scans cannot compute it.
    #[serde(rename = "expression not supported")]
    ExpressionNotSupported,
}

impl fmt::Display for RemainingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExpressionNotSupported => f.write_str("expression not supported"),
        }
    }
}

/// A part of a filter that runs directly above a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemainingConjunct {
    /// The conjunct as SQL.
    pub sql: String,
    /// Why it does not run inside the scan.
    pub reason: RemainingReason,
}

/// One scan of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScanReport {
    /// The table.
    pub table: String,
    /// The columns that may be read.
    pub columns: Vec<String>,
    /// The conjuncts that run inside the scan, as SQL.
    pub pushed_filter: Vec<String>,
    /// The conjuncts that run directly above it.
    pub remaining_filter: Vec<RemainingConjunct>,
    /// The aggregates that run inside the scan, as SQL.
    pub pushed_aggregates: Vec<String>,
    /// The keys of the pushed aggregation.
    pub pushed_keys: Vec<String>,
    /// The policy of placements.
    pub policy: Policy,
    /// The number of segments.
    pub segments: u64,
    /// Partitions of the scan: how many of its segments the engine may scan at once.
    pub partitions: u64,
    /// Rows of the table.
    pub rows: u64,
    /// Rows of its segments that are withheld, because they were updated or deleted.
    pub rows_withheld: u64,
    /// Changed rows that are in no segment yet, because they were inserted or updated.
    pub rows_beside: u64,
    /// Rows that are expected to pass the filter.
    pub estimated_rows: u64,
    /// Segments by the placement that the price model alone would choose on an idle cluster.
    pub planned: SegmentCounts,
    /// What zone maps rule out by each pushed conjunct alone, in the order of `pushed_filter`.
    pub zone_maps: Vec<ConjunctZones>,
    /// How operators above narrowed the scan while the query ran.
    pub runtime_filter: RuntimeFilterReport,
    /// The price of the whole scan under each placement.
    pub prices: BTreeMap<Placement, PlacementPrice>,
    /// What happened, once the scan ran.
    pub actual: Option<ScanFigures>,
}

/// The figures of one query.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueryReport {
    /// The total of all its scans.
    pub total: ScanFigures,
    /// Time from the statement to the plan.
    pub planning: Duration,
    /// Time from the statement to the last row.
    pub elapsed: Duration,
    /// The memory outside of the scans.
    pub memory: MemoryFigures,
}

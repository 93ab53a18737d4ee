//! Chooses the placements of the segments of a scan one by one, each with estimates that are
//! corrected by measurements of the segments before it.
//!
//! ```text
//! ScanProfile --corrected--> prices --> Decision --> the segment runs --> Observed --observe--> Feedback, NodeSpeed
//! ```
//!
//! The first segments follow the price model. Each segment that ends reports how many rows it
//! scanned and returned, how many bytes moved, and the CPU time of engine and node. These
//! measurements correct the next profiles. [`Feedback`] contains the corrections for one scan and
//! ends with it. [`NodeSpeed`] contains those for a node; later scans use it, too, until it is out
//! of date.
//!
//! Invariants
//! - Feedback never changes a forced placement.
//! - At most one in [`EXPLORE_EVERY`] segments of a scan is placed against the prices, to explore.
//!   The scan has not tried this placement at the node yet, and the node's speed under it was not
//!   measured in the last minute (`KNOWN_FOR_S` in `ratio`), by any scan. The placement costs at
//!   most [`EXPLORE_PRICE_MAX`] times the best price, and would be the fastest if its wire took no
//!   time. A segment with fewer than [`EXPLORE_LEFT_MIN`] segments after it does not explore.
//! - Pages that scans read repeatedly from devices, and that a node's cache may store, are read
//!   once through this cache if that costs at most [`KEEP_PRICE_MAX`] times as much as a local
//!   read. Otherwise they would never enter the cache, because local reads bypass it.

use crate::{
    calibration::Calibration,
    cost::{Price, Prices, WhyNot, bottleneck_s, demand, device_seconds, price, scan_seconds},
    decision::{Decision, PlacementError, place},
    demand::Demand,
    placement::{Placement, Policy, Reason},
    profile::{ClusterProfile, Measured, NodeProfile, PageDemand, ScanProfile, SpeedFactors},
    ratio::{PassingRatio, Ratio},
};
use az::SaturatingAs;
use rackscan_fabric::Wire;
use rackscan_format::ids::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One in this many segments may explore another placement.
pub const EXPLORE_EVERY: u32 = 16;
/// A placement is explored only if it costs at most this many times the best price.
pub const EXPLORE_PRICE_MAX: f64 = 3.0;
/// A segment explores only if at least this many segments of its node come after it and can use
/// what is learned.
pub const EXPLORE_LEFT_MIN: usize = 8;
/// Pages are read through a node's cache, to be kept there, only if that costs at most this many
/// times as much as a local read.
pub const KEEP_PRICE_MAX: f64 = 2.0;
/// A segment leaves the placement that is fastest for the whole scan only if it ends this many
/// times sooner elsewhere: a change costs more than the model knows.
const SWITCH_GAIN_MIN: f64 = 1.5;
/// Transfers of fewer bytes measure round trips rather than the wire.
const WIRE_BYTES_MIN: u64 = 128 << 10;
/// A wire is taken to be at most this many times faster than calibrated: where the devices took
/// nearly all of a wait, the remainder says nothing about the wire.
const WIRE_FASTER_MAX: f64 = 10.0;
/// [`WIRE_BYTES_MIN`] for the rows of a scan in a node, which also wait for processors until the
/// engine receives them.
const WIRE_ROW_BYTES_MIN: u64 = 256 << 10;
/// Reads of fewer bytes measure the latency of a read rather than the devices' bandwidth.
const DISK_BYTES_MIN: u64 = 128 << 10;
/// Fewer rows than this do not tell the average bytes of a row.
const ROWS_MIN: u64 = 64;
/// Shorter work measures the clock rather than the CPU.
const CPU_S_MIN: f64 = 20e-6;

/// What the scan of one segment did, under any placement. What a placement does not tell is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Rows that reached the filter.
    pub rows_scanned: u64,
    /// Rows that passed it.
    pub rows_selected: u64,
    /// Rows (or groups) that the scan returned.
    pub rows_out: u64,
    /// Pages that the scan used.
    pub pages: PageDemand,
    /// Bytes of those pages that were read from devices.
    pub disk_bytes: u64,
    /// Bytes that crossed the wire.
    pub wire_bytes: u64,
    /// CPU seconds that a thread of the engine scanned.
    pub engine_s: f64,
    /// CPU seconds that a scan worker computed.
    pub node_cpu_s: f64,
    /// Wall seconds of the same work, without the waits for devices.
    pub node_s: f64,
    /// Seconds of the devices: the wait for them, divided by the number of segments that waited at
    /// the same time.
    pub device_s: f64,
    /// Seconds from the request for pages to their arrival; of a scan in the node, from its end to
    /// the arrival of the rows.
    pub wait_s: f64,
    /// The part of `wait_s` until the node had read the pages.
    pub read_s: f64,
    /// How many segments were in such a wait at the same time, this one included.
    pub waiting: u32,
}

/// How fast a node, its devices and its wire are, as measured recently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSpeed {
    cpu: PassingRatio,
    wire: PassingRatio,
    device: PassingRatio,
    from_disk: PassingRatio,
}

impl NodeSpeed {
    /// Learns from a segment of the node that was scanned under `placement` and ended at `now_s`,
    /// in seconds of the clock that [`NodeSpeed::factors`] uses. Each ratio has its own age, as
    /// each placement measures only some of them.
    #[expect(clippy::cast_precision_loss, reason = "estimates: 53 bits are plenty")]
    pub fn observe(
        &mut self,
        placement: Placement,
        observed: &Observed,
        wire: Wire,
        calibration: &Calibration,
        now_s: f64,
    ) {
        if observed.node_cpu_s >= CPU_S_MIN {
            self.cpu.observe(observed.node_s, observed.node_cpu_s, now_s);
        }
        if observed.disk_bytes >= DISK_BYTES_MIN && observed.device_s > 0.0 {
            // Bytes from a cache took no device time.
            let from_disk = observed.disk_bytes as f64 / observed.pages.bytes.max(1) as f64;
            let expected_s = device_seconds(observed.pages, calibration) * from_disk.min(1.0);
            self.device.observe(observed.device_s, expected_s, now_s);
        }
        let wire_bytes_min = match placement {
            Placement::RemoteProcess => WIRE_ROW_BYTES_MIN,
            Placement::Local | Placement::RemoteFetch => WIRE_BYTES_MIN,
        };
        if observed.wire_bytes >= wire_bytes_min && observed.wait_s > 0.0 {
            let costs = calibration.wire(wire);
            let expected_s = observed.wire_bytes as f64 / costs.bytes_per_s.value;
            // Two upper estimates of the transfer time; the smaller one counts. With several
            // fetches at a time each has its share of the wait; a single fetch waited for the
            // reads and the round trip, too.
            let shared_s = observed.wait_s / f64::from(observed.waiting.max(1));
            let rest_s = observed.wait_s - observed.read_s - costs.round_trip_us.value * 1e-6;
            let found_s = match wire {
                // Shared memory is as fast as calibrated: a longer wait is one for a processor.
                Wire::Shm | Wire::Sim => expected_s,
                Wire::Tcp | Wire::Verbs => shared_s.min(rest_s).max(expected_s / WIRE_FASTER_MAX),
            };
            self.wire.observe(found_s, expected_s, now_s);
        }
        if placement != Placement::Local {
            self.from_disk.observe(observed.disk_bytes as f64, observed.pages.bytes as f64, now_s);
        }
    }

    /// The factors at `now_s`.
    #[must_use]
    pub fn factors(&self, now_s: f64) -> SpeedFactors {
        SpeedFactors {
            fetch_known: self.wire.is_known(now_s),
            process_known: self.cpu.is_known(now_s),
            cpu: self.cpu.factor(now_s),
            // A CPU quota that stops the node delays all transfers from it at once, and nothing
            // makes a wire look faster than it is. So the minimum counts.
            wire: self.wire.least(now_s),
            device: self.device.factor(now_s),
            from_disk: self.from_disk.as_measured(now_s),
        }
    }
}

/// What was learned from the ended segments of one scan, and which placements were tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    selectivity: Ratio,
    output_rows: Ratio,
    row_bytes: Ratio,
    page_bytes: Ratio,
    engine_cpu: Ratio,
    node_cpu: Ratio,
    from_disk: Ratio,
    fetched_over_wire: Ratio,
    tried: BTreeSet<(NodeId, Placement)>,
    decided: u32,
    explored: u32,
}

impl Feedback {
    /// Decides where the next segment is scanned. `left` is how many segments of its node come
    /// after it.
    ///
    /// # Errors
    /// As [`place`].
    pub fn decide(
        &mut self,
        profile: &ScanProfile,
        cluster: &ClusterProfile,
        calibration: &Calibration,
        policy: Policy,
        left: usize,
    ) -> Result<Decision, PlacementError> {
        let profile = self.corrected(profile);
        let mut decision = place(&profile, cluster, calibration, policy)?;
        if decision.reason == Reason::Price
            && let Some(node) = cluster.nodes.get(&profile.node)
        {
            let candidates = Candidates::new(&decision, &profile, node, cluster, calibration, left);
            let explored = self.worth_exploring(&candidates, node, left);
            self.explored += u32::from(explored.is_some());
            let best = candidates.best().unwrap_or(decision.placement);
            let (placement, reason) = match explored {
                Some(explored) => (explored, Reason::Explored),
                None if best == Placement::Local && profile.repeated && candidates.is_caching_cheap() => {
                    (Placement::RemoteFetch, Reason::Kept)
                }
                None => (best, Reason::Price),
            };
            let demand = demand(&profile, node, calibration, placement);
            decision = Decision { placement, reason, demand, ..decision };
        }
        self.tried.insert((profile.node, decision.placement));
        self.decided = self.decided.saturating_add(1);
        Ok(decision)
    }

    /// A placement that was neither tried nor measured and may turn out to be the best, if it is
    /// time to explore.
    fn worth_exploring(&self, candidates: &Candidates, node: &NodeProfile, left: usize) -> Option<Placement> {
        let due = u64::from(self.decided) >= (u64::from(self.explored) + 1) * u64::from(EXPLORE_EVERY);
        if !due || left < EXPLORE_LEFT_MIN {
            return None;
        }
        let options = candidates.options.as_slice();
        let best_s = options.iter().map(|option| option.price_s).fold(f64::INFINITY, f64::min);
        let unknown = |option: &&Candidate| {
            !self.tried.contains(&(candidates.node, option.placement))
                && !node.speed.is_known(option.placement)
        };
        let bottleneck_s = options.iter().map(|option| option.bottleneck_s).fold(f64::INFINITY, f64::min);
        let near = options.iter().filter(|option| option.price_s <= EXPLORE_PRICE_MAX * best_s);
        // What the resources other than the wire take is known. Where they alone are too slow, no
        // wire is fast enough.
        let promising = near.filter(|option| option.without_wire_s < bottleneck_s);
        promising.filter(unknown).map(|option| option.placement).next()
    }

    /// Learns from a segment that ended. `expected` is its profile before [`Self::corrected`],
    /// `observed` what it did.
    #[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
    pub fn observe(
        &mut self,
        expected: &ScanProfile,
        placement: Placement,
        observed: &Observed,
        calibration: &Calibration,
    ) {
        let (scanned, selected) = (observed.rows_scanned as f64, observed.rows_selected as f64);
        let rows_out = observed.rows_out as f64;
        if observed.rows_scanned > 0 {
            // One row more on both sides keeps the ratio finite where few rows are expected or
            // selected.
            self.selectivity.observe(selected + 1.0, scanned * expected.selectivity + 1.0);
            self.output_rows.observe(rows_out + 1.0, expected.output_rows + 1.0);
            self.page_bytes.observe(observed.pages.bytes as f64, expected.pages().bytes as f64);
        }
        let actual = ScanProfile {
            rows: observed.rows_scanned,
            filter: observed.pages,
            payload: PageDemand::default(),
            selectivity: if scanned > 0.0 { selected / scanned } else { 0.0 },
            output_rows: rows_out,
            measured: Measured::default(),
            ..*expected
        };
        match placement {
            Placement::Local | Placement::RemoteFetch => {
                let expected_s = scan_seconds(&actual, &calibration.engine);
                if expected_s >= CPU_S_MIN {
                    self.engine_cpu.observe(observed.engine_s, expected_s);
                }
            }
            Placement::RemoteProcess => {
                let expected_s = scan_seconds(&actual, &calibration.node);
                if expected_s >= CPU_S_MIN {
                    self.node_cpu.observe(observed.node_cpu_s, expected_s);
                }
                if observed.rows_out >= ROWS_MIN {
                    self.row_bytes.observe(observed.wire_bytes as f64, rows_out * expected.output_row_bytes);
                }
            }
        }
        let page_bytes = observed.pages.bytes as f64;
        if placement != Placement::Local {
            self.from_disk.observe(observed.disk_bytes as f64, page_bytes);
        }
        if placement == Placement::RemoteFetch {
            self.fetched_over_wire.observe(observed.wire_bytes as f64, page_bytes);
        }
    }

    /// Corrects a profile by what the segments so far did. Until one of engine and node has scanned
    /// a segment, the CPU ratio of the other is used for it: both run the same program.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
    pub fn corrected(&self, profile: &ScanProfile) -> ScanProfile {
        let pages = self.page_bytes.factor();
        let selectivity = (profile.selectivity * self.selectivity.factor()).min(1.0);
        let or = |own: &Ratio, other: &Ratio| if own.is_known() { own.factor() } else { other.factor() };
        ScanProfile {
            filter: scaled(profile.filter, pages),
            payload: scaled(profile.payload, pages),
            selectivity,
            output_rows: (profile.output_rows * self.output_rows.factor()).min(profile.rows as f64),
            output_row_bytes: profile.output_row_bytes * self.row_bytes.factor(),
            measured: Measured {
                engine_cpu: or(&self.engine_cpu, &self.node_cpu),
                node_cpu: or(&self.node_cpu, &self.engine_cpu),
                from_disk: self.from_disk.is_known().then(|| self.from_disk.factor()),
                fetched_over_wire: self.fetched_over_wire.factor(),
            },
            ..*profile
        }
    }

    /// How many segments were placed to explore.
    #[must_use]
    pub fn explored(&self) -> u32 {
        self.explored
    }
}

/// A placement that applies to a segment.
struct Candidate {
    placement: Placement,
    /// Seconds until the segment would end, including the work in flight before it.
    price_s: f64,
    /// Seconds it would take on an idle cluster.
    alone_s: f64,
    /// Seconds per segment if all segments had this placement.
    bottleneck_s: f64,
    /// The same if the wire took no time.
    without_wire_s: f64,
    /// Whether the node's speed under this placement was measured recently, or no node is needed.
    is_known: bool,
}

/// The placements that apply to a segment, and what the choice among them depends on.
struct Candidates {
    node: NodeId,
    options: Vec<Candidate>,
    /// Seconds until the remaining segments of the node are done, in the best placement.
    left_s: f64,
    /// For how many seconds a CPU quota may stop the node.
    held_s: f64,
}

impl Candidates {
    fn new(
        decision: &Decision,
        profile: &ScanProfile,
        node: &NodeProfile,
        cluster: &ClusterProfile,
        calibration: &Calibration,
        left: usize,
    ) -> Self {
        let idle = cluster.idle();
        let alone = price(profile, &idle, calibration);
        let options = decision.prices.applicable().map(|(placement, price_s)| {
            let demand = demand(profile, node, calibration, placement);
            let alone_s = alone.of(placement).clone();
            Candidate {
                placement,
                price_s,
                is_known: placement == Placement::Local || node.speed.is_known(placement),
                alone_s: alone_s.expect("a placement that applies also applies on the idle cluster"),
                bottleneck_s: bottleneck_s(&demand, node, cluster),
                without_wire_s: bottleneck_s(&Demand { wire_s: 0.0, ..demand }, node, cluster),
            }
        });
        let options: Vec<Candidate> = options.collect();
        let bottleneck_s = options.iter().map(|option| option.bottleneck_s).fold(f64::INFINITY, f64::min);
        // The clamp is harmless: with that many segments left, every change is early enough.
        let left = f64::from(left.saturating_as::<u32>());
        Self { node: profile.node, options, left_s: left * bottleneck_s, held_s: node.held_s() }
    }

    /// Whether a fetch through the node's cache, which then keeps the pages, costs little more than
    /// a local read.
    fn is_caching_cheap(&self) -> bool {
        let alone_s = |placement| {
            let options = self.options.iter().filter(|option| option.placement == placement);
            options.map(|option| option.alone_s).fold(f64::INFINITY, f64::min)
        };
        alone_s(Placement::RemoteFetch) <= KEEP_PRICE_MAX * alone_s(Placement::Local)
    }

    /// The placement in which the segment ends soonest. By default that is the one in which the
    /// whole scan would end soonest. Another one must be measured, end the segment
    /// [`SWITCH_GAIN_MIN`] times sooner, and end well before the rest of the scan.
    fn best(&self) -> Option<Placement> {
        let fastest = self.options.iter().min_by(|left, right| {
            left.bottleneck_s.total_cmp(&right.bottleneck_s).then(left.alone_s.total_cmp(&right.alone_s))
        })?;
        let worth = self.options.iter().filter(|option| {
            option.placement == fastest.placement
                || option.is_known
                    && option.price_s * SWITCH_GAIN_MIN < fastest.price_s
                    && 4.0 * (option.alone_s + self.held_s) <= self.left_s
        });
        let first = worth.min_by(|left, right| left.price_s.total_cmp(&right.price_s))?;
        Some(first.placement)
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate; `as` saturates"
)]
fn scaled(demand: PageDemand, factor: f64) -> PageDemand {
    PageDemand {
        pages: (f64::from(demand.pages) * factor).round() as u32,
        bytes: (demand.bytes as f64 * factor).round() as u64,
    }
}

/// Plans a whole scan before it begins: places one segment after the other, with all those before
/// it counted as work in flight.
///
/// # Errors
/// As [`place`].
pub fn plan<'p>(
    profiles: impl IntoIterator<Item = &'p ScanProfile>,
    cluster: &ClusterProfile,
    calibration: &Calibration,
    policy: Policy,
) -> Result<Vec<Decision>, PlacementError> {
    let (mut cluster, mut feedback) = (cluster.clone(), Feedback::default());
    let profiles: Vec<&ScanProfile> = profiles.into_iter().collect();
    let mut left = BTreeMap::new();
    profiles.iter().for_each(|profile| *left.entry(profile.node).or_insert(0_usize) += 1);
    let decisions = profiles.into_iter().map(|profile| {
        let left = left.entry(profile.node).or_default();
        *left = left.checked_sub(1).expect("each profile was counted");
        let decision = feedback.decide(profile, &cluster, calibration, policy, *left)?;
        cluster.add(profile.node, &decision.demand);
        Ok(decision)
    });
    decisions.collect()
}

/// The sum of all segments' prices under each placement, each priced for itself on the given
/// cluster.
pub fn price_all<'p>(
    profiles: impl IntoIterator<Item = &'p ScanProfile>,
    cluster: &ClusterProfile,
    calibration: &Calibration,
) -> Prices {
    let mut total = Prices { local: Ok(0.0), remote_fetch: Ok(0.0), remote_process: Ok(0.0) };
    let add = |sum: &mut Price, more: Price| match (sum.as_mut(), more) {
        (Ok(sum), Ok(more)) => *sum += more,
        (Ok(_), why_not) => *sum = why_not,
        (Err(_), _) => {}
    };
    for profile in profiles {
        let prices = price(profile, cluster, calibration);
        // Segments of a lost node that are reconstructed from other nodes are fetched under every
        // placement.
        let is_degraded = cluster.nodes.get(&profile.node).is_some_and(|node| profile.is_degraded(node));
        let instead = prices.remote_fetch.clone();
        let or_instead = |price: Price| match price {
            Err(WhyNot::NodeLost) if is_degraded => instead.clone(),
            price => price,
        };
        add(&mut total.local, or_instead(prices.local));
        add(&mut total.remote_fetch, or_instead(prices.remote_fetch));
        add(&mut total.remote_process, or_instead(prices.remote_process));
    }
    total
}

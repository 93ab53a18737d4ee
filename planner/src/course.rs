//! What has a scan taught so far, and where does its next segment go?
//!
//! ```text
//! ScanProfile --corrected--> prices --> Decision --> the segment runs --> Observed --observe--> Course, Pace
//! ```
//!
//! The first segments follow the price model. Whatever ends says how many rows passed, how many came out, which bytes moved
//! and who computed for how long; the next profile is corrected by it. What is learned of a scan ends with it (`Course`),
//! what is learned of a node serves the next scan too, for a while (`Pace`).
//!
//! Invariants
//! - A forced policy is never corrected, only watched.
//! - Of a scan's segments at most one in [`EXPLORE_EVERY`] goes elsewhere than the prices say, to a placement not yet tried
//!   that costs at most [`EXPLORE_PRICE_MAX`] times as much, and none of the last [`EXPLORE_LEFT_MIN`].

use crate::{
    calibration::Calibration,
    cost::{Price, Prices, demand, device_seconds, price, scan_seconds},
    placement::{Decision, Placement, PlacementError, Policy, Reason, place},
    profile::{ClusterProfile, Measured, PaceFactors, PageDemand, ScanProfile, Wire},
    ratio::Ratio,
};
use rackscan_format::ids::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One segment in so many may be explored with.
pub const EXPLORE_EVERY: u32 = 16;
/// A placement is explored only at less than this many times the best price.
pub const EXPLORE_PRICE_MAX: f64 = 3.0;
/// What is learned must serve at least so many segments.
pub const EXPLORE_LEFT_MIN: usize = 16;
/// Transfers of fewer bytes say more about round trips than about the wire.
const WIRE_BYTES_MIN: u64 = 128 << 10;
/// Results of fewer rows say nothing about the bytes of a row.
const ROWS_MIN: u64 = 64;
/// Shorter work says more about the clock.
const CPU_S_MIN: f64 = 20e-6;

/// What the scan of one segment did, whoever did it. What is not known of a placement is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Rows that reached the filter.
    pub rows_scanned: u64,
    /// Rows that passed it.
    pub rows_selected: u64,
    /// Rows (or groups) that came out.
    pub rows_out: u64,
    /// Pages that were looked into.
    pub pages: PageDemand,
    /// Bytes of them that came from devices.
    pub disk_bytes: u64,
    /// Bytes that crossed the wire.
    pub wire_bytes: u64,
    /// Seconds that a thread of the engine scanned.
    pub engine_s: f64,
    /// CPU seconds that a scan worker computed.
    pub node_cpu_s: f64,
    /// Seconds that it took for them, waiting for devices not counted.
    pub node_s: f64,
    /// Seconds of the devices: of the wait, the share of one among those who waited at the same time.
    pub device_s: f64,
    /// Seconds of the wire, shared in the same way; where a node reads and sends by turns, of both.
    pub wire_s: f64,
}

/// How fast a node and the way to it have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    cpu: Ratio,
    wire: Ratio,
    device: Ratio,
}

impl Pace {
    /// Learns from a segment of the node.
    pub fn observe(&mut self, observed: &Observed, wire: Wire, calibration: &Calibration) {
        if observed.node_cpu_s >= CPU_S_MIN {
            self.cpu.observe(observed.node_s, observed.node_cpu_s);
        }
        let mut device_s = 0.0;
        if observed.disk_bytes > 0 {
            let expected_s = device_seconds(observed.pages, calibration);
            if observed.device_s > 0.0 {
                self.device.observe(observed.device_s, expected_s);
            }
            device_s = expected_s * self.device.factor();
        }
        if observed.wire_bytes >= WIRE_BYTES_MIN && observed.wire_s > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
            let expected_s = observed.wire_bytes as f64 / calibration.wire(wire).bytes_per_s.value;
            // What the devices explain says of the wire only that it is not slower.
            if observed.wire_s > 1.25 * device_s || observed.wire_s < expected_s * self.wire.factor() {
                self.wire.observe(observed.wire_s, expected_s);
            }
        }
    }

    /// The factors, `seconds` after the last measurement.
    #[must_use]
    pub fn factors_after(&self, seconds: f64) -> PaceFactors {
        PaceFactors {
            cpu: self.cpu.factor_after(seconds),
            wire: self.wire.factor_after(seconds),
            device: self.device.factor_after(seconds),
        }
    }
}

/// What one scan has taught while it runs, and what was tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    selectivity: Ratio,
    output_rows: Ratio,
    row_bytes: Ratio,
    page_bytes: Ratio,
    engine_cpu: Ratio,
    node_cpu: Ratio,
    fetched_from_disk: Ratio,
    fetched_over_wire: Ratio,
    tried: BTreeSet<(NodeId, Placement)>,
    decided: u32,
    explored: u32,
}

impl Course {
    /// Decides where the next segment is scanned; `left` come after it.
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
        if policy == Policy::Auto
            && let Some(placement) = self.worth_trying(profile.node, &decision, left)
            && let Some(node) = cluster.nodes.get(&profile.node)
        {
            let demand = demand(&profile, node, calibration, placement);
            decision = Decision { placement, reason: Reason::Explored, demand, ..decision };
            self.explored += 1;
        }
        self.tried.insert((profile.node, decision.placement));
        self.decided = self.decided.saturating_add(1);
        Ok(decision)
    }

    /// A placement of which nothing is known and whose price is near enough.
    fn worth_trying(&self, node: NodeId, decision: &Decision, left: usize) -> Option<Placement> {
        let due = u64::from(self.decided) >= (u64::from(self.explored) + 1) * u64::from(EXPLORE_EVERY);
        if !due || left < EXPLORE_LEFT_MIN {
            return None;
        }
        let best = *decision.prices.of(decision.placement).as_ref().ok()?;
        let untried = |placement: &Placement| !self.tried.contains(&(node, *placement));
        let near = decision.prices.applicable().filter(|(_, price)| *price <= EXPLORE_PRICE_MAX * best);
        near.map(|(placement, _)| placement).find(untried)
    }

    /// Learns from a segment that ended: what was expected of it, uncorrected, and what it did.
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
            // One row more on both sides: none where few were expected is no factor of infinity.
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
        if placement == Placement::RemoteFetch {
            let wanted = observed.pages.bytes as f64;
            self.fetched_from_disk.observe(observed.disk_bytes as f64, wanted);
            self.fetched_over_wire.observe(observed.wire_bytes as f64, wanted);
        }
    }

    /// A profile as the segments so far suggest it. What one side took to compute is believed of the other, too, until
    /// that has computed: the program is the same.
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
                fetched_from_disk: self.fetched_from_disk.factor(),
                fetched_over_wire: self.fetched_over_wire.factor(),
            },
            ..*profile
        }
    }

    /// How many segments were explored with.
    #[must_use]
    pub fn explored(&self) -> u32 {
        self.explored
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

/// Plans a whole scan: each segment, in turn, where it would end first if all those before were still to be done.
///
/// # Errors
/// As [`place`].
pub fn plan<'p>(
    profiles: impl IntoIterator<Item = &'p ScanProfile>,
    cluster: &ClusterProfile,
    calibration: &Calibration,
    policy: Policy,
) -> Result<Vec<Decision>, PlacementError> {
    let mut cluster = cluster.clone();
    let decisions = profiles.into_iter().map(|profile| {
        let decision = place(profile, &cluster, calibration, policy)?;
        cluster.add(profile.node, &decision.demand);
        Ok(decision)
    });
    decisions.collect()
}

/// What all segments would take under each placement, each by itself, on an idle cluster.
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
        add(&mut total.local, prices.local);
        add(&mut total.remote_fetch, prices.remote_fetch);
        add(&mut total.remote_process, prices.remote_process);
    }
    total
}

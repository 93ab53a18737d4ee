//! What has a scan taught so far, and where does its next segment go?
//!
//! ```text
//! ScanProfile --corrected--> prices --> Decision --> the segment runs --> Observed --observe--> Feedback, Pace
//! ```
//!
//! The first segments follow the price model. Whatever ends says how many rows passed, how many
//! came out, which bytes moved and who computed for how long; the next profile is corrected by it.
//! What is learned of a scan ends with it (`Feedback`), what is learned of a node serves the next
//! scan too, for a while (`Pace`).
//!
//! Invariants
//! - A forced policy is never corrected, only watched.
//! - Of a scan's segments at most one in [`EXPLORE_EVERY`] goes elsewhere than the prices say, to a
//!   placement not yet tried that costs at most [`EXPLORE_PRICE_MAX`] times as much and would be
//!   faster if its wire took nothing, and none of the last [`EXPLORE_LEFT_MIN`].
//! - Pages that would be read past a cache that may keep them, and were before, go through it once,
//!   at most at [`KEEP_PRICE_MAX`] times the price: what is read again and again must not stay the
//!   slowest way.

use crate::{
    calibration::Calibration,
    cost::{Demand, Price, Prices, WhyNot, demand, device_seconds, pace_s, price, scan_seconds},
    placement::{Decision, Placement, PlacementError, Policy, Reason, place},
    profile::{ClusterProfile, Measured, NodeProfile, PaceFactors, PageDemand, ScanProfile, Wire},
    ratio::{PassingRatio, Ratio},
};
use rackscan_format::ids::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One segment in so many may be explored with.
pub const EXPLORE_EVERY: u32 = 16;
/// A placement is explored only at less than this many times the best price.
pub const EXPLORE_PRICE_MAX: f64 = 3.0;
/// What is learned must serve at least so many segments.
pub const EXPLORE_LEFT_MIN: usize = 8;
/// A node reads pages that it is to keep only at less than this many times the price of reading
/// them past it.
pub const KEEP_PRICE_MAX: f64 = 2.0;
/// How many times earlier a segment must end elsewhere than where most go: to change sides costs
/// more than is known.
const ASIDE_GAIN_MIN: f64 = 1.5;
/// Transfers of fewer bytes say more about round trips than about the wire.
const WIRE_BYTES_MIN: u64 = 128 << 10;
/// No wire is believed to be so many times faster than calibrated: where the devices took nearly
/// all of a wait, what is left says nothing.
const WIRE_FASTER_MAX: f64 = 10.0;
/// Of rows from a scan in a node: until the engine hears of them they wait for processors, too.
const WIRE_ROW_BYTES_MIN: u64 = 256 << 10;
/// Reads of fewer bytes say more about a single read than about the devices.
const DISK_BYTES_MIN: u64 = 128 << 10;
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
    /// CPU seconds that a thread of the engine scanned.
    pub engine_s: f64,
    /// CPU seconds that a scan worker computed.
    pub node_cpu_s: f64,
    /// Seconds that it took for them, waiting for devices not counted.
    pub node_s: f64,
    /// Seconds of the devices: of the wait, the share of one among those who waited at the same
    /// time.
    pub device_s: f64,
    /// Seconds from asking for pages to having them; of a scan in the node, from its end to having
    /// the rows.
    pub wait_s: f64,
    /// Of them, seconds until the node had read the pages.
    pub read_s: f64,
    /// How many waited so at the same time, this one included.
    pub waiting: u32,
}

/// How fast a node and the way to it have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    cpu: PassingRatio,
    wire: PassingRatio,
    device: PassingRatio,
    from_disk: PassingRatio,
}

impl Pace {
    /// Learns from a segment of the node that was scanned so and ended at `now_s`: seconds of the
    /// clock by which [`Pace::factors`] is asked. Each ratio has its own age: who scans in the node
    /// learns nothing of the way for its pages.
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
            // What came out of a cache took no device.
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
            // Who waits alone waits for each in turn; many wait for the slowest, each for its
            // share.
            let shared_s = observed.wait_s / f64::from(observed.waiting.max(1));
            let rest_s = observed.wait_s - observed.read_s - costs.round_trip_us.value * 1e-6;
            let found_s = match wire {
                // Memory of one machine is as fast as calibrated; who waits longer waits for a
                // processor.
                Wire::Shm => expected_s,
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
    pub fn factors(&self, now_s: f64) -> PaceFactors {
        PaceFactors {
            fetch_known: self.wire.is_known(now_s),
            process_known: self.cpu.is_known(now_s),
            cpu: self.cpu.factor(now_s),
            // A node that a quota stops delays all that is on its way from there at once; nothing
            // makes a wire look faster than it is.
            wire: self.wire.least(now_s),
            device: self.device.factor(now_s),
            from_disk: self.from_disk.as_measured(now_s),
        }
    }
}

/// What one scan has taught while it runs, and what was tried.
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
    /// Decides where the next segment is scanned; `left` of its node come after it.
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
            let choice = Choice::new(&decision, &profile, node, cluster, calibration, left);
            let explored = self.worth_trying(&choice, node, left);
            self.explored += u32::from(explored.is_some());
            let best = choice.best().unwrap_or(decision.placement);
            let (placement, reason) = match explored {
                Some(explored) => (explored, Reason::Explored),
                None if best == Placement::Local && profile.repeated && choice.may_be_kept() => {
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

    /// A placement of which nothing is known and whose price is near enough.
    fn worth_trying(&self, choice: &Choice, node: &NodeProfile, left: usize) -> Option<Placement> {
        let due = u64::from(self.decided) >= (u64::from(self.explored) + 1) * u64::from(EXPLORE_EVERY);
        if !due || left < EXPLORE_LEFT_MIN {
            return None;
        }
        let best_s = choice.options.iter().map(|option| option.price_s).fold(f64::INFINITY, f64::min);
        let unknown = |option: &&Way| {
            !self.tried.contains(&(choice.node, option.placement)) && !node.pace.is_known(option.placement)
        };
        let pace_s = choice.options.iter().map(|option| option.pace_s).fold(f64::INFINITY, f64::min);
        let near = choice.options.iter().filter(|option| option.price_s <= EXPLORE_PRICE_MAX * best_s);
        // What its other resources take is known: where they alone are slower, no wire makes it
        // worth trying.
        let hopeful = near.filter(|option| option.hope_s < pace_s);
        hopeful.filter(unknown).map(|option| option.placement).next()
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
        let wanted = observed.pages.bytes as f64;
        if placement != Placement::Local {
            self.from_disk.observe(observed.disk_bytes as f64, wanted);
        }
        if placement == Placement::RemoteFetch {
            self.fetched_over_wire.observe(observed.wire_bytes as f64, wanted);
        }
    }

    /// A profile as the segments so far suggest it. What one side took to compute is believed of
    /// the other, too, until that has computed: the program is the same.
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

    /// How many segments were explored with.
    #[must_use]
    pub fn explored(&self) -> u32 {
        self.explored
    }
}

/// One of the placements that apply to a segment.
struct Way {
    placement: Placement,
    /// Seconds until it would end, behind everything that is ahead of it.
    price_s: f64,
    /// Seconds it would take by itself.
    alone_s: f64,
    /// Seconds a segment if all were placed so.
    pace_s: f64,
    /// The same if the wire took nothing.
    hope_s: f64,
    /// Whether it was measured lately how fast its node is in it, or it needs no node.
    is_known: bool,
}

/// Which of the placements that apply, when so much is left?
struct Choice {
    node: NodeId,
    options: Vec<Way>,
    left_s: f64,
    /// Seconds that the node may do nothing because what it may compute is used up.
    held_s: f64,
}

impl Choice {
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
            Way {
                placement,
                price_s,
                is_known: placement == Placement::Local || node.pace.is_known(placement),
                alone_s: alone.of(placement).clone().unwrap_or(f64::INFINITY),
                pace_s: pace_s(&demand, node, cluster),
                hope_s: pace_s(&Demand { wire_s: 0.0, ..demand }, node, cluster),
            }
        });
        let options: Vec<Way> = options.collect();
        let pace_s = options.iter().map(|option| option.pace_s).fold(f64::INFINITY, f64::min);
        let left = f64::from(u32::try_from(left).unwrap_or(u32::MAX));
        Self { node: profile.node, options, left_s: left * pace_s, held_s: node.held_s() }
    }

    /// Whether it costs little to have the node read the segment's pages, and keep them for the
    /// next time.
    fn may_be_kept(&self) -> bool {
        let alone_s = |placement| {
            let options = self.options.iter().filter(|option| option.placement == placement);
            options.map(|option| option.alone_s).fold(f64::INFINITY, f64::min)
        };
        alone_s(Placement::RemoteFetch) <= KEEP_PRICE_MAX * alone_s(Placement::Local)
    }

    /// The placement in which the segment ends first. Another than the one in which all together
    /// would must be known, worth it, and not what everybody waits for at the end.
    fn best(&self) -> Option<Placement> {
        let steady = self.options.iter().min_by(|left, right| {
            left.pace_s.total_cmp(&right.pace_s).then(left.alone_s.total_cmp(&right.alone_s))
        })?;
        let worth = self.options.iter().filter(|option| {
            option.placement == steady.placement
                || option.is_known
                    && option.price_s * ASIDE_GAIN_MIN < steady.price_s
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

/// Plans a whole scan: each segment, in turn, where it would end first if all those before were
/// still to be done.
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
        *left = left.saturating_sub(1);
        let decision = feedback.decide(profile, &cluster, calibration, policy, *left)?;
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
        // What others make up for is fetched from them, wherever the rest is scanned.
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

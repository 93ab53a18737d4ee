//! Runs one turn: counts how many stripes one client writes to the nodes in a given time.
//!
//! Invariants
//! - A turn ends when every stripe that was begun has ended, so that its counts are complete.
//! - A node's counts are the differences of its counters before and after the turn. They are read
//!   when the node has counted every stripe.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rackscan_client::{DirectLine, DirectOptions};
use rackscan_fabric::{Region, RegionSlice, connect};
use rackscan_format::message::{RelayStatus, RelayedTo};
use rackscan_relay::{Counters, Shape, Stripe, Writer};
use rackscan_stripe::Geometry;

use super::{Case, Plan, Protection, Relays};
use crate::latency::Latencies;

/// How long a node may take to answer, and a stripe to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long nodes may take to update their counters after the last stripe.
const SETTLE: Duration = Duration::from_secs(30);
/// Maximum slots of a ring.
const SLOTS_MAX: usize = 64;

/// Result of a turn.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) data_bytes: u64,
    pub(super) seconds: f64,
    pub(super) latencies: Latencies,
    pub(super) client: Counters,
    /// Counts of each node, by node.
    pub(super) nodes: Vec<RelayStatus>,
}

/// Writes stripes in one way until the time is over.
pub(super) fn turn(
    plan: &Plan<'_>,
    case: &Case,
    way: Protection,
    relays: &Relays,
    region: &Region,
) -> Result<Turn, String> {
    let before = statuses(relays)?;
    let shape = shape(plan, case, way);
    let deadline = Instant::now() + PATIENCE;
    let reach = |address: &rackscan_fabric::Address| connect(address, &relays.key, deadline);
    let mut writer =
        Writer::open(shape, relays.members.clone(), reach, deadline).map_err(|error| error.to_string())?;
    let written = Writing::new(plan, case, region)?.run(&mut writer)?;
    let client = writer.counters();
    drop(writer);
    let Written { stripes, seconds, latencies } = written;
    let nodes = settled(relays, &before, stripes)?;
    let cells =
        Geometry::with_parity(case.nodes, case.parity).map_err(|error| error.to_string())?.data().len();
    let data_bytes = stripes * (cells * plan.cell_bytes) as u64;
    Ok(Turn { data_bytes, seconds, latencies, client, nodes })
}

/// Shape of the session of a turn.
pub(super) fn shape(plan: &Plan<'_>, case: &Case, way: Protection) -> Shape {
    Shape {
        parity: case.parity,
        task: way.way().into(),
        cell_bytes_max: plan.cell_bytes as u64,
        slice_bytes: case.slice_bytes,
        lanes: plan.lanes,
        slots: slots(plan, case),
    }
}

/// Number of slices that a ring holds.
pub(super) fn slots(plan: &Plan<'_>, case: &Case) -> usize {
    (plan.ring_bytes / case.slice_bytes.max(1)).clamp(2, SLOTS_MAX)
}

/// Stripes and bytes that a turn has written.
struct Written {
    stripes: u64,
    seconds: f64,
    latencies: Latencies,
}

/// Writes stripes one after the other, as many at a time as there are lanes.
struct Writing<'w> {
    plan: &'w Plan<'w>,
    what: Vec<Vec<u8>>,
    /// The data of each lane.
    data: Vec<Vec<RegionSlice>>,
    /// By stripe: its start, and the lane whose data it has.
    begun: BTreeMap<u64, (Instant, usize)>,
    free: Vec<usize>,
    latencies: Latencies,
}

impl<'w> Writing<'w> {
    fn new(plan: &'w Plan<'w>, case: &Case, region: &Region) -> Result<Self, String> {
        let to = if case.on_disk { RelayedTo::Scratch } else { RelayedTo::Memory };
        let what = to.encode().map_err(|error| error.to_string())?;
        let geometry = Geometry::with_parity(case.nodes, case.parity).map_err(|error| error.to_string())?;
        let cells = geometry.data().len();
        let cell = |number: usize| region.slice(number * plan.cell_bytes, plan.cell_bytes);
        let of_lane =
            |lane: usize| (0..cells).map(|at| cell(lane * cells + at)).collect::<Result<Vec<_>, _>>();
        let data = (0..plan.lanes).map(of_lane).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            plan,
            what: vec![what; case.nodes],
            data: data.map_err(|error| error.to_string())?,
            begun: BTreeMap::new(),
            free: (0..plan.lanes).collect(),
            latencies: Latencies::default(),
        })
    }

    fn run(mut self, writer: &mut Writer) -> Result<Written, String> {
        let start = Instant::now();
        let mut stripes = 0;
        while start.elapsed() < self.plan.duration || stripes == 0 {
            let Some(lane) = self.free.pop() else {
                self.wait(writer)?;
                continue;
            };
            let stripe = Stripe {
                number: stripes,
                cell_bytes: self.plan.cell_bytes as u64,
                what: &self.what,
                data: &self.data[lane],
            };
            self.begun.insert(stripes, (Instant::now(), lane));
            writer.write(&stripe).map_err(|error| error.to_string())?;
            stripes += 1;
        }
        while !self.begun.is_empty() {
            self.wait(writer)?;
        }
        Ok(Written { stripes, seconds: start.elapsed().as_secs_f64(), latencies: self.latencies })
    }

    /// Waits until a stripe ends.
    fn wait(&mut self, writer: &mut Writer) -> Result<(), String> {
        let ended = writer.wait(Instant::now() + PATIENCE);
        let ended = ended.ok_or_else(|| format!("no stripe has ended within {} s", PATIENCE.as_secs()))?;
        ended.outcome.map_err(|end| end.to_string())?;
        if let Some((began, lane)) = self.begun.remove(&ended.number) {
            self.latencies.record(began.elapsed());
            self.free.push(lane);
        }
        Ok(())
    }
}

/// Counters of the relays that are written to, by node.
fn statuses(relays: &Relays) -> Result<Vec<RelayStatus>, String> {
    let of = |(member, node): (&rackscan_relay::Member, &rackscan_client::NodeEndpoint)| {
        let address =
            node.addresses.first().ok_or_else(|| format!("node {} has no address to listen at", node.id))?;
        let options = DirectOptions {
            node: node.id,
            address: address.clone(),
            key: relays.key.clone(),
            memory_bytes: 4096,
            patience: PATIENCE,
        };
        let line =
            DirectLine::connect(&options, Instant::now() + PATIENCE).map_err(|error| error.to_string())?;
        let ours = member.address.to_string();
        let found = line.status().relays.iter().find(|relay| relay.address == ours);
        found.cloned().ok_or_else(|| format!("node {} has no relay at {ours}", node.id))
    };
    relays.members.iter().zip(&relays.nodes).map(of).collect()
}

/// Counts of each node since `before`, once all have counted these stripes.
fn settled(relays: &Relays, before: &[RelayStatus], stripes: u64) -> Result<Vec<RelayStatus>, String> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let after = statuses(relays)?;
        let done: Vec<RelayStatus> =
            after.iter().zip(before).map(|(after, before)| since(after, before)).collect();
        // Columns without cells are included: every node has a part of every stripe, even if it
        // stores nothing. The session must also have ended on all nodes, because the next one needs
        // its memory.
        let over = after.iter().zip(before).all(|(after, before)| after.sessions <= before.sessions);
        if over && done.iter().all(|node| node.stripes == stripes) {
            return Ok(done);
        }
        if Instant::now() >= deadline {
            let counts: Vec<u64> = done.iter().map(|node| node.stripes).collect();
            let waited = SETTLE.as_secs();
            return Err(format!(
                "nodes have counted {counts:?} stripes {waited} s after the last one, expected {stripes} each"
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn since(after: &RelayStatus, before: &RelayStatus) -> RelayStatus {
    RelayStatus {
        address: after.address.clone(),
        sessions: after.sessions,
        stripes: after.stripes.saturating_sub(before.stripes),
        sent_bytes: after.sent_bytes.saturating_sub(before.sent_bytes),
        received_bytes: after.received_bytes.saturating_sub(before.received_bytes),
        xored_bytes: after.xored_bytes.saturating_sub(before.xored_bytes),
        kept_bytes: after.kept_bytes.saturating_sub(before.kept_bytes),
        stored_bytes: after.stored_bytes.saturating_sub(before.stored_bytes),
        waits_for_credit: after.waits_for_credit.saturating_sub(before.waits_for_credit),
        written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
        messages: after.messages.saturating_sub(before.messages),
    }
}

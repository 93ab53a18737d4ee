//! Scrubs a protected table: verifies all of its bytes, and repairs the corrupt ones.
//!
//! ```text
//! maps       every node must have the map of the table; a node without it gets it from another one
//! places     each node reads and verifies its own places (pages and parity cells), and reports only the corrupt ones
//! repair     corrupt places are reconstructed from other nodes (`repair`) and sent to their node, which verifies them
//! equations  if requested: this process reads all cells and checks that those of each parity equation XOR to zero
//! ```
//!
//! Invariants
//! - A place that cannot be reconstructed is reported, and nothing is written there.
//! - A parity equation that does not hold is only reported. Pages carry their identity, so it must
//!   be the parity cell that belongs to other data, although the map names it for this table.

use std::{collections::BTreeSet, sync::Arc};

use az::SaturatingAs;
use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use rackscan_format::{
    ids::{NodeId, TableId},
    message::Verify,
};
use rackscan_stripe::xor;

use super::{
    corrupt::Corrupt,
    known_maps::KnownMap,
    lost_bytes::{LostBytes, lost_bytes},
    pace::{Pace, RepairListener},
    repair::Repair,
    stripe_rebuild::{StripeRebuild, is_worth_relaying},
    stripes::{CellRange, Stripes},
};
use crate::{
    ClientError, Cluster,
    limits::{CELLS_READ_MAX, FINDINGS_MAX, REPAIR_BATCHES_MAX, VERIFY_REQUEST_BYTES},
};

/// Options of a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Whether corrupt places are repaired, or only reported.
    pub repair: bool,
    /// Whether all cells are read here and checked against the equations.
    pub equations: bool,
    /// Maximum bytes per second that devices read for it, over all nodes; unlimited if `None`.
    pub bytes_per_second: Option<u64>,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self { repair: true, equations: false, bytes_per_second: None }
    }
}

/// Findings: their number, and the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Number of findings.
    pub count: u64,
    /// Descriptions of the first ones, at most [`FINDINGS_MAX`].
    pub first: Vec<String>,
}

impl Findings {
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < FINDINGS_MAX {
            self.first.push(what());
        }
    }
}

/// The result of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Pages and parity cells that nodes verified.
    pub places: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// The corrupt ones of these.
    pub corrupt: Findings,
    /// Number of corrupt ones that were repaired.
    pub repaired: u64,
    /// Bytes of the repaired ones.
    pub repaired_bytes: u64,
    /// Bytes that were read at other nodes for these.
    pub survivor_bytes: u64,
    /// Places that cannot be reconstructed: node, device, range, and why.
    pub unreadable: Findings,
    /// Equations that do not hold, with the parity that is wrong.
    pub unequal: Findings,
    /// Stripes whose equations were not checked, because a part of them is unavailable or corrupt.
    pub stripes_skipped: u64,
    /// Nodes that had no whole map; with `repair` they have one now.
    pub maps_lost: Vec<NodeId>,
    /// Nodes that have nothing of the table: see [`Cluster::rebuild`].
    pub lost: Vec<NodeId>,
    /// Nodes that could not be asked.
    pub unavailable: Vec<NodeId>,
}

impl ScrubReport {
    /// Whether everything is available and was right or was repaired.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.unreadable.count == 0
            && self.unequal.count == 0
            && self.corrupt.count == self.repaired
            && self.lost.is_empty()
            && self.unavailable.is_empty()
            && self.stripes_skipped == 0
    }

    /// Whether nothing was wrong at all.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_whole() && self.corrupt.count == 0 && self.maps_lost.is_empty()
    }
}

/// The nodes of a set that are scrubbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScrubScope {
    All,
    /// One node, by its position.
    One(usize),
    /// One node that has only just adopted its part, so that all of it is corrupt.
    Adopted(usize),
}

/// The result of verifying a node's places.
enum NodeFindings {
    Corrupt(Vec<u64>),
    /// It has nothing of the set.
    Lost,
    Unavailable,
}

impl Cluster {
    /// Verifies a protected table on all of its nodes, and repairs corrupt places if the options
    /// say so. `listener` receives the progress.
    ///
    /// # Errors
    /// A table without stripe sets, or a node that refuses for another reason than corruption or
    /// loss.
    pub async fn scrub(
        &self,
        table: TableId,
        options: &ScrubOptions,
        listener: RepairListener<'_>,
    ) -> Result<ScrubReport, ClientError> {
        let map = self.map_to_repair(table).await?;
        let pace = Pace::new(options.bytes_per_second, listener);
        let mut report = ScrubReport::default();
        self.check_maps(&map, options.repair, &mut report).await?;
        for stripes in &map.sets {
            let nodes = 0..stripes.set.streams.len();
            let bytes: u64 = nodes.map(|node| stripes.held_bytes(node)).sum();
            pace.expect(if options.equations { 2 * bytes } else { bytes });
        }
        for stripes in &map.sets {
            self.scrub_set((stripes, None), ScrubScope::All, options, &pace, &mut report).await?;
        }
        Ok(report.finished(&pace))
    }

    /// The map of exactly this table version, which must be protected.
    pub(super) async fn map_to_repair(
        &self,
        table: TableId,
    ) -> Result<std::sync::Arc<KnownMap>, ClientError> {
        let map = self.table_map(table).await?.filter(|map| map.definition.id == table);
        map.ok_or_else(|| ClientError::NotProtected {
            table,
            problem: "no node has its map; it is not protected, or it was dropped".to_owned(),
        })
    }

    /// Scrubs one set. With `rebuilding`, the lost cells of one node are rebuilt by relays first.
    pub(super) async fn scrub_set(
        &self,
        (stripes, rebuilding): (&Arc<Stripes>, Option<&StripeRebuild>),
        scope: ScrubScope,
        options: &ScrubOptions,
        pace: &Pace<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), ClientError> {
        let nodes: Vec<usize> = match scope {
            ScrubScope::One(node) | ScrubScope::Adopted(node) => vec![node],
            ScrubScope::All => (0..stripes.set.streams.len()).collect(),
        };
        let looked = match scope {
            ScrubScope::Adopted(node) => {
                pace.corrupt(stripes.places(node));
                vec![Ok(NodeFindings::Corrupt((0..stripes.places(node)).collect()))]
            }
            _ => join_all(nodes.iter().map(|node| self.verify_node(stripes, *node, pace))).await,
        };
        let mut missing: BTreeSet<usize> = self.places_unavailable(stripes).collect();
        let mut found = Vec::new();
        for (node, looked) in nodes.into_iter().zip(looked) {
            let id = stripes.set.streams[node].node;
            match looked? {
                NodeFindings::Corrupt(places) => found.push((node, places)),
                NodeFindings::Lost => {
                    missing.insert(node);
                    once(&mut report.lost, id);
                }
                NodeFindings::Unavailable => {
                    missing.insert(node);
                    once(&mut report.unavailable, id);
                }
            }
        }
        if scope != ScrubScope::All {
            missing.extend(self.places_lost(stripes, &missing).await);
        }
        for range in lost_bytes(stripes, &missing) {
            report.unreadable.add(|| name_of_range(stripes, &range, &missing));
        }
        // Relays need all others.
        let rebuilding = rebuilding.filter(|_| missing.is_empty() && options.repair);
        let mut corrupt = Corrupt::without(missing);
        for (node, places) in &found {
            report.places += stripes.places(*node);
            report.bytes += stripes.held_bytes(*node);
            for place in places {
                corrupt.add(stripes, *node, *place);
                report.corrupt.add(|| name(stripes, *node, *place));
            }
        }
        if options.repair {
            for (node, places) in &mut found {
                if let Some(rebuilding) = rebuilding.filter(|_| is_worth_relaying(stripes, *node, places)) {
                    let back: BTreeSet<u64> =
                        rebuilding.rebuild(stripes, *node, places, pace).await.into_iter().collect();
                    back.iter().for_each(|place| corrupt.remove(stripes, *node, *place));
                    places.retain(|place| !back.contains(place));
                }
            }
            for (node, places) in found.iter().filter(|(_, places)| !places.is_empty()) {
                let repaired = Repair::new(self, stripes, *node, &corrupt, pace).run(places).await?;
                for place in &repaired.places {
                    corrupt.remove(stripes, *node, *place);
                }
                for (place, reason) in &repaired.unreadable {
                    report.unreadable.add(|| format!("{}: {reason}", name(stripes, *node, *place)));
                }
            }
        }
        if options.equations && scope == ScrubScope::All {
            self.check_equations(stripes, &corrupt, pace, report).await?;
        }
        Ok(())
    }

    /// The nodes of a set that say that they have nothing of it. Missing such a node only costs
    /// time: the bytes that it gives are found to be wrong.
    async fn places_lost(&self, stripes: &Stripes, known: &BTreeSet<usize>) -> Vec<usize> {
        let set = stripes.set.id;
        let one = |place: usize| async move {
            let behind_the_last = Verify { set, from: stripes.places(place), bytes_max: 0 };
            let asked = self.verify_places(stripes.set.streams[place].node, behind_the_last).await;
            asked.is_err_and(|error| error.is_not_found()).then_some(place)
        };
        let others = (0..stripes.set.streams.len()).filter(|place| !known.contains(place));
        join_all(others.map(one)).await.into_iter().flatten().collect()
    }

    /// Lets a node verify all of its places. Returns the corrupt ones.
    async fn verify_node(
        &self,
        stripes: &Stripes,
        node: usize,
        pace: &Pace<'_>,
    ) -> Result<NodeFindings, ClientError> {
        let (set, id) = (stripes.set.id, stripes.set.streams[node].node);
        let (mut from, mut corrupt) = (0, Vec::new());
        if stripes.places(node) == 0 {
            return Ok(NodeFindings::Corrupt(corrupt));
        }
        loop {
            // A slow pace is kept by small requests instead of long pauses between large ones.
            let per_request = pace.bytes_at_once(VERIFY_REQUEST_BYTES);
            let wanted = Verify { set, from, bytes_max: per_request };
            pace.take(per_request.min(stripes.held_bytes(node))).await;
            let found = match self.verify_places(id, wanted).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => return Ok(NodeFindings::Lost),
                Err(error) if error.is_node_lost() => return Ok(NodeFindings::Unavailable),
                Err(error) => return Err(error),
            };
            let bytes = |place: &u64| stripes.spot(node, *place).map_or(0, |spot| stripes.bytes_of(spot));
            let corrupt_bytes: u64 = found.corrupt.iter().map(bytes).sum();
            pace.corrupt(found.corrupt.len() as u64);
            pace.done(found.bytes.saturating_sub(corrupt_bytes));
            corrupt.extend(found.corrupt);
            match found.next {
                Some(next) => from = next,
                None => return Ok(NodeFindings::Corrupt(corrupt)),
            }
        }
    }

    /// Checks that all nodes have the map, and gives it to those without it if `repair` is set.
    async fn check_maps(
        &self,
        map: &KnownMap,
        repair: bool,
        report: &mut ScrubReport,
    ) -> Result<(), ClientError> {
        let table = map.definition.id;
        for node in &map.definition.nodes {
            match self.has_map(*node, table).await {
                Ok(true) => {}
                Ok(false) => {
                    report.maps_lost.push(*node);
                    if repair {
                        self.give_map(*node, table).await?;
                    }
                }
                Err(error) if error.is_node_lost() => once(&mut report.unavailable, *node),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads all cells of the stripes that are whole, and checks them against the equations.
    async fn check_equations(
        &self,
        stripes: &Stripes,
        corrupt: &Corrupt,
        pace: &Pace<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), ClientError> {
        let whole: Vec<u64> =
            (0..stripes.set.stripes).filter(|stripe| !corrupt.touches(stripes, *stripe)).collect();
        report.stripes_skipped += stripes.set.stripes - whole.len() as u64;
        let one = |stripe: u64| async move { (stripe, self.unequal(stripes, stripe, pace).await) };
        let mut found = stream::iter(whole).map(one).buffered(REPAIR_BATCHES_MAX);
        while let Some((stripe, outcome)) = found.next().await {
            match outcome {
                Ok(equations) => {
                    for equation in equations {
                        report.unequal.add(|| name_of_equation(stripes, stripe, equation));
                    }
                }
                // A cell that could be read before cannot be read now, so the stripe is not
                // checked.
                Err(error) if error.is_unreadable() => report.stripes_skipped += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The equations of a stripe that do not hold.
    async fn unequal(
        &self,
        stripes: &Stripes,
        stripe: u64,
        pace: &Pace<'_>,
    ) -> Result<Vec<usize>, ClientError> {
        let geometry = stripes.layout.geometry();
        let length = stripes.set.cell_bytes as usize;
        let mut sums = vec![vec![0; length]; geometry.equations().len()];
        let reads: Vec<_> = geometry.cells().collect();
        let read = |cell| async move {
            let range = CellRange { stripe, cell, from: 0, length: stripes.cell_bytes() };
            let Some((node, pieces)) = stripes.pieces(&range) else { return Ok((cell, vec![0; length])) };
            let bytes = pieces.iter().map(|piece| u64::from(piece.extent.length_bytes)).sum();
            pace.take(bytes).await;
            let cell_bytes = self.read_pieces(stripes.set.streams[node].node, &pieces, length).await?;
            pace.done(bytes);
            Ok::<_, ClientError>((cell, cell_bytes))
        };
        let mut cells = stream::iter(reads).map(read).buffer_unordered(CELLS_READ_MAX);
        while let Some((cell, bytes)) = cells.try_next().await? {
            for (equation, sum) in geometry.equations().iter().zip(&mut sums) {
                if equation.cells().any(|known| known == cell) {
                    xor::xor_into(sum, &bytes).expect("both have the length of a cell");
                }
            }
        }
        let wrong = sums.iter().enumerate().filter(|(_, sum)| sum.iter().any(|byte| *byte != 0));
        Ok(wrong.map(|(equation, _)| equation).collect())
    }
}

impl ScrubReport {
    /// The report with the counters of `pace`.
    pub(super) fn finished(self, pace: &Pace<'_>) -> Self {
        let progress = pace.progress();
        Self {
            repaired: progress.repaired,
            repaired_bytes: progress.repaired_bytes,
            survivor_bytes: progress.survivor_bytes,
            ..self
        }
    }
}

fn once(nodes: &mut Vec<NodeId>, node: NodeId) {
    if !nodes.contains(&node) {
        nodes.push(node);
    }
}

/// The description of a place.
fn name(stripes: &Stripes, node: usize, place: u64) -> String {
    let stream = &stripes.set.streams[node];
    let pages = stream.extents().count() as u64;
    // A number beyond usize has no extent: the description names the number then.
    let at = |number: u64| number.saturating_as::<usize>();
    let (what, extent) = match place.checked_sub(pages) {
        None => ("page", stream.extents().nth(at(place))),
        Some(cell) => ("parity", stream.parity.get(at(cell)).map(|cell| cell.extent)),
    };
    let Some(extent) = extent else { return format!("place {place} of node {}", stream.node) };
    format!(
        "{what} at bytes {}..+{} of device {} of node {} (set {})",
        extent.offset_bytes, extent.length_bytes, extent.device, stream.node, stripes.set.id
    )
}

/// The description of lost bytes.
fn name_of_range(stripes: &Stripes, range: &LostBytes, missing: &BTreeSet<usize>) -> String {
    let node = |place: usize| stripes.set.streams.get(place).map_or(NodeId(0), |stream| stream.node);
    let nodes: Vec<String> = missing.iter().map(|place| node(*place).to_string()).collect();
    format!(
        "bytes {}..+{} of device {} of node {} (set {}): nodes {} are gone, and parity {} does not bear that",
        range.offset_bytes,
        range.length_bytes,
        range.device,
        node(range.node),
        stripes.set.id,
        nodes.join(", "),
        stripes.set.protection
    )
}

fn name_of_equation(stripes: &Stripes, stripe: u64, equation: usize) -> String {
    let found = &stripes.layout.geometry().equations()[equation];
    let held = stripes.layout.held(stripe, found.parity);
    let parity = held.map(|held| {
        let pages = stripes.set.streams[held.node].extents().count() as u64;
        name(stripes, held.node, pages + held.index)
    });
    let kind = match found.direction {
        rackscan_stripe::Direction::Horizontal => "row",
        rackscan_stripe::Direction::Diagonal => "diagonal",
    };
    let parity = parity.unwrap_or_default();
    format!("{kind} {} of stripe {stripe} does not hold: {parity} is the parity of other data", found.number)
}

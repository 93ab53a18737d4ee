//! Is all of a protected table what it was, and if not, is it made so again?
//!
//! ```text
//! maps       every node has the map; who has none gets it from another
//! places     each node reads and checks its own (`Request::Verify`); only what is corrupt is said
//! repair     corrupt places from the same ranges of others (`repair`), repaired at their node, which checks them
//! equations  if asked for: all cells are read here, and must XOR to nothing
//! ```
//!
//! Invariants
//! - What does not come back is named, and nothing is put in its place.
//! - An equation that does not hold is only reported: pages say what they are, so it is the parity
//!   that is of something else, and the map says that it should be.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use rackscan_format::{
    ids::{NodeId, TableId},
    message::Verify,
};
use rackscan_stripe::xor;

use super::{
    beyond::{Beyond, beyond},
    corrupt::Corrupt,
    map::KnownMap,
    pace::{Pace, RepairListener},
    repair::Repair,
    stripe_rebuild::{StripeRebuild, is_much},
    stripes::{CellRange, Stripes},
};
use crate::{
    ClientError, Cluster,
    limits::{CELLS_READ_MAX, FINDINGS_MAX, REPAIR_BATCHES_MAX, VERIFY_REQUEST_BYTES},
};

/// What a scrub does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Whether what is corrupt is repaired; else it is only reported.
    pub repair: bool,
    /// Whether all cells are read here and held against the equations.
    pub equations: bool,
    /// How many bytes devices may read for it in a second, over all nodes; as many as they can if
    /// absent.
    pub bytes_per_second: Option<u64>,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self { repair: true, equations: false, bytes_per_second: None }
    }
}

/// Things that were found: how many, and the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// How many there are.
    pub count: u64,
    /// The first of them in words, at most [`FINDINGS_MAX`].
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

/// What a scrub found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Pages and cells of parity that nodes looked at.
    pub places: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that were corrupt.
    pub corrupt: Findings,
    /// Of these, how many are whole again.
    pub repaired: u64,
    /// Their bytes.
    pub repaired_bytes: u64,
    /// Bytes that were read at other nodes for them.
    pub survivor_bytes: u64,
    /// What does not come back: node, device, range, and why.
    pub unreadable: Findings,
    /// Equations that do not hold, with the parity that is wrong.
    pub unequal: Findings,
    /// Stripes whose equations were not looked at, because a part of them is away or corrupt.
    pub stripes_skipped: u64,
    /// Nodes that have no whole map; with `repair` they have one now.
    pub maps_lost: Vec<NodeId>,
    /// Nodes that have nothing of the table: see [`Cluster::rebuild`].
    pub lost: Vec<NodeId>,
    /// Nodes that could not be asked.
    pub away: Vec<NodeId>,
}

impl ScrubReport {
    /// Whether everything is there and was what it should be, or is again.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.unreadable.count == 0
            && self.unequal.count == 0
            && self.corrupt.count == self.repaired
            && self.lost.is_empty()
            && self.away.is_empty()
            && self.stripes_skipped == 0
    }

    /// Whether nothing at all was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_whole() && self.corrupt.count == 0 && self.maps_lost.is_empty()
    }
}

/// At which nodes of a set is looked?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looking {
    All,
    /// At one, by its place.
    One(usize),
    /// At one that has only just taken its part again, so that all of it is corrupt.
    Adopted(usize),
}

/// What a node's places are like.
enum Looked {
    Corrupt(Vec<u64>),
    /// It has nothing of the set.
    Lost,
    Away,
}

impl Cluster {
    /// Checks a protected table on all of its nodes, and repairs what is corrupt if asked to.
    /// `listener` hears how far that is.
    ///
    /// # Errors
    /// A table without stripes, or a node that refuses for another reason than what is looked for
    /// here.
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
            self.scrub_set((stripes, None), Looking::All, options, &pace, &mut report).await?;
        }
        Ok(report.finished(&pace))
    }

    /// The map of a protected table, and of no other.
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

    /// Looks at one set; what one node has lost is brought back by relays, if there are any.
    pub(super) async fn scrub_set(
        &self,
        (stripes, rebuilding): (&Arc<Stripes>, Option<&StripeRebuild>),
        looking: Looking,
        options: &ScrubOptions,
        pace: &Pace<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), ClientError> {
        let nodes: Vec<usize> = match looking {
            Looking::One(node) | Looking::Adopted(node) => vec![node],
            Looking::All => (0..stripes.set.streams.len()).collect(),
        };
        let looked = match looking {
            Looking::Adopted(node) => {
                pace.corrupt(stripes.places(node));
                vec![Ok(Looked::Corrupt((0..stripes.places(node)).collect()))]
            }
            _ => join_all(nodes.iter().map(|node| self.look_at(stripes, *node, pace))).await,
        };
        let mut gone: BTreeSet<usize> = self.places_away(stripes).collect();
        let mut found = Vec::new();
        for (node, looked) in nodes.into_iter().zip(looked) {
            let id = stripes.set.streams[node].node;
            match looked? {
                Looked::Corrupt(places) => found.push((node, places)),
                Looked::Lost => {
                    gone.insert(node);
                    once(&mut report.lost, id);
                }
                Looked::Away => {
                    gone.insert(node);
                    once(&mut report.away, id);
                }
            }
        }
        if looking != Looking::All {
            gone.extend(self.places_lost(stripes, &gone).await);
        }
        for range in beyond(stripes, &gone) {
            report.unreadable.add(|| name_of_range(stripes, &range, &gone));
        }
        // Relays need all others.
        let rebuilding = rebuilding.filter(|_| gone.is_empty() && options.repair);
        let mut corrupt = Corrupt::without(gone);
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
                if let Some(rebuilding) = rebuilding.filter(|_| is_much(stripes, *node, places)) {
                    let back: BTreeSet<u64> =
                        rebuilding.back(stripes, *node, places, pace).await.into_iter().collect();
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
        if options.equations && looking == Looking::All {
            self.check_equations(stripes, &corrupt, pace, report).await?;
        }
        Ok(())
    }

    /// The nodes of a set that say that they have nothing of it. Who is not known as such costs
    /// time, and nothing else: what he gives is not right.
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

    /// Which places of a node are corrupt.
    async fn look_at(&self, stripes: &Stripes, node: usize, pace: &Pace<'_>) -> Result<Looked, ClientError> {
        let (set, id) = (stripes.set.id, stripes.set.streams[node].node);
        let (mut from, mut corrupt) = (0, Vec::new());
        if stripes.places(node) == 0 {
            return Ok(Looked::Corrupt(corrupt));
        }
        loop {
            // A slow pace is kept by small requests, not by long pauses between large ones.
            let per_request = pace.bytes_at_once(VERIFY_REQUEST_BYTES);
            let wanted = Verify { set, from, bytes_max: per_request };
            pace.take(per_request.min(stripes.held_bytes(node))).await;
            let found = match self.verify_places(id, wanted).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => return Ok(Looked::Lost),
                Err(error) if error.is_node_lost() => return Ok(Looked::Away),
                Err(error) => return Err(error),
            };
            let bytes = |place: &u64| stripes.spot(node, *place).map_or(0, |spot| stripes.bytes_of(spot));
            let corrupt_bytes: u64 = found.corrupt.iter().map(bytes).sum();
            pace.corrupt(found.corrupt.len() as u64);
            pace.done(found.bytes.saturating_sub(corrupt_bytes));
            corrupt.extend(found.corrupt);
            match found.next {
                Some(next) => from = next,
                None => return Ok(Looked::Corrupt(corrupt)),
            }
        }
    }

    /// Has nodes without the map take it from others.
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
                Err(error) if error.is_node_lost() => once(&mut report.away, *node),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads all cells of the stripes that are whole, and holds them against the equations.
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
                // What could be read a moment ago cannot be now: nothing is known of it.
                Err(error) if error.is_unreadable() => report.stripes_skipped += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Which equations of a stripe do not hold.
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
            let came = self.read_pieces(stripes.set.streams[node].node, &pieces, length).await?;
            pace.done(bytes);
            Ok::<_, ClientError>((cell, came))
        };
        let mut cells = stream::iter(reads).map(read).buffer_unordered(CELLS_READ_MAX);
        while let Some((cell, bytes)) = cells.try_next().await? {
            for (equation, sum) in geometry.equations().iter().zip(&mut sums) {
                if equation.cells().any(|known| known == cell) {
                    // Both are a cell long.
                    let _ = xor::xor_into(sum, &bytes);
                }
            }
        }
        let wrong = sums.iter().enumerate().filter(|(_, sum)| sum.iter().any(|byte| *byte != 0));
        Ok(wrong.map(|(equation, _)| equation).collect())
    }
}

impl ScrubReport {
    /// With what was counted on the way.
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

/// A place in words.
fn name(stripes: &Stripes, node: usize, place: u64) -> String {
    let stream = &stripes.set.streams[node];
    let pages = stream.extents().count() as u64;
    let at = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
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

/// Bytes that nobody has any more, in words.
fn name_of_range(stripes: &Stripes, range: &Beyond, gone: &BTreeSet<usize>) -> String {
    let node = |place: usize| stripes.set.streams.get(place).map_or(NodeId(0), |stream| stream.node);
    let nodes: Vec<String> = gone.iter().map(|place| node(*place).to_string()).collect();
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
    format!(
        "{kind} {} of stripe {stripe} does not hold: {parity} is the parity of something else",
        found.number
    )
}

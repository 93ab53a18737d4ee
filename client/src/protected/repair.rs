//! How do many rotten places of a node come back with few, large reads?
//!
//! ```text
//! places -> ranges of cells, by stripe -> intervals in which the same cells are wanted -> what to read of survivors for all of them (`stripe`)
//!        -> the same range of each, once -> XOR -> the places' bytes -> mended at the node, which checks them
//! ```
//!
//! Invariants
//! - What comes out is checked by the node that has the place: nothing is written there that was not there.
//! - Memory is bounded: [`MEND_BATCHES_MAX`] batches of [`MEND_BATCH_BYTES`] (one stripe at least), and for each [`MEND_READ_BYTES`] of survivors.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use futures::{StreamExt, TryStreamExt, stream};
use rackscan_format::limits::{MEND_PLACES_MAX, SECTOR_BYTES};
use rackscan_stripe::{Cell, Node, Recovery, xor};

use super::{
    pace::Pace,
    rotten::Rotten,
    stripes::{CellRange, Spot, Stripes},
};
use crate::{
    ClientError, Cluster,
    limits::{
        MEND_BATCH_BYTES, MEND_BATCHES_MAX, MEND_PLANS_MAX, MEND_READ_BYTES, MEND_REQUEST_BYTES,
        RANGES_READ_MAX,
    },
};

/// What became of places that were to be mended.
#[derive(Debug, Default)]
pub(super) struct Repaired {
    pub(super) mended: Vec<u64>,
    /// Those that do not come back, and why.
    pub(super) unreadable: Vec<(u64, String)>,
}

/// The columns that are lost and the cells that are wanted.
type PlanOf = (Vec<u8>, Vec<Cell>);

/// The mending of one node's places in a set.
pub(super) struct Repair<'r> {
    cluster: &'r Cluster,
    stripes: &'r Stripes,
    /// The node, by its place in the set.
    node: usize,
    rotten: &'r Rotten,
    pace: &'r Pace<'r>,
    plans: Mutex<HashMap<PlanOf, Arc<Recovery>>>,
    /// The node without whose bytes the last place that needed that came back.
    suspect: AtomicUsize,
}

/// Places with their bytes, as far as they came.
struct Batch {
    places: Vec<u64>,
    bytes: Vec<Vec<u8>>,
    /// Where pages begin in the stream, and which they are here.
    pages: BTreeMap<u64, usize>,
    /// Which cell of parity is which here.
    parity: BTreeMap<u64, usize>,
    beyond: BTreeSet<usize>,
}

impl<'r> Repair<'r> {
    pub(super) fn new(
        cluster: &'r Cluster,
        stripes: &'r Stripes,
        node: usize,
        rotten: &'r Rotten,
        pace: &'r Pace<'r>,
    ) -> Self {
        Self { cluster, stripes, node, rotten, pace, plans: Mutex::default(), suspect: AtomicUsize::new(0) }
    }

    /// Mends these places, as far as survivors give them.
    pub(super) async fn run(&self, places: &[u64]) -> Result<Repaired, ClientError> {
        let batches = self.batches(places);
        let mut done =
            stream::iter(batches).map(|places| self.mend(places)).buffer_unordered(MEND_BATCHES_MAX);
        let mut all = Repaired::default();
        while let Some(one) = done.try_next().await? {
            all.mended.extend(one.mended);
            all.unreadable.extend(one.unreadable);
        }
        Ok(all)
    }

    /// Places in the order of stripes, so that what is read for one is used for others; whole stripes together.
    fn batches(&self, places: &[u64]) -> Vec<Vec<u64>> {
        let stripe = |place: &u64| {
            let spot = self.stripes.spot(self.node, *place)?;
            let first = match spot {
                Spot::Page { start, .. } => {
                    self.stripes.layout.data_cell(self.node, start / self.stripes.cell_bytes())
                }
                Spot::Parity { index } => self.stripes.layout.parity_cell(self.node, index),
            };
            Some((first?.0, *place, self.stripes.bytes_of(spot)))
        };
        let mut found: Vec<(u64, u64, u64)> = places.iter().filter_map(stripe).collect();
        found.sort_unstable();
        let mut batches: Vec<Vec<u64>> = Vec::new();
        let (mut last, mut bytes) = (None, 0);
        for (stripe, place, length) in found {
            match batches.last_mut() {
                Some(batch) if last == Some(stripe) || bytes < MEND_BATCH_BYTES => batch.push(place),
                _ => {
                    batches.push(vec![place]);
                    bytes = 0;
                }
            }
            (last, bytes) = (Some(stripe), bytes + length);
        }
        batches
    }

    async fn mend(&self, places: Vec<u64>) -> Result<Repaired, ClientError> {
        let batch = self.reconstructed(places, &BTreeSet::new()).await?;
        let mut repaired = Repaired::default();
        let whole: Vec<usize> = (0..batch.places.len()).filter(|at| !batch.beyond.contains(at)).collect();
        for group in groups(&batch, &whole) {
            if self.send(&batch, group).await? {
                self.note(&batch, group, &mut repaired);
                continue;
            }
            for at in group {
                if self.send(&batch, &[*at]).await? || self.mend_otherwise(batch.places[*at]).await? {
                    self.note(&batch, &[*at], &mut repaired);
                } else {
                    let reason = "what survivors have does not give it".to_owned();
                    repaired.unreadable.push((batch.places[*at], reason));
                }
            }
        }
        for at in &batch.beyond {
            let reason = format!("its parity {} does not bear that", self.stripes.set.protection);
            repaired.unreadable.push((batch.places[*at], reason));
        }
        for (place, _) in &repaired.unreadable {
            self.pace
                .done(self.stripes.spot(self.node, *place).map_or(0, |spot| self.stripes.bytes_of(spot)));
        }
        Ok(repaired)
    }

    fn note(&self, batch: &Batch, group: &[usize], repaired: &mut Repaired) {
        let bytes = group.iter().map(|at| batch.bytes[*at].len() as u64).sum();
        repaired.mended.extend(group.iter().map(|at| batch.places[*at]));
        self.pace.mended(group.len() as u64, bytes);
        self.pace.done(bytes);
    }

    /// Somebody else's bytes may be wrong, too, without anybody knowing whose: one more node after the other is taken for lost.
    async fn mend_otherwise(&self, place: u64) -> Result<bool, ClientError> {
        // Whoever it was the last time is tried first.
        let nodes = self.stripes.set.streams.len();
        let first = self.suspect.load(Relaxed);
        for other in (0..nodes).map(|after| (first + after) % nodes).filter(|other| *other != self.node) {
            let batch = self.reconstructed(vec![place], &BTreeSet::from([other])).await?;
            if batch.beyond.is_empty() && self.send(&batch, &[0]).await? {
                self.suspect.store(other, Relaxed);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Has the node take bytes; false if they are not what was there.
    async fn send(&self, batch: &Batch, group: &[usize]) -> Result<bool, ClientError> {
        let bytes: Vec<(u64, &[u8])> =
            group.iter().map(|at| (batch.places[*at], &batch.bytes[*at][..])).collect();
        let node = self.stripes.set.streams[self.node].node;
        match self.cluster.mend(node, self.stripes.set.id, &bytes).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_malformed() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reconstructs places as if those nodes were lost, too.
    async fn reconstructed(&self, places: Vec<u64>, also: &BTreeSet<usize>) -> Result<Batch, ClientError> {
        let mut batch = self.batch(places);
        let mut wanted: BTreeMap<u64, BTreeMap<Cell, Vec<Range<u64>>>> = BTreeMap::new();
        for at in 0..batch.places.len() {
            let spot = self.stripes.spot(self.node, batch.places[at]);
            let Some(ranges) = spot.and_then(|spot| self.stripes.ranges_of(self.node, spot)) else {
                batch.beyond.insert(at);
                continue;
            };
            for CellRange { stripe, cell, from, length } in ranges {
                let runs = wanted.entry(stripe).or_default().entry(cell).or_default();
                join(runs, from..from + length);
            }
        }
        for (stripe, cells) in wanted {
            for (range, cells) in intervals(&cells) {
                self.interval(stripe, &cells, range, also, &mut batch).await?;
            }
        }
        Ok(batch)
    }

    fn batch(&self, places: Vec<u64>) -> Batch {
        let (mut pages, mut parity, mut bytes) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for (at, place) in places.iter().enumerate() {
            let spot = self.stripes.spot(self.node, *place);
            let length = spot.map_or(0, |spot| self.stripes.bytes_of(spot));
            bytes.push(vec![0; usize::try_from(length).unwrap_or(0)]);
            match spot {
                Some(Spot::Page { start, .. }) => drop(pages.insert(start, at)),
                Some(Spot::Parity { index }) => drop(parity.insert(index, at)),
                None => {}
            }
        }
        Batch { places, bytes, pages, parity, beyond: BTreeSet::new() }
    }

    /// The same range of some cells of a stripe. What does not come back as a whole is tried in halves: other bytes may be rotten elsewhere.
    async fn interval(
        &self,
        stripe: u64,
        cells: &[Cell],
        range: Range<u64>,
        also: &BTreeSet<usize>,
        batch: &mut Batch,
    ) -> Result<(), ClientError> {
        let mut left = vec![range];
        while let Some(range) = left.pop() {
            let mut lost = self.rotten.lost(self.stripes, stripe, &range);
            lost.insert(self.node);
            lost.extend(also);
            let plan = self.plan(stripe, cells, &lost);
            let length = range.end - range.start;
            let halves = (length / 2).next_multiple_of(SECTOR_BYTES.into());
            let plan = plan.filter(|plan| plan.beyond.is_empty());
            let fits = plan
                .as_ref()
                .is_none_or(|plan| length.saturating_mul(plan.reads.len() as u64) <= MEND_READ_BYTES);
            let is_small = length <= SECTOR_BYTES.into();
            match plan {
                Some(plan) if fits || is_small => {
                    if !self.fill(stripe, (cells, &plan), &range, lost, batch).await? {
                        self.beyond(stripe, cells, &range, batch);
                    }
                }
                None if is_small => self.beyond(stripe, cells, &range, batch),
                _ => {
                    let middle = range.start + halves;
                    left.extend([middle..range.end, range.start..middle]);
                }
            }
        }
        Ok(())
    }

    /// How these cells come back, if the stripe has as many nodes.
    fn plan(&self, stripe: u64, cells: &[Cell], lost: &BTreeSet<usize>) -> Option<Arc<Recovery>> {
        let geometry = self.stripes.layout.geometry();
        let nodes: Vec<Node> = lost.iter().filter_map(|node| u8::try_from(*node).ok()).map(Node).collect();
        let columns = geometry.lost_with(stripe, &nodes).ok()?;
        let of = (columns.columns().map(|column| column.0).collect(), cells.to_vec());
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = plans.get(&of) {
            return Some(Arc::clone(known));
        }
        let column = self.stripes.layout.column(stripe, self.node)?;
        let is_all = columns.count() == 1 && cells.len() == geometry.slots(column);
        let plan =
            if is_all { geometry.rebuild(columns) } else { geometry.recovery_of(columns, cells).ok()? };
        let plan = Arc::new(plan);
        if plans.len() >= MEND_PLANS_MAX {
            plans.clear();
        }
        plans.insert(of, Arc::clone(&plan));
        Some(plan)
    }

    /// Reads what a plan needs and fills the batch with what comes of it; false if nothing does. A survivor that cannot be read is taken for lost, and all is planned anew.
    async fn fill(
        &self,
        stripe: u64,
        (cells, plan): (&[Cell], &Arc<Recovery>),
        range: &Range<u64>,
        mut lost: BTreeSet<usize>,
        batch: &mut Batch,
    ) -> Result<bool, ClientError> {
        let mut plan = Arc::clone(plan);
        let mut known = loop {
            match self.sources(stripe, &plan.reads, range).await? {
                Ok(known) => break known,
                Err(other) if !lost.insert(other) => return Ok(false),
                Err(_) => match self.plan(stripe, cells, &lost).filter(|plan| plan.beyond.is_empty()) {
                    Some(next) => plan = next,
                    None => return Ok(false),
                },
            }
        };
        let length = usize::try_from(range.end - range.start).unwrap_or(0);
        for repair in &plan.repairs {
            let mut sum = vec![0; length];
            for cell in &repair.from {
                let is_added = known.get(cell).is_some_and(|bytes| xor::xor_into(&mut sum, bytes).is_ok());
                if !is_added {
                    return Ok(false);
                }
            }
            if cells.contains(&repair.cell) {
                self.scatter(stripe, repair.cell, range, &sum, batch);
            }
            known.insert(repair.cell, sum);
        }
        Ok(true)
    }

    /// The same range of surviving cells; the node that does not give its part.
    async fn sources(
        &self,
        stripe: u64,
        cells: &[Cell],
        range: &Range<u64>,
    ) -> Result<Result<HashMap<Cell, Vec<u8>>, usize>, ClientError> {
        let length = range.end - range.start;
        let one = |cell: Cell| async move {
            let wanted = CellRange { stripe, cell, from: range.start, length };
            let Some((node, pieces)) = self.stripes.pieces(&wanted) else { return Err((usize::MAX, None)) };
            let bytes = pieces.iter().map(|piece| u64::from(piece.extent.length_bytes)).sum();
            self.pace.take(bytes).await;
            self.pace.survivors(bytes);
            let id = self.stripes.set.streams[node].node;
            let came = self.cluster.read_pieces(id, &pieces, usize::try_from(length).unwrap_or(0)).await;
            came.map(|bytes| (cell, bytes)).map_err(|error| (node, Some(error)))
        };
        let cells: Vec<Cell> = cells.to_vec();
        let came = stream::iter(cells).map(one).buffer_unordered(RANGES_READ_MAX).try_collect().await;
        match came {
            Ok(known) => Ok(Ok(known)),
            Err((node, Some(error))) if error.is_unreadable() => Ok(Err(node)),
            Err((_, Some(error))) => Err(error),
            Err((node, None)) => Ok(Err(node)),
        }
    }

    /// Puts a range of a cell where it belongs.
    fn scatter(&self, stripe: u64, cell: Cell, range: &Range<u64>, sum: &[u8], batch: &mut Batch) {
        let (pages, parity) = (&batch.pages, &batch.parity);
        let Some(held) = self.stripes.layout.held(stripe, cell) else { return };
        if held.is_parity {
            let Some(bytes) = parity.get(&held.index).map(|at| &mut batch.bytes[*at]) else { return };
            copy(bytes, 0, sum, range.start);
            return;
        }
        let from = held.index * self.stripes.cell_bytes() + range.start;
        let end = from + (range.end - range.start);
        let first = pages.range(..=from).next_back().map_or(from, |(start, _)| *start);
        for (start, at) in pages.range(first..end) {
            copy(&mut batch.bytes[*at], *start, sum, from);
        }
    }

    /// A range of these cells does not come back, and no place that has a part of it.
    fn beyond(&self, stripe: u64, cells: &[Cell], range: &Range<u64>, batch: &mut Batch) {
        for held in cells.iter().filter_map(|cell| self.stripes.layout.held(stripe, *cell)) {
            if held.is_parity {
                batch.beyond.extend(batch.parity.get(&held.index));
                continue;
            }
            let from = held.index * self.stripes.cell_bytes() + range.start;
            let end = from + (range.end - range.start);
            let first = batch.pages.range(..=from).next_back().map_or(from, |(start, _)| *start);
            for (start, at) in batch.pages.range(first..end) {
                if start + batch.bytes[*at].len() as u64 > from {
                    batch.beyond.insert(*at);
                }
            }
        }
    }
}

/// Copies what two ranges of a stream have in common: `into` begins at `start`, `bytes` at `from`.
fn copy(into: &mut [u8], start: u64, bytes: &[u8], from: u64) {
    let begin = start.max(from);
    let end = (start + into.len() as u64).min(from + bytes.len() as u64);
    if begin >= end {
        return;
    }
    let at = |position: u64, origin: u64| usize::try_from(position - origin).unwrap_or(usize::MAX);
    into[at(begin, start)..at(end, start)].copy_from_slice(&bytes[at(begin, from)..at(end, from)]);
}

/// Adds a range to ascending ones, which neighbours become one of.
fn join(runs: &mut Vec<Range<u64>>, range: Range<u64>) {
    match runs.last_mut() {
        Some(last) if last.end >= range.start && last.start <= range.start => {
            last.end = last.end.max(range.end)
        }
        _ => runs.push(range),
    }
}

/// The intervals in which the same cells are wanted.
fn intervals(cells: &BTreeMap<Cell, Vec<Range<u64>>>) -> Vec<(Range<u64>, Vec<Cell>)> {
    let cuts: BTreeSet<u64> = cells.values().flatten().flat_map(|range| [range.start, range.end]).collect();
    let cuts: Vec<u64> = cuts.into_iter().collect();
    let wants = |runs: &[Range<u64>], range: &Range<u64>| {
        runs.iter().any(|run| run.start <= range.start && range.end <= run.end)
    };
    let found = cuts.windows(2).map(|cut| {
        let range = cut[0]..cut[1];
        let wanted = cells.iter().filter(|(_, runs)| wants(runs, &range)).map(|(cell, _)| *cell).collect();
        (range, wanted)
    });
    found.filter(|(_, cells): &(_, Vec<Cell>)| !cells.is_empty()).collect()
}

/// As many of these as one request takes.
fn groups<'g>(batch: &Batch, places: &'g [usize]) -> Vec<&'g [usize]> {
    let (mut groups, mut rest) = (Vec::new(), places);
    while !rest.is_empty() {
        let mut bytes = 0;
        let within = |at: &&usize| {
            bytes += batch.bytes[**at].len();
            bytes <= MEND_REQUEST_BYTES
        };
        let count = rest.iter().take(MEND_PLACES_MAX).take_while(within).count().max(1);
        let (now, later) = rest.split_at(count);
        groups.push(now);
        rest = later;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_stripe::Column;

    #[test]
    fn the_same_cells_are_wanted_within_an_interval_and_neighbours_are_one() {
        let cell = |slot| Cell { column: Column(0), slot };
        let mut first = Vec::new();
        for range in [0..10, 10..20, 30..40] {
            join(&mut first, range);
        }
        assert_eq!(first, [0..20, 30..40]);
        let found = intervals(&BTreeMap::from([(cell(0), first), (cell(1), vec![5..35])]));
        let both = vec![cell(0), cell(1)];
        let expected = [
            (0..5, vec![cell(0)]),
            (5..20, both.clone()),
            (20..30, vec![cell(1)]),
            (30..35, both),
            (35..40, vec![cell(0)]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_two_ranges_have_in_common_is_copied_and_nothing_else() {
        for (start, from, expected) in
            [(10, 8, [3, 4, 5, 0]), (10, 12, [0, 0, 1, 2]), (10, 20, [0; 4]), (20, 10, [0; 4])]
        {
            let mut into = [0; 4];
            copy(&mut into, start, &[1, 2, 3, 4, 5], from);
            assert_eq!(into, expected);
        }
    }
}

//! Repairs many corrupt places (pages and parity cells) of a node with few, large reads of
//! surviving nodes.
//!
//! ```text
//! places -> ranges of cells, by stripe -> intervals in which the same cells are wanted (`intervals`)
//!  -> plans: which ranges of survivors are XORed to recover them (`plans`)
//!  -> each range is read once (`gather`) -> XOR -> the bytes of the places -> sent to the node, which verifies and writes them
//! ```
//!
//! Invariants
//! - The node that stores the place verifies the bytes with their checksum, so only the bytes that
//!   were there before are written there.
//! - Memory is bounded: [`REPAIR_BATCHES_MAX`] batches of [`REPAIR_BATCH_BYTES`] (at least one
//!   stripe each), and for each one round of reads from survivors
//!   ([`GATHER_BYTES`](crate::limits::GATHER_BYTES)).

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use futures::{StreamExt, TryStreamExt, stream};
use rackscan_format::limits::{REPAIR_PLACES_MAX, SECTOR_BYTES};

use super::{
    corrupt::Corrupt,
    gather::{GatherError, PlannedInterval, Reads, rounds},
    intervals::{Interval, Places, WantedRanges, copy},
    pace::Pace,
    stripes::{Spot, Stripes},
};
use crate::{
    ClientError, Cluster,
    limits::{REPAIR_BATCH_BYTES, REPAIR_BATCHES_MAX, REPAIR_REQUEST_BYTES},
};

/// The result of a repair.
#[derive(Debug, Default)]
pub(super) struct Repaired {
    pub(super) places: Vec<u64>,
    /// Places that could not be reconstructed, and why.
    pub(super) unreadable: Vec<(u64, String)>,
}

/// The repair of one node's places in a set.
pub(super) struct Repair<'r> {
    cluster: &'r Cluster,
    stripes: &'r Stripes,
    /// The node, by its position in the set.
    node: usize,
    corrupt: &'r Corrupt,
    pace: &'r Pace<'r>,
    /// The node that was last left out with success because its bytes seem to be wrong.
    suspect: AtomicUsize,
}

/// Places with their bytes, as far as they were reconstructed.
struct Batch {
    places: Vec<u64>,
    bytes: Vec<Vec<u8>>,
    /// The positions of the places, with their indexes here.
    spots: Places,
    lost: BTreeSet<usize>,
}

impl<'r> Repair<'r> {
    pub(super) fn new(
        cluster: &'r Cluster,
        stripes: &'r Stripes,
        node: usize,
        corrupt: &'r Corrupt,
        pace: &'r Pace<'r>,
    ) -> Self {
        Self { cluster, stripes, node, corrupt, pace, suspect: AtomicUsize::new(0) }
    }

    /// Repairs these places, as far as they can be reconstructed.
    pub(super) async fn run(&self, places: &[u64]) -> Result<Repaired, ClientError> {
        let batches = self.batches(places);
        let mut done =
            stream::iter(batches).map(|places| self.repair(places)).buffer_unordered(REPAIR_BATCHES_MAX);
        let mut all = Repaired::default();
        while let Some(one) = done.try_next().await? {
            all.places.extend(one.places);
            all.unreadable.extend(one.unreadable);
        }
        Ok(all)
    }

    /// Divides the places into batches in the order of stripes, so that bytes read for one place
    /// are used for others; the places of a stripe stay together.
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
                Some(batch) if last == Some(stripe) || bytes < REPAIR_BATCH_BYTES => batch.push(place),
                _ => {
                    batches.push(vec![place]);
                    bytes = 0;
                }
            }
            (last, bytes) = (Some(stripe), bytes + length);
        }
        batches
    }

    async fn repair(&self, places: Vec<u64>) -> Result<Repaired, ClientError> {
        let batch = self.reconstructed(places, &BTreeSet::new()).await?;
        let mut repaired = Repaired::default();
        let whole: Vec<usize> = (0..batch.places.len()).filter(|at| !batch.lost.contains(at)).collect();
        for group in groups(&batch, &whole) {
            if self.send(&batch, group).await? {
                self.note(&batch, group, &mut repaired);
                continue;
            }
            for at in group {
                if self.send(&batch, &[*at]).await? || self.repair_otherwise(batch.places[*at]).await? {
                    self.note(&batch, &[*at], &mut repaired);
                } else {
                    let reason = "the data of the surviving nodes does not reconstruct it".to_owned();
                    repaired.unreadable.push((batch.places[*at], reason));
                }
            }
        }
        for at in &batch.lost {
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
        repaired.places.extend(group.iter().map(|at| batch.places[*at]));
        self.pace.repaired(group.len() as u64, bytes);
        self.pace.done(bytes);
    }

    /// Repairs a place whose reconstructed bytes were wrong: the bytes of some other node may be
    /// corrupt without anybody knowing whose, so one more node after the other is treated as lost.
    async fn repair_otherwise(&self, place: u64) -> Result<bool, ClientError> {
        // The node that was the culprit the last time is tried first.
        let nodes = self.stripes.set.streams.len();
        let first = self.suspect.load(Relaxed);
        for other in (0..nodes).map(|after| (first + after) % nodes).filter(|other| *other != self.node) {
            let batch = self.reconstructed(vec![place], &BTreeSet::from([other])).await?;
            if batch.lost.is_empty() && self.send(&batch, &[0]).await? {
                self.suspect.store(other, Relaxed);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends bytes to the node. Returns false if they are not those that were there before.
    async fn send(&self, batch: &Batch, group: &[usize]) -> Result<bool, ClientError> {
        let bytes: Vec<(u64, &[u8])> =
            group.iter().map(|at| (batch.places[*at], &batch.bytes[*at][..])).collect();
        let node = self.stripes.set.streams[self.node].node;
        match self.cluster.repair(node, self.stripes.set.id, &bytes).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_malformed() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reconstructs places, treating the nodes in `also` as lost, too.
    async fn reconstructed(&self, places: Vec<u64>, also: &BTreeSet<usize>) -> Result<Batch, ClientError> {
        let (mut batch, mut wanted) = (self.batch(places), WantedRanges::default());
        for at in 0..batch.places.len() {
            let spot = self.stripes.spot(self.node, batch.places[at]);
            match spot.and_then(|spot| self.stripes.ranges_of(self.node, spot)) {
                Some(ranges) => ranges.into_iter().for_each(|range| wanted.add(range)),
                None => drop(batch.lost.insert(at)),
            }
        }
        for interval in wanted.intervals() {
            self.interval(interval, also, &mut batch).await?;
        }
        Ok(batch)
    }

    fn batch(&self, places: Vec<u64>) -> Batch {
        let (mut spots, mut bytes) = (Places::default(), Vec::new());
        for (at, place) in places.iter().enumerate() {
            let spot = self.stripes.spot(self.node, *place);
            let length = spot.map_or(0, |spot| self.stripes.bytes_of(spot));
            let length = usize::try_from(length).expect("the bytes of a place: they are counted in 32 bits");
            bytes.push(vec![0; length]);
            if let Some(spot) = spot {
                spots.add(spot, at);
            }
        }
        Batch { places, bytes, spots, lost: BTreeSet::new() }
    }

    /// Reconstructs an interval. If that is impossible for the whole interval, it is tried in
    /// halves, because other nodes may be corrupt in a part of it only.
    async fn interval(
        &self,
        Interval { stripe, cells, range }: Interval,
        also: &BTreeSet<usize>,
        batch: &mut Batch,
    ) -> Result<(), ClientError> {
        let mut left = vec![range];
        while let Some(range) = left.pop() {
            let mut lost = self.corrupt.lost(self.stripes, stripe, &range);
            lost.insert(self.node);
            lost.extend(also);
            let length = range.end - range.start;
            let interval = Interval { stripe, cells: cells.clone(), range: range.clone() };
            if self.stripes.plan(stripe, &cells, &lost).is_some() {
                if !self.fill(&interval, lost, batch).await? {
                    self.give_up(&interval, batch);
                }
            } else if length <= SECTOR_BYTES.into() {
                self.give_up(&interval, batch);
            } else {
                let middle = range.start + (length / 2).next_multiple_of(SECTOR_BYTES.into());
                left.extend([middle..range.end, range.start..middle]);
            }
        }
        Ok(())
    }

    /// Fills the batch with an interval. Returns false if it cannot be reconstructed. A survivor
    /// that cannot be read is treated as lost, and the interval is planned anew.
    async fn fill(
        &self,
        interval: &Interval,
        mut lost: BTreeSet<usize>,
        batch: &mut Batch,
    ) -> Result<bool, ClientError> {
        loop {
            let Some(plan) = self.stripes.plan(interval.stripe, &interval.cells, &lost) else {
                return Ok(false);
            };
            let planned = PlannedInterval { interval: interval.clone(), plan };
            match self.gathered(rounds(vec![planned]), batch).await {
                Ok(()) => return Ok(true),
                Err(GatherError::Lost(other)) if lost.insert(other) => {}
                Err(GatherError::Lost(_) | GatherError::TooManyLost) => return Ok(false),
                Err(GatherError::Error(error)) => return Err(error),
            }
        }
    }

    /// Gathers rounds one after the other, and fills the batch with the sums.
    async fn gathered(
        &self,
        rounds: Vec<Vec<PlannedInterval>>,
        batch: &mut Batch,
    ) -> Result<(), GatherError> {
        for round in rounds {
            let reads = Reads::new(self.stripes, round).ok_or(GatherError::TooManyLost)?;
            self.pace.take(reads.bytes()).await;
            self.pace.survivors(reads.bytes());
            let gathered = self.cluster.gather(self.stripes, reads).await?;
            gathered.sums(|interval, cell, from, sum| {
                let range = from..from + sum.len() as u64;
                for touched in batch.spots.touched(self.stripes, interval.stripe, cell, &range) {
                    copy(&mut batch.bytes[touched.at], touched.start, sum, touched.from);
                }
            })?;
        }
        Ok(())
    }

    /// Gives up all places that overlap an interval that cannot be reconstructed.
    fn give_up(&self, Interval { stripe, cells, range }: &Interval, batch: &mut Batch) {
        for cell in cells {
            let touched = batch.spots.touched(self.stripes, *stripe, *cell, range);
            batch.lost.extend(touched.iter().map(|touched| touched.at));
        }
    }
}

/// Divides places into groups that fit one request each.
fn groups<'g>(batch: &Batch, places: &'g [usize]) -> Vec<&'g [usize]> {
    let (mut groups, mut rest) = (Vec::new(), places);
    while !rest.is_empty() {
        let mut bytes = 0;
        let within = |at: &&usize| {
            bytes += batch.bytes[**at].len();
            bytes <= REPAIR_REQUEST_BYTES
        };
        let count = rest.iter().take(REPAIR_PLACES_MAX).take_while(within).count().max(1);
        let (now, later) = rest.split_at(count);
        groups.push(now);
        rest = later;
    }
    groups
}

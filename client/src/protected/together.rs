//! Reconstructs pages of a lost node that are wanted at the same time, with few, large reads of
//! surviving nodes.
//!
//! ```text
//! pages -> ranges of cells, by stripe -> intervals in which the same cells are wanted (`intervals`)
//!  -> plans (`plans`) -> rounds of reads (`gather`) -> XOR -> pages, which are verified
//! ```
//!
//! Invariants
//! - A page that cannot be rebuilt here is left to `reconstruct`, which handles one page at a time
//!   and reports the error.
//! - A survivor that is lost meanwhile counts as lost: rounds that were not complete are planned
//!   and read again. This ends, because each time one more node is lost.
//! - At most [`GATHERS_MAX`] rounds of one call run at a time, so that one is read while another is
//!   XORed; over all fetches at most [`RECONSTRUCTIONS_MAX`](crate::limits::RECONSTRUCTIONS_MAX).

use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream};
use rackscan_format::page::PageIdentity;
use rackscan_scan::PageWanted;

use super::{
    gather::{GatherError, Gathered, PlannedInterval, Reads, rounds},
    intervals::{Interval, Places, WantedRanges, copy},
    reconstruct::LostSegment,
    stripes::Spot,
};
use crate::{ClientError, Cluster, PageBuffer, limits::GATHERS_MAX, page_buffer::PagePool};

/// The pages of one reconstruction.
struct Batch {
    /// Each page with its place at the node; `None` if it does not lie in the set.
    pages: Vec<Option<(u64, PageBuffer)>>,
    places: Places,
    /// Intervals that were not gathered yet.
    remaining: Vec<Interval>,
}

impl Batch {
    fn new(lost: &LostSegment<'_>, wanted: &[PageWanted], pool: &Arc<PagePool>) -> Self {
        let (mut places, mut spots, mut pages) = (Places::default(), Vec::new(), Vec::new());
        for (at, page) in wanted.iter().enumerate() {
            let length = page.extent.length_bytes;
            let position = lost.stripes.position(lost.place, lost.table, lost.segment, &page.extent);
            if let Some((_, start)) = position {
                let spot = Spot::Page { start, length: length.into() };
                places.add(spot, at);
                spots.push((start, spot));
            }
            let buffer = || match pool.filled(length as usize, |_| Ok::<_, Infallible>(())) {
                Ok(buffer) => buffer,
                Err(never) => match never {},
            };
            pages.push(position.map(|(place, _)| (place, buffer())));
        }
        spots.sort_unstable_by_key(|(start, _)| *start);
        let mut ranges = WantedRanges::default();
        for range in spots.iter().filter_map(|(_, spot)| lost.stripes.ranges_of(lost.place, *spot)).flatten()
        {
            ranges.add(range);
        }
        Self { pages, places, remaining: ranges.intervals() }
    }

    /// Copies gathered bytes into the pages.
    fn fill(&mut self, lost: &LostSegment<'_>, gathered: &Gathered) -> Result<(), GatherError> {
        gathered.sums(|interval, cell, from, bytes| {
            let range = from..from + bytes.len() as u64;
            for touched in self.places.touched(lost.stripes, interval.stripe, cell, &range) {
                let page = self.pages[touched.at].as_mut().and_then(|(_, page)| page.bytes_mut());
                if let Some(page) = page {
                    copy(page, touched.start, bytes, touched.from);
                }
            }
        })
    }
}

impl Cluster {
    /// Reconstructs pages together. Returns those that verify, and how many bytes were read.
    pub(super) async fn reconstruct_together(
        &self,
        lost: &LostSegment<'_>,
        wanted: &[PageWanted],
    ) -> Result<(Vec<Option<PageBuffer>>, u64), ClientError> {
        let (mut batch, mut read) = (Batch::new(lost, wanted, &self.shared.pages), 0);
        let mut unavailable = self.lost_places(lost);
        loop {
            match self.gather_remaining(lost, &unavailable, &mut batch, &mut read).await {
                Ok(()) => break,
                Err(GatherError::Lost(place)) if unavailable.insert(place) => {}
                Err(
                    GatherError::Lost(_)
                    | GatherError::TooManyLost
                    | GatherError::Error(ClientError::MemoryTooSmall { .. }),
                ) => {
                    return Ok((wanted.iter().map(|_| None).collect(), read));
                }
                Err(GatherError::Error(error)) => return Err(error),
            }
        }
        let right = |(wanted, page): (&PageWanted, Option<(u64, PageBuffer)>)| {
            let (place, mut page) = page?;
            let (table, segment) = (lost.table, lost.segment);
            let identity = PageIdentity { table, segment, column: wanted.column, page: wanted.page };
            page.verify(&identity).ok()?;
            if lost.is_there {
                self.repair_later(lost.stripes, lost.stripes.set.streams[lost.place].node, place, &page);
            }
            Some(page)
        };
        Ok((wanted.iter().zip(batch.pages).map(right).collect(), read))
    }

    /// Gathers the remaining intervals without the `unavailable` nodes.
    async fn gather_remaining(
        &self,
        lost: &LostSegment<'_>,
        unavailable: &BTreeSet<usize>,
        batch: &mut Batch,
        read: &mut u64,
    ) -> Result<(), GatherError> {
        let stripes = lost.stripes;
        let planned = |interval: &Interval| {
            let plan = stripes.plan(interval.stripe, &interval.cells, unavailable)?;
            Some(PlannedInterval { interval: interval.clone(), plan })
        };
        let planned: Option<Vec<PlannedInterval>> = batch.remaining.iter().map(planned).collect();
        let rounds = rounds(planned.ok_or(GatherError::TooManyLost)?);
        let of = |round: &Vec<PlannedInterval>| round.iter().map(|part| part.interval.clone()).collect();
        let mut remaining: Vec<Vec<Interval>> = rounds.iter().map(of).collect();
        let one = |(number, round): (usize, Vec<PlannedInterval>)| async move {
            let closed = |_| GatherError::Error(ClientError::Closed);
            let permit = self.shared.reconstructions.acquire().await.map_err(closed)?;
            let reads = Reads::new(stripes, round).ok_or(GatherError::TooManyLost)?;
            Ok::<_, GatherError>((number, self.gather(stripes, reads).await?, permit))
        };
        let mut gathering =
            stream::iter(rounds.into_iter().enumerate()).map(one).buffer_unordered(GATHERS_MAX);
        let outcome = loop {
            // Nothing else is awaited in this loop, so that rounds that hold memory make progress
            // while others wait for memory.
            match gathering.try_next().await {
                Ok(Some((number, gathered, _permit))) => {
                    *read += gathered.bytes();
                    remaining[number].clear();
                    if let Err(failed) = batch.fill(lost, &gathered) {
                        break Err(failed);
                    }
                }
                Ok(None) => break Ok(()),
                Err(failed) => break Err(failed),
            }
        };
        drop(gathering);
        batch.remaining = remaining.into_iter().flatten().collect();
        outcome
    }
}

//! How do pages of a lost node that are wanted at the same time come back with few, large reads?
//!
//! ```text
//! pages -> ranges of cells, by stripe -> intervals in which the same cells are wanted -> plans (`stripe`) -> rounds of reads (`gather`) -> XOR -> pages, checked
//! ```
//!
//! Invariants
//! - What is not a page, and whatever cannot come back like this, is left to who reconstructs pages
//!   one by one, and says what is wrong with which.
//! - A survivor that is lost meanwhile is taken for lost: rounds that were not over are planned and
//!   read anew; that ends, as every time one more is.
//! - [`GATHERS_MAX`] rounds at a time, so that one is read while another is XORed; of all fetches
//!   [`RECONSTRUCTIONS_MAX`](crate::limits::RECONSTRUCTIONS_MAX).

use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream};
use rackscan_format::page::PageIdentity;
use rackscan_scan::PageWanted;

use super::{
    gather::{Failed, Gathered, Planned, Reads, rounds},
    intervals::{Interval, Places, Wanted, copy},
    reconstruct::LostSegment,
    stripes::Spot,
};
use crate::{ClientError, Cluster, PageBuffer, limits::GATHERS_MAX, page_buffer::PagePool};

/// Pages on their way.
struct Batch {
    /// Each with its place at the node; `None` if it is not one of the stripes.
    pages: Vec<Option<(u64, PageBuffer)>>,
    places: Places,
    /// What is not there yet.
    left: Vec<Interval>,
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
        let mut ranges = Wanted::default();
        for range in spots.iter().filter_map(|(_, spot)| lost.stripes.ranges_of(lost.place, *spot)).flatten()
        {
            ranges.add(range);
        }
        Self { pages, places, left: ranges.intervals() }
    }

    /// Puts what came where it belongs.
    fn fill(&mut self, lost: &LostSegment<'_>, gathered: &Gathered) -> Result<(), Failed> {
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
    /// The pages, as far as they come back together, each checked, and how many bytes were read for
    /// them.
    pub(super) async fn reconstruct_together(
        &self,
        lost: &LostSegment<'_>,
        wanted: &[PageWanted],
    ) -> Result<(Vec<Option<PageBuffer>>, u64), ClientError> {
        let (mut batch, mut read) = (Batch::new(lost, wanted, &self.shared.pages), 0);
        let mut away = self.lost_places(lost);
        loop {
            match self.gather_left(lost, &away, &mut batch, &mut read).await {
                Ok(()) => break,
                Err(Failed::Lost(place)) if away.insert(place) => {}
                Err(Failed::Lost(_) | Failed::Beyond | Failed::Error(ClientError::MemoryTooSmall { .. })) => {
                    return Ok((wanted.iter().map(|_| None).collect(), read));
                }
                Err(Failed::Error(error)) => return Err(error),
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

    /// Reads and XORs what is left, without what these nodes have.
    async fn gather_left(
        &self,
        lost: &LostSegment<'_>,
        away: &BTreeSet<usize>,
        batch: &mut Batch,
        read: &mut u64,
    ) -> Result<(), Failed> {
        let stripes = lost.stripes;
        let planned = |interval: &Interval| {
            let plan = stripes.plan(interval.stripe, &interval.cells, away)?;
            Some(Planned { interval: interval.clone(), plan })
        };
        let planned: Option<Vec<Planned>> = batch.left.iter().map(planned).collect();
        let rounds = rounds(planned.ok_or(Failed::Beyond)?);
        let of = |round: &Vec<Planned>| round.iter().map(|part| part.interval.clone()).collect();
        let mut left: Vec<Vec<Interval>> = rounds.iter().map(of).collect();
        let one = |(number, round): (usize, Vec<Planned>)| async move {
            let closed = |_| Failed::Error(ClientError::Closed);
            let permit = self.shared.reconstructions.acquire().await.map_err(closed)?;
            let reads = Reads::new(stripes, round).ok_or(Failed::Beyond)?;
            Ok::<_, Failed>((number, self.gather(stripes, reads).await?, permit))
        };
        let mut came = stream::iter(rounds.into_iter().enumerate()).map(one).buffer_unordered(GATHERS_MAX);
        let outcome = loop {
            // Nothing else is waited for here: rounds that have memory go on while this one is
            // waited for.
            match came.try_next().await {
                Ok(Some((number, gathered, _permit))) => {
                    *read += gathered.bytes();
                    left[number].clear();
                    if let Err(failed) = batch.fill(lost, &gathered) {
                        break Err(failed);
                    }
                }
                Ok(None) => break Ok(()),
                Err(failed) => break Err(failed),
            }
        };
        drop(came);
        batch.left = left.into_iter().flatten().collect();
        outcome
    }
}

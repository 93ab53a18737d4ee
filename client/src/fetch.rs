//! Fetches the raw pages of a segment.
//!
//! Pages come from this process's own cache, then from the node's cache without a request, and the
//! others by a request. If the node is lost, its pages are reconstructed from the cells of other
//! nodes (`protected`).
//!
//! Invariants
//! - Pages are returned in the order in which the caller listed them. Their bytes are not verified
//!   here (`scan` verifies them), except those of protected tables (`protected/corruption`).
//! - A fetch of many pages sends several requests of bounded size, one after the other.

use std::time::{Duration, Instant};

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    limits::FETCH_PAGES_MAX,
    message::{Answer, Cost, LoadReport, PageWanted as PageRequest, Request},
    page::PageIdentity,
};
use rackscan_scan::PageWanted;

use crate::{
    ClientError, Cluster, PageBuffer, hedge::Hedge, limits::FETCH_BYTES_MAX, message_names::unexpected_answer,
};

/// Pages of one segment, and the cost of fetching them.
#[derive(Debug, Default)]
pub struct FetchedPages {
    /// The pages, in the order they were asked for.
    pub pages: Vec<PageBuffer>,
    /// The node's cost, summed over all requests.
    pub cost: Cost,
    /// Bytes that crossed the wire: requests, replies and pages.
    pub wire_bytes: u64,
    /// Requests that were answered.
    pub round_trips: u32,
    /// When the node was asked for each page that it read from a device; `None` for pages out of a
    /// cache.
    pub read_at: Vec<Option<Instant>>,
    /// Pages that were read one-sidedly out of the node's cache.
    pub one_sided_pages: u32,
    /// Pages out of this process' own cache.
    pub own_pages: u32,
    /// Pages of a lost node, or corrupt ones, that were reconstructed.
    pub reconstructed_pages: u32,
    /// Bytes that other nodes read for these.
    pub survivor_bytes: u64,
    /// Time waited, over all requests and reads of the node's cache.
    pub waited: Duration,
    /// The load of the node at the end; `None` when no page was requested.
    pub load: Option<LoadReport>,
}

impl FetchedPages {
    /// Adds the cost of other requests for the same pages, which gave no pages.
    pub(crate) fn add(&mut self, of: Self) {
        add(&mut self.cost, &of.cost);
        self.wire_bytes += of.wire_bytes;
        self.round_trips += of.round_trips;
        self.reconstructed_pages += of.reconstructed_pages;
        self.survivor_bytes += of.survivor_bytes;
        self.waited += of.waited;
        self.load = of.load.or(self.load);
    }
}

impl Cluster {
    /// Fetches pages of one segment as they are stored. `table` is the one under which the segment
    /// was written (its directory names it). Of the extents only the lengths matter, as long as the
    /// node is there. If the node is lost and may be unavailable, or pages are corrupt or lost
    /// there, and the table is protected, they are reconstructed from the data of other nodes.
    ///
    /// # Errors
    /// A lost node whose pages cannot be reconstructed, or a refusing node; see [`ClientError`].
    pub async fn fetch(
        &self,
        node: NodeId,
        table: TableId,
        segment: SegmentId,
        pages: &[PageWanted],
    ) -> Result<FetchedPages, ClientError> {
        let mut fetched = FetchedPages::default();
        let mut rest = pages;
        while !rest.is_empty() {
            let (part, remaining) = rest.split_at(fitting(rest));
            self.fetch_part(node, table, segment, part, &mut fetched).await?;
            rest = remaining;
        }
        Ok(fetched)
    }

    async fn fetch_part(
        &self,
        node: NodeId,
        table: TableId,
        segment: SegmentId,
        pages: &[PageWanted],
        fetched: &mut FetchedPages,
    ) -> Result<(), ClientError> {
        let identity = |page: &PageWanted| identity(table, segment, page);
        let wanted: Vec<_> = pages.iter().map(|page| (identity(page), page.extent)).collect();
        let mut found: Vec<Option<PageBuffer>> = match &self.shared.own {
            Some(own) => wanted.iter().map(|(page, _)| own.find(node, *page)).collect(),
            None => pages.iter().map(|_| None).collect(),
        };
        let own_pages = u32::try_from(found.iter().flatten().count());
        fetched.own_pages += own_pages.expect("the pages of a part of a fetch: at most FETCH_PAGES_MAX");
        let asked_at = Instant::now();
        let one_sided = self.take_known(node, &wanted, &mut found).await;
        if one_sided.pages > 0 {
            fetched.waited += asked_at.elapsed();
        }
        fetched.one_sided_pages += one_sided.pages;
        fetched.wire_bytes += one_sided.bytes;
        let missing: Vec<usize> = (0..pages.len()).filter(|index| found[*index].is_none()).collect();
        let mut read_at = vec![None; pages.len()];
        if !missing.is_empty() {
            let asked: Vec<PageWanted> = missing.iter().map(|index| pages[*index]).collect();
            let known = &self.shared.nodes[self.position(node)?];
            let can_hedge = self.shared.unavailable_max > 0 && self.shared.maps.protects(table);
            let received = match can_hedge {
                true => self.hedged_pages(known, (table, segment), &asked, fetched).await,
                false => self.request_pages(node, (table, segment), &asked, None, fetched).await,
            };
            let received = match received {
                Err(lost)
                    if self.shared.unavailable_max > 0
                        && lost.is_node_lost()
                        && lost.node() == Some(node) =>
                {
                    self.reconstruct_for_fetch(node, (table, segment), &asked, (lost, false), fetched).await?
                }
                Err(refused) => self.refused_pages(node, (table, segment), &asked, refused, fetched).await?,
                Ok(received) => received,
            };
            for (index, (page, at)) in missing.into_iter().zip(received) {
                (found[index], read_at[index]) = (Some(page), at);
            }
        }
        self.replace_corrupt(node, (table, segment), pages, &mut found, fetched).await?;
        fetched.read_at.append(&mut read_at);
        for (page, (identity, _)) in found.into_iter().flatten().zip(&wanted) {
            fetched.pages.push(match &self.shared.own {
                Some(own) => own.offer(node, *identity, page),
                None => page,
            });
        }
        Ok(())
    }

    /// Requests pages from the node. Returns with each page when it was requested, if the node read
    /// it from a device.
    pub(crate) async fn request_pages(
        &self,
        node: NodeId,
        (table, segment): (TableId, SegmentId),
        pages: &[PageWanted],
        race: Option<Hedge>,
        fetched: &mut FetchedPages,
    ) -> Result<Vec<(PageBuffer, Option<Instant>)>, ClientError> {
        let during = "fetch";
        let page_bytes = pages.iter().map(stored_bytes).sum();
        let span = self.shared.memory.take(page_bytes, "a fetch of pages").await?;
        let mut next_offset = 0_u64;
        let wanted = pages.iter().map(|page| {
            let target_offset_bytes = next_offset;
            next_offset += u64::from(page.extent.length_bytes);
            PageRequest { column: page.column, page: page.page, target_offset_bytes }
        });
        let pages_wanted = wanted.collect();
        let request = Request::Fetch { table, segment, pages: pages_wanted, target: span.as_target() };
        let asked_at = Instant::now();
        let mut reply = self.ask_hedged(node, request, Some(span), race).await?;
        let (cost, places, cached) = match reply.take_answer(node, during)? {
            Answer::Fetched { cost, places, cached } => (cost, places, cached),
            other => return Err(unexpected_answer(node, during, &other, "pages")),
        };
        if let Some(cache) = self.remote_cache(node) {
            let identity = |page: &PageWanted| identity(table, segment, page);
            // Places are only hints: if their number differs from that of the pages, they are
            // dropped.
            let places = if places.len() == pages.len() { places } else { Vec::new() };
            cache.learn(pages.iter().zip(places).filter_map(|(page, place)| Some((identity(page), place?))));
        }
        let span = reply.span.ok_or(ClientError::Closed)?;
        let mut offset = 0;
        let mut received = Vec::with_capacity(pages.len());
        for (position, page) in (0_u16..).zip(pages) {
            let length = stored_bytes(page);
            let copied = self.shared.pages.filled(length, |bytes| span.copy_out(offset, bytes));
            let copied = copied.map_err(|error| ClientError::BadAnswer {
                node,
                during,
                found: error.to_string(),
                expected: "pages that fit into the memory for them".to_owned(),
            })?;
            received.push((copied, (!cached.contains(&position)).then_some(asked_at)));
            offset += length;
        }
        add(&mut fetched.cost, &cost);
        fetched.wire_bytes += reply.message_bytes + offset as u64;
        fetched.waited += asked_at.elapsed();
        fetched.round_trips += 1;
        fetched.load = Some(reply.message.load);
        Ok(received)
    }
}

fn identity(table: TableId, segment: SegmentId, wanted: &PageWanted) -> PageIdentity {
    PageIdentity { table, segment, column: wanted.column, page: wanted.page }
}

fn stored_bytes(page: &PageWanted) -> usize {
    page.extent.length_bytes as usize
}

/// Number of these pages that one request may ask for: at least one.
fn fitting(pages: &[PageWanted]) -> usize {
    let mut bytes = 0;
    let within = |page: &&PageWanted| {
        bytes += stored_bytes(page);
        bytes <= FETCH_BYTES_MAX
    };
    pages.iter().take(FETCH_PAGES_MAX).take_while(within).count().max(1)
}

/// Adds the cost of a further request.
fn add(sum: &mut Cost, cost: &Cost) {
    // All fields are named, so that a new one does not compile before it is added here.
    let &Cost {
        pages_read,
        pages_cached,
        pages_skipped_by_zone,
        pages_skipped_by_selection,
        disk_bytes,
        cached_bytes,
        rows_scanned,
        rows_selected,
        keys_tested,
        keys_kept,
        elapsed_us,
        cpu_us,
        queued_us,
        worker_us,
        read_us,
    } = cost;
    sum.pages_read = sum.pages_read.saturating_add(pages_read);
    sum.pages_cached = sum.pages_cached.saturating_add(pages_cached);
    sum.pages_skipped_by_zone = sum.pages_skipped_by_zone.saturating_add(pages_skipped_by_zone);
    sum.pages_skipped_by_selection =
        sum.pages_skipped_by_selection.saturating_add(pages_skipped_by_selection);
    sum.disk_bytes = sum.disk_bytes.saturating_add(disk_bytes);
    sum.cached_bytes = sum.cached_bytes.saturating_add(cached_bytes);
    sum.rows_scanned = sum.rows_scanned.saturating_add(rows_scanned);
    sum.rows_selected = sum.rows_selected.saturating_add(rows_selected);
    sum.keys_tested = sum.keys_tested.saturating_add(keys_tested);
    sum.keys_kept = sum.keys_kept.saturating_add(keys_kept);
    sum.elapsed_us = sum.elapsed_us.saturating_add(elapsed_us);
    sum.cpu_us = sum.cpu_us.saturating_add(cpu_us);
    sum.queued_us = sum.queued_us.saturating_add(queued_us);
    sum.worker_us = sum.worker_us.saturating_add(worker_us);
    sum.read_us = sum.read_us.saturating_add(read_us);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::{
        ids::{ColumnId, DeviceId, PageNumber},
        segment::Extent,
    };

    fn pages(lengths: &[u32]) -> Vec<PageWanted> {
        let page = |(number, length): (u16, &u32)| PageWanted {
            column: ColumnId(0),
            page: PageNumber(number),
            extent: Extent { device: DeviceId(0), offset_bytes: 0, length_bytes: *length },
        };
        (0..).zip(lengths).map(page).collect()
    }

    #[test]
    fn a_request_asks_for_as_many_pages_as_its_bounds_allow() {
        let most = u32::try_from(FETCH_BYTES_MAX).unwrap();
        assert_eq!(fitting(&pages(&[4096; 3])), 3);
        assert_eq!(fitting(&pages(&vec![4096; FETCH_PAGES_MAX + 1])), FETCH_PAGES_MAX);
        assert_eq!(fitting(&pages(&[most / 2, most / 2, 4096])), 2);
        assert_eq!(fitting(&pages(&[most + 4096, 4096])), 1, "a page that is too large is asked for alone");
    }
}

//! How are pages taken out of a node's memory without asking the node?
//!
//! Where its cache is mapped here, the caller copies them out itself; elsewhere the driver posts the reads, all of a call with one
//! announcement, into target memory, and the caller copies out of that. Either way the private copy is verified.
//!
//! Invariants
//! - Nothing here fails: a page that could not be taken is asked for.

use std::{sync::Arc, time::Instant};

use rackscan_cache::{Unusable, View, limits::HEADER_BYTES};
use rackscan_format::{
    ids::NodeId,
    limits::CACHE_USED_MAX,
    message::{CachePlace, Request},
    page::PageIdentity,
    segment::Extent,
};
use tokio::sync::oneshot;

use super::{Opened, RemoteCache};
use crate::{Cluster, PageBuffer, driver::ReadJob};

/// A page that is to be taken, and where its copy goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taking {
    pub(crate) place: CachePlace,
    pub(crate) extent: Extent,
    /// Bytes from the span's beginning.
    pub(crate) offset_bytes: usize,
}

/// What was taken without asking.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OneSided {
    pub(crate) pages: u32,
    /// Bytes that crossed the wire for them.
    pub(crate) bytes: u64,
}

impl Cluster {
    /// Takes what is known to lie in the node's cache. A page that is not taken stays `None`.
    pub(crate) async fn take_known(
        &self,
        node: NodeId,
        wanted: &[(PageIdentity, Extent)],
        found: &mut [Option<PageBuffer>],
    ) -> OneSided {
        let none = OneSided::default();
        let Ok(position) = self.position(node) else { return none };
        let cache = &self.shared.nodes[position].cache;
        let Some(opened) = cache.opened() else { return none };
        let mut known = Vec::new();
        let mut offset_bytes = 0;
        for (index, (identity, extent)) in wanted.iter().enumerate() {
            let Some(place) = cache.find(identity).filter(|_| found[index].is_none()) else { continue };
            if opened.view.holds(place, extent) {
                known.push((index, Taking { place, extent: *extent, offset_bytes }));
                offset_bytes += View::needed_bytes(extent);
            }
        }
        if known.is_empty() {
            return none;
        }
        let taken = match &opened.mapped {
            Some(_) => self.take_mapped(&opened, &known),
            None => self.take_by_reads(position, &opened, &known, offset_bytes).await,
        };
        // A connection that has ended meanwhile says nothing about what is true now.
        if !cache.is_still(&opened) {
            return none;
        }
        let (mut used, mut bytes) = (Vec::new(), 0);
        for ((index, taking), page) in known.iter().zip(taken) {
            match page {
                Some(Ok(page)) => {
                    used.push(taking.place);
                    bytes += View::needed_bytes(&taking.extent) as u64;
                    found[*index] = Some(page);
                }
                Some(Err(reason)) => {
                    tracing::trace!(%node, %reason, "a page is asked for after all");
                    cache.forget(&wanted[*index].0);
                }
                None => {}
            }
        }
        let told = cache.used(&used);
        self.tell_used(node, told);
        OneSided { pages: u32::try_from(used.len()).unwrap_or(u32::MAX), bytes }
    }

    /// Tells a node which pages of its cache were used.
    pub(crate) fn tell_used(&self, node: NodeId, mut places: Vec<CachePlace>) {
        places.truncate(CACHE_USED_MAX);
        if !places.is_empty() && !self.tell(node, Request::CacheUsed { places }) {
            tracing::debug!(%node, "a node does not learn of pages that were used: it has as many requests as it may");
        }
    }

    /// Where a node's cache can be read.
    pub(crate) fn remote_cache(&self, node: NodeId) -> Option<&Arc<RemoteCache>> {
        let position = self.position(node).ok()?;
        Some(&self.shared.nodes[position].cache)
    }

    fn take_mapped(&self, opened: &Opened, known: &[(usize, Taking)]) -> Vec<Option<Taken>> {
        let take = |(_, taking): &(usize, Taking)| {
            let (mapped, length) = (opened.mapped.as_ref()?, taking.extent.length_bytes as usize);
            let mut is_inside = true;
            let filled = self.shared.pages.filled(length, |page| {
                let taken = opened.view.take_mapped(mapped, taking.place, &taking.extent, page);
                is_inside = taken.is_some();
                taken.unwrap_or(Ok(()))
            });
            is_inside.then_some(filled)
        };
        known.iter().map(take).collect()
    }

    async fn take_by_reads(
        &self,
        position: usize,
        opened: &Arc<Opened>,
        known: &[(usize, Taking)],
        bytes: usize,
    ) -> Vec<Option<Taken>> {
        let none = || known.iter().map(|_| None).collect();
        let Ok(span) = self.shared.memory.take(bytes, "pages of a cache").await else { return none() };
        let permits = Arc::clone(&self.shared.nodes[position].permits);
        let Ok(permit) = permits.acquire_owned().await else { return none() };
        let (answer, answered) = oneshot::channel();
        let pages = known.iter().map(|(_, taking)| *taking).collect();
        let deadline = Instant::now() + self.shared.request_timeout;
        let opened_there = Arc::clone(opened);
        let job = ReadJob { node: position, opened: opened_there, pages, span, permit, deadline, answer };
        if !self.shared.driver.submit_read(job) {
            return none();
        }
        let Ok(span) = answered.await else { return none() };
        let take = |(_, taking): &(usize, Taking)| {
            let length = taking.extent.length_bytes as usize;
            let mut header = [0; HEADER_BYTES];
            span.copy_out(taking.offset_bytes + length, &mut header).ok()?;
            let filled = self.shared.pages.filled(length, |page| {
                // The span is as long as it was asked to be; were it not, the checksum would say so.
                let _ = span.copy_out(taking.offset_bytes, page);
                opened.view.verify(page, &header, taking.place, &taking.extent)
            });
            Some(filled)
        };
        known.iter().map(take).collect()
    }
}

/// A page, or why it must be asked for.
type Taken = Result<PageBuffer, Unusable>;

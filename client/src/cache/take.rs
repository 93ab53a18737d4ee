//! Reads pages out of a node's cache one-sidedly, without a request to the node.
//!
//! If the cache is mapped into this process, the caller copies pages out itself. Otherwise the
//! driver (the thread that owns the connections) posts all reads of a call together; they write
//! into target memory (the registered memory for answers), and the caller copies the pages from
//! there. Either way the page's own checksum and identity verify the private copy, so the scan need
//! not verify it again. The checksum of the slot would not prove more.
//!
//! Invariants
//! - Nothing here fails: a page that could not be read one-sidedly is requested.

use std::{sync::Arc, time::Instant};

use rackscan_cache::{Unusable, View, limits::HEADER_BYTES};
use rackscan_format::{
    ids::NodeId,
    limits::CACHE_USED_MAX,
    message::{CachePlace, Request},
    page::{PageFault, PageIdentity},
    segment::Extent,
};
use tokio::sync::oneshot;

use super::{CachedPage, Opened, RemoteCache};
use crate::{Cluster, PageBuffer, driver::ReadJob};

/// The pages that were read one-sidedly.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OneSided {
    pub(crate) pages: u32,
    /// Bytes that crossed the wire for them.
    pub(crate) bytes: u64,
}

impl Cluster {
    /// Reads pages whose places in the node's cache are known. A page that is not read stays
    /// `None`.
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
                known.push((index, CachedPage { place, extent: *extent, identity: *identity, offset_bytes }));
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
        // If the connection has ended meanwhile, the pages may not be valid any more.
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
                    tracing::trace!(%node, %reason, "a page is requested after all");
                    cache.forget(&wanted[*index].0);
                }
                None => {}
            }
        }
        let told = cache.used(&used);
        self.tell_used(node, told);
        let pages = u32::try_from(used.len()).expect("the pages of a fetch: at most FETCH_PAGES_MAX");
        OneSided { pages, bytes }
    }

    /// Tells a node which pages of its cache were used.
    pub(crate) fn tell_used(&self, node: NodeId, mut places: Vec<CachePlace>) {
        places.truncate(CACHE_USED_MAX);
        if !places.is_empty() && !self.tell(node, Request::CacheUsed { places }) {
            tracing::debug!(%node, "a node is not told of pages that were used: its maximum of requests is outstanding");
        }
    }

    /// What is known of a node's cache.
    pub(crate) fn remote_cache(&self, node: NodeId) -> Option<&Arc<RemoteCache>> {
        let position = self.position(node).ok()?;
        Some(&self.shared.nodes[position].cache)
    }

    fn take_mapped(&self, opened: &Opened, known: &[(usize, CachedPage)]) -> Vec<Option<TakeResult>> {
        let take = |(_, taking): &(usize, CachedPage)| {
            let (mapped, length) = (opened.mapped.as_ref()?, taking.extent.length_bytes as usize);
            let mut header = None;
            let filled = self.shared.pages.filled(length, |page| {
                header = opened.view.copy_mapped(mapped, taking.place, &taking.extent, page);
                Ok::<(), TakeError>(())
            });
            let header = header?;
            Some(filled.and_then(|page| opened.verified(page, &header, taking)))
        };
        known.iter().map(take).collect()
    }

    async fn take_by_reads(
        &self,
        position: usize,
        opened: &Arc<Opened>,
        known: &[(usize, CachedPage)],
        bytes: usize,
    ) -> Vec<Option<TakeResult>> {
        let none = || known.iter().map(|_| None).collect();
        let Ok(span) = self.shared.memory.take(bytes, "pages of a cache").await else { return none() };
        let permits = Arc::clone(&self.shared.nodes[position].permits);
        let Ok(permit) = permits.acquire_owned().await else { return none() };
        let (answer, answered) = oneshot::channel();
        let pages = known.iter().map(|(_, taking)| *taking).collect();
        let deadline = Instant::now() + self.shared.request_timeout;
        let opened_there = Arc::clone(opened);
        let answer = Some(answer);
        let job = ReadJob { node: position, opened: opened_there, pages, span, permit, deadline, answer };
        if !self.shared.driver.submit_read(job) {
            return none();
        }
        let Ok(span) = answered.await else { return none() };
        let take = |(_, taking): &(usize, CachedPage)| {
            let length = taking.extent.length_bytes as usize;
            let mut header = [0; HEADER_BYTES];
            span.copy_out(taking.offset_bytes + length, &mut header).ok()?;
            let filled = self.shared.pages.filled(length, |page| {
                // The span is long enough; if it were not, the checksum would be wrong.
                let _ = span.copy_out(taking.offset_bytes, page);
                Ok::<(), TakeError>(())
            });
            Some(filled.and_then(|page| opened.verified(page, &header, taking)))
        };
        known.iter().map(take).collect()
    }
}

impl Opened {
    /// Verifies a private copy of a page: its slot was published while it was read, and its bytes
    /// are those of the page.
    fn verified(
        &self,
        mut page: PageBuffer,
        header: &[u8; HEADER_BYTES],
        taking: &CachedPage,
    ) -> Result<PageBuffer, TakeError> {
        self.view.verify_header(header, taking.place, &taking.extent)?;
        page.verify(&taking.identity)?;
        Ok(page)
    }
}

/// Why a page that was read one-sidedly is not used, and must be requested.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    /// Its slot has changed.
    #[error(transparent)]
    Slot(#[from] Unusable),
    /// The bytes are not the page; usually they changed while they were read.
    #[error(transparent)]
    Page(#[from] PageFault),
}

/// A page, or why it must be requested.
type TakeResult = Result<PageBuffer, TakeError>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cache::stored, page_buffer::PagePool};
    use rackscan_cache::limits::FRAME_BYTES;
    use rackscan_format::{
        ids::DeviceId,
        message::{CacheRegion, Target},
    };

    const EPOCH: u64 = 77;
    const PLACE: CachePlace = CachePlace { frame: 1, version: 4 };

    /// The header of a slot, as [`rackscan_cache`] lays it out.
    fn header(version: u64, extent: &Extent) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&version.to_le_bytes());
        header[8..16].copy_from_slice(&EPOCH.to_le_bytes());
        header[16..24].copy_from_slice(&extent.offset_bytes.to_le_bytes());
        header[24..28].copy_from_slice(&extent.length_bytes.to_le_bytes());
        header[28..32].copy_from_slice(&u32::from(extent.device.0).to_le_bytes());
        header
    }

    #[test]
    fn what_was_taken_is_right_and_neither_torn_nor_withdrawn_nor_another_page() {
        let frames = 8;
        let length_bytes = (FRAME_BYTES * (frames as usize + 1)) as u64;
        let memory = Target { key: 1, offset_bytes: 0, length_bytes };
        let view = View::new(&CacheRegion { memory, frames, epoch: EPOCH }).unwrap();
        let opened = Opened { view, mapped: None };
        let page = stored::pages(2).swap_remove(0);
        let length_bytes = u32::try_from(page.len()).unwrap();
        let extent = Extent { device: DeviceId(0), offset_bytes: 8192, length_bytes };
        let identity = stored::identity(2, 0);
        let taking = CachedPage { place: PLACE, extent, identity, offset_bytes: 0 };
        let pool = Arc::new(PagePool::default());
        let taken = |bytes: &[u8], version: u64| {
            let filled = pool.filled(bytes.len(), |to| {
                to.copy_from_slice(bytes);
                Ok::<(), TakeError>(())
            });
            filled.and_then(|copy| opened.verified(copy, &header(version, &extent), &taking))
        };
        assert!(taken(&page, 4).unwrap().is_right());
        assert!(matches!(taken(&page, 6), Err(TakeError::Slot(Unusable::Version { .. }))));
        for at in (0..page.len()).step_by(64) {
            let mut torn = page.clone();
            torn[at..].fill(0);
            if torn != page {
                assert!(matches!(taken(&torn, 4), Err(TakeError::Page(_))), "torn at {at}");
            }
        }
        assert!(
            matches!(taken(&stored::pages(3)[0], 4), Err(TakeError::Page(_))),
            "a page of another segment"
        );
    }
}

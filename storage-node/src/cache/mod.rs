//! Connects the node's page cache to its devices and to its connections.
//!
//! `rackscan-cache` decides which pages are cached and how clients read them; this module lets
//! devices write into its memory and grants connections access to it.
//!
//! Invariants
//! - A connection gets access to the cache at most once, and for reading only.
//! - A node has no cache, or one whose memory was allocated at the start.

use std::sync::Arc;

use rackscan_cache::{Fill, Look, PageCache};
use rackscan_device::ExternalMemory;
use rackscan_fabric::{OutOfBounds, RegionError};
use rackscan_format::segment::Extent;

use crate::error::StartError;

/// A node's page cache.
#[derive(Debug)]
pub(crate) struct NodeCache {
    pages: Arc<PageCache>,
    /// The same memory, as the devices see it.
    memory: ExternalMemory,
}

impl NodeCache {
    /// Allocates the memory. `None` if the node has no cache.
    pub(crate) fn new(budget_bytes: u64, reactors: usize) -> Result<Option<Self>, StartError> {
        if budget_bytes == 0 {
            return Ok(None);
        }
        let epoch = getrandom::u64().map_err(|error| StartError::Os {
            action: "draw a random number",
            source: std::io::Error::other(error.to_string()),
        })?;
        let Some(pages) = PageCache::new(budget_bytes, reactors, epoch)? else { return Ok(None) };
        let whole = pages.region().as_raw_slice(0, pages.region().bytes()).map_err(RegionError::from)?;
        let Some(shared) = whole.into_shared_bytes() else {
            // Regions of this process are writable; only a peer's may be read-only.
            return Err(
                RegionError::OutOfBounds(OutOfBounds { offset: 0, length: 0, region_bytes: 0 }).into()
            );
        };
        Ok(Some(Self { pages, memory: ExternalMemory::of_bytes(Arc::new(shared)) }))
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &Arc<PageCache> {
        &self.pages
    }

    /// What to do for the page in this extent.
    pub(crate) fn look(&self, extent: &Extent) -> Look {
        self.pages.look(extent)
    }

    /// The memory into which a device reads a page that is to be kept.
    pub(crate) fn memory(&self, fill: &Fill) -> Option<ExternalMemory> {
        let (offset, length) = fill.place_bytes();
        self.memory.part(offset, length)
    }
}

//! Records what a client knows about one node's page cache: in which slots pages are, and which of
//! them the client has used since it last reported uses to the node.
//!
//! Invariants
//! - Slots are known for one connection only; a new connection begins without any.
//! - Uses of pages are reported many at a time, and the list of unreported uses is bounded. If the
//!   list is lost, only the node's count of uses is too low.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rackscan_cache::{Book, View, limits::BOOK_PAGES_MAX};
use rackscan_fabric::RawSlice;
use rackscan_format::{message::CachePlace, page::PageIdentity, segment::Extent};

use crate::limits::CACHE_USED_TOLD;

/// A node's cache as the present connection sees it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) view: View,
    /// The memory, if the wire maps it into this process.
    pub(crate) mapped: Option<RawSlice>,
}

/// A page in a node's cache that is to be read one-sidedly, and where its copy goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedPage {
    pub(crate) place: CachePlace,
    pub(crate) extent: Extent,
    /// The identity of the page.
    pub(crate) identity: PageIdentity,
    /// Offset in the span.
    pub(crate) offset_bytes: usize,
}

/// A client's knowledge of one node's cache.
#[derive(Debug)]
pub(crate) struct RemoteCache {
    opened: RwLock<Option<Arc<Opened>>>,
    book: Mutex<Book<PageIdentity>>,
    used: Mutex<Vec<CachePlace>>,
}

impl Default for RemoteCache {
    fn default() -> Self {
        Self {
            opened: RwLock::default(),
            book: Mutex::new(Book::new(BOOK_PAGES_MAX)),
            used: Mutex::default(),
        }
    }
}

impl RemoteCache {
    fn book(&self) -> MutexGuard<'_, Book<PageIdentity>> {
        // The entries are hints, so a book that a panic left half changed does no harm.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection begins, over which the cache can be read if it was opened.
    pub(crate) fn connected(&self, opened: Option<Opened>) {
        self.forget_all();
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = opened.map(Arc::new);
    }

    /// The connection has ended.
    pub(crate) fn disconnected(&self) {
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.forget_all();
    }

    fn forget_all(&self) {
        self.book().clear();
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The cache, if it can be read now.
    pub(crate) fn opened(&self) -> Option<Arc<Opened>> {
        self.opened.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the connection is still the one over which this cache was opened.
    pub(crate) fn is_still(&self, opened: &Arc<Opened>) -> bool {
        self.opened().is_some_and(|now| Arc::ptr_eq(&now, opened))
    }

    /// The place of a page, as the node last said.
    pub(crate) fn find(&self, page: &PageIdentity) -> Option<CachePlace> {
        self.book().find(page)
    }

    /// Records places that the node named.
    pub(crate) fn learn(&self, pages: impl Iterator<Item = (PageIdentity, CachePlace)>) {
        if self.opened().is_some() {
            let mut book = self.book();
            pages.for_each(|(page, place)| book.learn(page, place));
        }
    }

    /// Removes a page that is no longer at its place.
    pub(crate) fn forget(&self, page: &PageIdentity) {
        self.book().forget(page);
    }

    /// Records that pages were used. Returns the uses to tell the node now.
    pub(crate) fn used(&self, places: &[CachePlace]) -> Vec<CachePlace> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.extend_from_slice(places);
        if used.len() >= CACHE_USED_TOLD { std::mem::take(&mut used) } else { Vec::new() }
    }

    /// Takes all uses that the node was not told of.
    pub(crate) fn untold(&self) -> Vec<CachePlace> {
        std::mem::take(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

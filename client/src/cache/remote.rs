//! What do we know of one node's page cache, and what have we not told it yet?
//!
//! Invariants
//! - Places count for the connection over which they were heard; a new one begins with an empty
//!   book.
//! - Pages that were used are told in bulk; what waits to be told is bounded, and what is lost is a
//!   count.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rackscan_cache::{Book, View, limits::BOOK_PAGES_MAX};
use rackscan_fabric::RawSlice;
use rackscan_format::{message::CachePlace, page::PageIdentity};

use crate::limits::CACHE_USED_TOLD;

/// A node's cache as the present connection sees it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) view: View,
    /// The memory itself, where the wire maps it here.
    pub(crate) mapped: Option<RawSlice>,
}

/// What is known of one node's cache.
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
        // A book that a panic left half changed is a book of hints all the same.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection begins, over which the cache can be read or not.
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

    /// Whether the connection is still the one that this was opened over.
    pub(crate) fn is_still(&self, opened: &Arc<Opened>) -> bool {
        self.opened().is_some_and(|now| Arc::ptr_eq(&now, opened))
    }

    /// Where a page lay when the node last spoke of it.
    pub(crate) fn find(&self, page: &PageIdentity) -> Option<CachePlace> {
        self.book().find(page)
    }

    /// The node says that pages lie there.
    pub(crate) fn learn(&self, pages: impl Iterator<Item = (PageIdentity, CachePlace)>) {
        if self.opened().is_some() {
            let mut book = self.book();
            pages.for_each(|(page, place)| book.learn(page, place));
        }
    }

    /// A page does not lie there any more.
    pub(crate) fn forget(&self, page: &PageIdentity) {
        self.book().forget(page);
    }

    /// Pages were taken. Returns those to be told to the node now.
    pub(crate) fn used(&self, places: &[CachePlace]) -> Vec<CachePlace> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.extend_from_slice(places);
        if used.len() >= CACHE_USED_TOLD { std::mem::take(&mut used) } else { Vec::new() }
    }

    /// Everything that waits to be told.
    pub(crate) fn untold(&self) -> Vec<CachePlace> {
        std::mem::take(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

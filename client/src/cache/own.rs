//! Caches pages in this process for its own later scans.
//!
//! Invariants
//! - The memory of the cached pages stays within the budget. A page that the cache has dropped
//!   stays alive while a scan uses it.
//! - Only pages with the right checksum and identity are cached. Table ids are never used again, so
//!   such a page stays valid.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rackscan_cache::{Policy, Verdict, limits::FRAME_BYTES};
use rackscan_format::{ids::NodeId, page::PageIdentity};

use crate::PageBuffer;

/// A page of the cluster.
type Key = (NodeId, PageIdentity);

/// The pages kept.
#[derive(Debug)]
pub(crate) struct OwnPages {
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    policy: Policy<Key>,
    pages: HashMap<Key, Arc<PageBuffer>>,
}

impl OwnPages {
    /// A cache of so many bytes; `None` if that is less than one frame.
    pub(crate) fn new(budget_bytes: u64) -> Option<Self> {
        let units = budget_bytes / FRAME_BYTES as u64;
        let kept = || Kept { policy: Policy::new(units), pages: HashMap::new() };
        (units > 0).then(|| Self { kept: Mutex::new(kept()) })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Both tables are changed together, by code that does not panic in between.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a page if it is kept, and counts the use.
    pub(crate) fn find(&self, node: NodeId, identity: PageIdentity) -> Option<PageBuffer> {
        let mut kept = self.lock();
        let page = kept.pages.get(&(node, identity)).map(Arc::clone)?;
        kept.policy.hit(&(node, identity));
        Some(PageBuffer::shared(page))
    }

    /// Whether a page is kept, without counting a use.
    pub(crate) fn keeps(&self, node: NodeId, identity: PageIdentity) -> bool {
        self.lock().pages.contains_key(&(node, identity))
    }

    /// Offers a page to the cache, which keeps it if the policy admits it. Returns the page.
    pub(crate) fn offer(&self, node: NodeId, identity: PageIdentity, mut page: PageBuffer) -> PageBuffer {
        let (key, units) = ((node, identity), page.memory_bytes().div_ceil(FRAME_BYTES) as u64);
        let is_new = |kept: &Kept| !kept.policy.contains(&key);
        {
            let mut kept = self.lock();
            if !is_new(&kept) || kept.policy.miss(key, units) == Verdict::Bypass {
                return page;
            }
        }
        // Outside of the lock: the checksum takes a while. The scan reports a page that is wrong.
        if page.verify(&identity).is_err() {
            return page;
        }
        let page = Arc::new(page);
        let mut gone = Vec::new();
        {
            let mut kept = self.lock();
            while is_new(&kept) {
                if kept.policy.insert(key, units) {
                    kept.pages.insert(key, Arc::clone(&page));
                } else if let Some(victim) = kept.policy.evict(|_| true) {
                    gone.extend(kept.pages.remove(&victim));
                } else {
                    break;
                }
            }
        }
        drop(gone);
        PageBuffer::shared(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cache::stored, page_buffer::PagePool};

    fn identity(page: u16) -> PageIdentity {
        stored::identity(2, page)
    }

    fn buffer(bytes: &[u8]) -> PageBuffer {
        let pool = Arc::new(PagePool::default());
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok::<(), ()>(())
        };
        pool.filled(bytes.len(), fill).unwrap()
    }

    #[test]
    fn right_pages_are_kept_within_the_budget_and_wrong_ones_are_not() {
        let own = OwnPages::new(256 << 10).unwrap();
        let pages = stored::pages(2);
        for (number, bytes) in (0..).zip(&pages) {
            own.offer(NodeId(1), identity(number), buffer(bytes));
        }
        let kept = own.lock();
        let used: usize = kept.pages.values().map(|page| page.memory_bytes()).sum();
        assert!(used <= 256 << 10 && kept.pages.len() > 3, "{used} bytes in {} pages", kept.pages.len());
        drop(kept);
        let found = own.find(NodeId(1), identity(0)).unwrap();
        assert!(found.bytes() == pages[0] && found.is_right(), "nobody need look again");
        assert!(own.find(NodeId(2), identity(0)).is_none(), "a page of another node");
        let own = OwnPages::new(1 << 20).unwrap();
        own.offer(NodeId(1), identity(7), buffer(&pages[0]));
        let mut broken = pages[1].clone();
        broken[100] ^= 1;
        own.offer(NodeId(1), identity(1), buffer(&broken));
        assert!(own.find(NodeId(1), identity(7)).is_none() && own.find(NodeId(1), identity(1)).is_none());
    }
}

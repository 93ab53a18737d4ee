//! Allocates the buffers that contain pages while they are scanned.
//!
//! Invariants
//! - A [`PageBuffer`] is private memory: no peer and no device can write it any more.
//! - It begins at a multiple of 4 KiB, and its length is that of the stored page.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use rackscan_device::Buffer;
use rackscan_format::page::{PageFault, PageIdentity, PageView};

use crate::limits::PAGE_BYTES_KEPT_MAX;

const ALIGN_BYTES: usize = 4096;
/// Vectors are allocated in these steps, so that one can be reused for a page of about the same
/// size.
const STEP_BYTES: usize = 32 << 10;

/// One stored page, owned.
pub struct PageBuffer {
    memory: Memory,
    start: usize,
    length: usize,
    is_right: bool,
}

enum Memory {
    /// A page that is shared with others.
    Shared(Arc<PageBuffer>),
    /// A buffer that a local device was read into.
    Device(Buffer),
    /// A copy out of memory that a peer or a device uses again.
    Copied { bytes: Vec<u8>, pool: Arc<PagePool> },
}

impl PageBuffer {
    /// A page in the first `length` bytes of a buffer that a device read into.
    pub(crate) fn of_device(buffer: Buffer, length: usize) -> Self {
        let length = length.min(buffer.len());
        Self { memory: Memory::Device(buffer), start: 0, length, is_right: false }
    }

    /// A page that is shared with others; it counts as verified if the shared page does.
    pub(crate) fn shared(page: Arc<Self>) -> Self {
        Self { start: 0, length: page.length, is_right: page.is_right, memory: Memory::Shared(page) }
    }

    /// Verifies checksum and identity of the page, unless that was done before. After success
    /// [`Self::is_right`] is true.
    ///
    /// # Errors
    /// What is wrong with the page.
    pub(crate) fn verify(&mut self, identity: &PageIdentity) -> Result<(), PageFault> {
        if !self.is_right {
            PageView::open(self.bytes(), identity)?;
            self.is_right = true;
        }
        Ok(())
    }

    /// Whether checksum and identity of the page were verified. Its bytes have not changed since.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.is_right
    }

    /// The stored bytes, to be written; `None` if they are shared. The page counts as not verified
    /// after that.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.is_right = false;
        match &mut self.memory {
            Memory::Copied { bytes, .. } => Some(&mut bytes[self.start..self.start + self.length]),
            Memory::Shared(_) | Memory::Device(_) => None,
        }
    }

    /// Bytes of memory that the page takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.memory {
            Memory::Shared(page) => page.memory_bytes(),
            Memory::Device(buffer) => buffer.len(),
            Memory::Copied { bytes, .. } => bytes.len(),
        }
    }

    /// The page's stored bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Shared(page) => page.bytes(),
            Memory::Device(buffer) => &buffer[..self.length],
            Memory::Copied { bytes, .. } => &bytes[self.start..self.start + self.length],
        }
    }
}

impl AsRef<[u8]> for PageBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl std::ops::Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBuffer").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        if let Memory::Copied { bytes, pool } = &mut self.memory {
            pool.keep(std::mem::take(bytes));
        }
    }
}

/// Freed page buffers, reused for later pages: fresh memory costs a page fault for every 4 KiB.
#[derive(Debug, Default)]
pub(crate) struct PagePool {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By length.
    vectors: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

impl PagePool {
    /// A buffer of `length` bytes, filled by `fill` (which is given bytes of any content).
    ///
    /// # Errors
    /// Those of `fill`.
    pub(crate) fn filled<E>(
        self: &Arc<Self>,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<PageBuffer, E> {
        let needed = (length + ALIGN_BYTES - 1).next_multiple_of(STEP_BYTES);
        let mut bytes = self.reuse(needed).unwrap_or_else(|| vec![0; needed]);
        let start = bytes.as_ptr().addr().next_multiple_of(ALIGN_BYTES) - bytes.as_ptr().addr();
        let filled = fill(&mut bytes[start..start + length]);
        let memory = Memory::Copied { bytes, pool: Arc::clone(self) };
        // Also if filling failed: dropping the buffer returns its memory to the pool.
        let buffer = PageBuffer { memory, start, length, is_right: false };
        filled.map(|()| buffer)
    }

    fn reuse(&self, needed: usize) -> Option<Vec<u8>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, vectors) =
            kept.vectors.range_mut(needed..=2 * needed).find(|(_, vectors)| !vectors.is_empty())?;
        let bytes = vectors.pop()?;
        kept.bytes -= bytes.len();
        Some(bytes)
    }

    fn keep(&self, bytes: Vec<u8>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !bytes.is_empty() && kept.bytes + bytes.len() <= PAGE_BYTES_KEPT_MAX {
            kept.bytes += bytes.len();
            kept.vectors.entry(bytes.len()).or_default().push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &Arc<PagePool>, length: usize, with: u8) -> PageBuffer {
        pool.filled(length, |bytes| {
            bytes.fill(with);
            Ok::<(), ()>(())
        })
        .unwrap()
    }

    #[test]
    fn a_buffer_is_aligned_and_as_long_as_its_page() {
        let pool = Arc::new(PagePool::default());
        for length in [4096, 8192, 135_168, 4 << 20] {
            let buffer = filled(&pool, length, 7);
            assert!(buffer.as_ptr().addr().is_multiple_of(ALIGN_BYTES));
            assert!(buffer.len() == length && buffer.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_dropped_buffer_is_used_again_and_a_held_one_is_not() {
        let pool = Arc::new(PagePool::default());
        let (held, dropped) = (filled(&pool, 131_072, 1), filled(&pool, 131_072, 2));
        let address = dropped.as_ptr().addr();
        drop(dropped);
        let again = filled(&pool, 126_976, 3);
        assert_eq!(again.as_ptr().addr(), address);
        assert!(held.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let pool = Arc::new(PagePool::default());
        let buffers: Vec<_> =
            (0..PAGE_BYTES_KEPT_MAX / (4 << 20) + 8).map(|_| filled(&pool, 4 << 20, 0)).collect();
        drop(buffers);
        let kept = pool.kept.lock().unwrap().bytes;
        assert!(kept > PAGE_BYTES_KEPT_MAX / 2 && kept <= PAGE_BYTES_KEPT_MAX, "{kept} bytes kept");
    }
}

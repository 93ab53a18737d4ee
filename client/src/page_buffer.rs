//! Where do the bytes of a page live while they are scanned?
//!
//! Invariants
//! - A [`PageBuffer`] is private memory: no peer and no device can write it any more.
//! - It begins at a multiple of 4 KiB and its length is the page's stored bytes.

use rackscan_device::Buffer;

/// One stored page, owned.
#[derive(Debug)]
pub struct PageBuffer {
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Device { buffer: Buffer, length: usize },
    Copied(Vec<u8>),
}

impl PageBuffer {
    /// The page's stored bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Device { buffer, length } => &buffer[..*length],
            Memory::Copied(bytes) => bytes,
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

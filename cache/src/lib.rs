//! Which pages stay in memory, and how are they read there without asking?
//!
//! ```text
//! a storage node                                                  a reader, anywhere
//!   PageCache::look(extent)                                         Book: where did a page lie, as of which version?
//!     hit     the slot, pinned while it is sent        region         |
//!     fill    a slot that the device reads into  -->  [headers|frames] <-- two one-sided reads: bytes, then header
//!     bypass  not kept                                                |
//!   PageCache::withdraw(extent) before bytes change                 verify: version, epoch, key, checksum
//! ```
//!
//! Life of a slot: *free* -> *being filled* (version odd) -> *published* (version even, header and
//! bytes at rest) -> *withdrawn* (version odd, to make room or because the extent changes) -> free
//! when nobody sends from it. Versions of a frame only grow.
//!
//! Why a page that passes [`View::verify`] is right. The reader knows a version from a reply of the
//! node that followed the publication. It reads the bytes and then the header. Operations of a
//! connection are executed in order, so a header that still has that version was read while the
//! slot was published, and so were the bytes before it. Where a wire keeps less than that order in
//! memory, the checksum over key and bytes tells whether the bytes are those that the header speaks
//! of, and the version that they were still true. Version and checksum are looked at on a private
//! copy.
//!
//! Invariants
//! - The registered region and the book-keeping stay within the budget, whatever is asked for.
//! - Only the owner writes the region, and readers have it for reading.
//! - Nothing here waits for a peer; the paths of requests never wait for a lock either.

#![forbid(unsafe_code)]

mod book;
mod doorkeeper;
mod free_space;
pub mod limits;
mod page_cache;
mod policy;
mod reader;
mod remembered;
mod shard;
mod slot;

pub use book::Book;
pub use free_space::FreeSpace;
pub use page_cache::{Fill, Look, PageCache, Pin};
pub use policy::{Policy, Verdict};
pub use reader::View;
pub use slot::{Geometry, Unusable};

//! Implements the page cache of a storage node. The cache lies in registered memory, so that other
//! processes can read pages out of it one-sidedly, without a request to the node.
//!
//! ```text
//! a storage node                                                  a reader, in any process
//!   PageCache::look(extent)                                         Book: the slot and version of each known page
//!     Hit     the slot, pinned while it is sent        region         |
//!     Fill    a slot that the device reads into  -->  [headers|frames] <-- two one-sided reads: bytes, then header
//!     Bypass  the page is served without the cache                    |
//!   PageCache::withdraw(extent) before its bytes change             View::verify: version, epoch, key, checksum
//! ```
//!
//! | word | what it means |
//! |---|---|
//! | frame | a piece of fixed size of the cache's memory |
//! | slot | the consecutive frames that contain one page, with a header |
//! | pin | keeps a slot from being reused while its page is being sent |
//! | withdraw | to make a slot invalid for readers, because its memory is needed or its extent changes |
//! | epoch | a random number that identifies one start of the node |
//! | region | the registered memory of the whole cache |
//!
//! This crate does no IO: the node reads devices into slots and sends pages out of them, and the
//! reader posts the one-sided reads that [`View`] describes. It does not know what a page contains.
//!
//! | file | contents |
//! |---|---|
//! | `page_cache` | the cache: looks, fills, pins, withdrawals; one lock per shard |
//! | `shard` | the index, the free frames and the policy of one shard |
//! | `policy`, `ghosts`, `doorkeeper` | which pages are admitted and evicted: S3-FIFO behind a doorkeeper |
//! | `free_space` | a first-fit allocator of ranges, also used for devices and staging memory |
//! | `slot` | the layout of the region and of slot headers; verification of what was read |
//! | `reader`, `book` | the reader's side: reads and their verification, known places of pages |
//! | `limits` | all bounds |
//!
//! Life of a slot: *free* -> *being filled* (version odd) -> *published* (version even, header and
//! bytes do not change) -> *withdrawn* (version odd) -> free as soon as nobody sends from it.
//! Versions of a frame only grow.
//!
//! Why a page that passes [`View::verify`] is right: The reader knows the version from a reply that
//! the node sent after it published the slot. The reader reads the bytes and then the header.
//! Operations of a connection are executed in order, so a header that still has that version was
//! read while the slot was published, and so were the bytes before it. Some wires do not guarantee
//! that order of reads from memory. There, the checksum over key and bytes shows that the bytes
//! belong to the header, and the version shows that the slot was still published. Version and
//! checksum are checked on a private copy.
//!
//! Invariants
//! - The registered region and the bookkeeping stay within the budget, for any requests.
//! - Only the owner writes the region; readers have read access.
//! - No call waits for a peer, and requests never wait for a lock.
//!
//! An example: a node fills a slot, and a reader verifies what it copies out of it.
//!
//! ```
//! use rackscan_cache::{Look, PageCache, Unusable, View};
//! use rackscan_format::message::{CacheRegion, Target};
//! use rackscan_format::{ids::DeviceId, segment::Extent};
//!
//! let cache = PageCache::new(1 << 20, 1, 77)?.ok_or("the budget is too small")?;
//! let extent = Extent { device: DeviceId(0), offset_bytes: 8192, length_bytes: 4096 };
//! let Look::Fill(slot) = cache.look(&extent) else { panic!("the page is not in the cache yet") };
//! let (offset, length) = slot.place_bytes();
//! cache.region().copy_in(offset, &vec![7; length])?;
//! let place = slot.publish().place().ok_or("withdrawn")?;
//! assert!(matches!(cache.look(&extent), Look::Hit(_)));
//!
//! // The reader is told of the memory and of the place, and sends no request for the page.
//! let memory = Target { key: 1, offset_bytes: 0, length_bytes: cache.region().bytes() as u64 };
//! let about = CacheRegion { memory, frames: cache.geometry().frames(), epoch: cache.epoch() };
//! let view = View::new(&about).ok_or("inconsistent")?;
//! let mapped = cache.region().as_raw_slice(0, cache.region().bytes())?;
//! let mut page = [0; 4096];
//! assert_eq!(view.take_mapped(&mapped, place, &extent, &mut page), Some(Ok(())));
//! assert_eq!(page, [7; 4096]);
//! cache.withdraw(&extent);
//! let outdated = view.take_mapped(&mapped, place, &extent, &mut page);
//! assert!(matches!(outdated, Some(Err(Unusable::Version { .. }))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod book;
mod doorkeeper;
mod free_space;
mod ghosts;
pub mod limits;
mod page_cache;
mod policy;
mod reader;
mod shard;
mod slot;

pub use book::Book;
pub use free_space::FreeSpace;
pub use page_cache::{Fill, Look, PageCache, Pin};
pub use policy::{Policy, Verdict};
pub use reader::View;
pub use slot::{Geometry, Unusable};

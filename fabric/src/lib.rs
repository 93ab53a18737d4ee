//! How do I read and write another process's memory?
//!
//! # Life of an operation
//!
//! 1. Both sides take a [`Region`] of memory. One [`Connection::register`]s it, which gives the
//!    peer of *that* connection access under a random key, and sends the resulting
//!    [`RemoteRegion`], a plain name, in a message.
//! 2. The other side [`Connection::post`]s operations on the name: `Write`, `Read`, `FetchAdd`,
//!    `CompareSwap`. The owner of the memory does nothing; its process need not even look. `Send`
//!    and `WriteWithImmediate` are the two that its `poll` sees.
//! 3. [`Connection::poll`] (never waits), [`Connection::wait`] (polls for a moment, then sleeps) or
//!    a reactor that sleeps on [`Connection::wait_fd`] after [`Connection::arm`] report a
//!    completion for every operation, in order.
//!
//! # What holds on every wire
//!
//! - **Order.** Operations of one connection are executed in the order of posting (on `tcp` and
//!   `verbs` what is posted behind a read waits for it, so mixing the two costs round trips); who
//!   sees a message or an immediate sees every byte written before it. Nothing is promised across
//!   connections.
//! - **Completion.** A write that has completed happens, whatever becomes of the connection, unless
//!   the peer dies. Its owner's processor may see the bytes a little later, and not all at once; a
//!   message, immediate, read or atomic that is posted behind the write comes after all of them.
//! - **Tearing.** A read that races with a write sees any mix of both, byte by byte. Aligned words
//!   used by atomics only are never torn, and a write of 8 bytes to a multiple of 8 of the region
//!   is one store on `shm`, `tcp` and `sim`: [`Region::load_u64`] sees all of it or nothing. On
//!   `verbs` it is what the adapter makes of it: an emulated one (Soft-RoCE) copies byte by byte.
//!   Who relies on a word proves it (see [`post`]).
//! - **Atomics.** A remote atomic is atomic against other remote atomics. A store of the owner or a
//!   remote write that meets one on the same word may be lost.
//! - **Bounds.** At most [`limits::QUEUE_DEPTH_MAX`] operations are in flight; one more is
//!   [`PostError::QueueFull`], and nothing ever waits in secret.
//! - **Refusal.** A wrong key, a place outside of the region or an access that was not granted ends
//!   that operation with an [`OperationError`], touches no memory, and leaves the connection as it
//!   was; but on `verbs` the connection ends with it ([`Wire::outlives_refusal`]).
//! - **Endings.** A peer that closes is [`Ending::Orderly`], one that dies is [`Ending::Lost`], one
//!   that breaks the protocol is [`Ending::Violation`]; [`Ending::Failed`] is a refusal where that
//!   is an ending. All operations in flight fail first; [`Event::Closed`] is the last event.
//! - **Trust.** Peers prove the [`ClusterKey`] to each other before anything is shared. On `shm` a
//!   peer that has proved it maps the memory, so revocation binds only a peer that keeps to the
//!   rules; on `tcp` and `verbs` bytes travel unencrypted.
//!
//! # Which wire when
//!
//! | wire | for | read, write, atomics | messages |
//! |---|---|---|---|
//! | `shm:/path` | processes of one user on one machine | a copy by the poster, in `post`; no system call | a ring or an inbox in shared memory |
//! | `tcp:host:port` | different machines without RDMA | served by the peer's responder thread | a bounded queue or an inbox, filled by it |
//! | `verbs:device@host:port` | machines with RDMA adapters (cargo feature `verbs`) | by the adapters; no CPU of the peer | a ring that the sender writes, or a shared receive queue |
//! | `sim:network/place` | tests, in one process and virtual time ([`sim`]) | as hostile as the above allows | a bounded queue |
//!
//! # Where messages arrive
//!
//! Without more, a peer's messages arrive at its [`Connection`], in memory that is there for that
//! peer alone. A listener that is bound with [`inbox::Inbox`]es ([`Listener::bind_inboxes`])
//! receives them there instead, in one order over all peers and in memory that does not grow with
//! their number; the peers notice no difference. Everything else stays with the connection, which
//! must be polled as before: it is how the end of its peer is noticed.
//!
//! # Requests by writes alone
//!
//! A message can also be a plain write, into memory that its receiver looks at: [`post`]. The
//! receiver's processor does nothing for its arrival, and neither end keeps a queue.
//!
//! # Example
//!
//! ```
//! use std::time::{Duration, Instant};
//! use rackscan_fabric::{Access, Address, ClusterKey, Done, Event, Listener, Operation, Region, connect};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let soon = Instant::now() + Duration::from_secs(5);
//! let key = ClusterKey::generate()?;
//! let mut listener = Listener::bind(&"tcp:127.0.0.1:0".parse()?, &key)?;
//! let mut ours = connect(listener.address(), &key, soon)?;
//! let mut theirs = listener.accept_until(soon)?.ok_or("nobody called")?;
//!
//! // They share a page; the name would travel in a message.
//! let page = Region::allocate(4096)?;
//! page.copy_in(100, b"one-sided")?;
//! let name = theirs.register(&page, Access::Read)?;
//!
//! // We read it, and they do nothing.
//! let target = Region::allocate(4096)?;
//! ours.post(1, Operation::Read { source: name, source_offset: 100, target: target.slice(0, 9)? })?;
//! let mut events = Vec::new();
//! ours.wait(&mut events, soon);
//! assert_eq!(events, [Event::Completed { id: 1, outcome: Ok(Done::Moved { bytes: 9 }) }]);
//! assert_eq!(target.to_vec(0, 9)?, b"one-sided");
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod address;
mod completion;
mod connection;
mod counters;
mod descriptors;
mod doorbell;
mod error;
mod guarded;
mod handshake;
pub mod inbox;
mod inherited;
mod key;
pub mod limits;
mod listener;
mod memory;
mod nice;
mod operation;
mod pages;
pub mod post;
mod region;
mod shm;
pub mod sim;
mod spin;
mod stream;
mod tcp;
#[cfg(feature = "verbs")]
mod verbs;
#[cfg(not(feature = "verbs"))]
#[path = "verbs_missing.rs"]
mod verbs;
mod wall;
mod wire;

pub use address::{Address, Wire};
pub use completion::{Done, Event};
pub use connection::Connection;
pub use counters::Counters;
pub use descriptors::{CONNECTION_DESCRIPTORS, raise_descriptor_limit};
pub use error::{
    AddressError, BatchError, ClusterKeyError, ConnectError, DeviceError, Ending, ListenError,
    OperationError, OutOfBounds, PostError, RegionError, RegisterError,
};
pub use handshake::{FABRIC_MAGIC, FABRIC_VERSION};
pub use inherited::close_inherited_descriptors;
pub use key::{CLUSTER_KEY_BYTES, ClusterKey};
pub use listener::{Listener, connect};
pub use memory::{RawSlice, SharedBytes};
pub use nice::be_nice;
pub use operation::{Operation, Report};
pub use region::{Access, Region, RegionSlice, RemoteRegion};
pub use spin::{Spin, allow_spinning, spin_time};
pub use wall::{WallClock, host_name};

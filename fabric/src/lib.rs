//! Gives processes one-sided access to each other's memory, and sends messages between them.
//!
//! A [`Connection`] joins two processes over one of four wires. Each side can open parts of its
//! memory ([`Region`]) to the other, which then reads, writes and atomically updates them without
//! any action of the owner's code. The same interface and the same guarantees hold on every wire,
//! and one suite of tests (`tests/conformance`) checks them on each.
//!
//! This crate knows nothing about tables or queries. It is no RPC layer (there are no request
//! types, no retries and no reconnecting), and it encrypts nothing.
//!
//! # Life of an operation
//!
//! 1. Both sides allocate a [`Region`] of memory. The owner [`Connection::register`]s its region,
//!    which gives the peer of *that* connection access under a random key, and sends the resulting
//!    [`RemoteRegion`], a plain name, in a message.
//! 2. The other side [`Connection::post`]s operations on the name: `Write`, `Read`, `FetchAdd`,
//!    `CompareSwap`. The owner of the memory does nothing; its process need not even poll. Only
//!    `Send` and `WriteWithImmediate` are reported to it.
//! 3. Every operation is reported complete, in order, by [`Connection::poll`] (never waits), by
//!    [`Connection::wait`] (polls for a short time, then sleeps), or in a reactor that sleeps on
//!    [`Connection::wait_fd`] after [`Connection::arm`].
//!
//! # Guarantees on every wire
//!
//! - **Order.** Operations of one connection are executed in the order of posting. Whoever sees a
//!   message or an immediate sees every byte written before it. Nothing is promised across
//!   connections. On `tcp` and `verbs` an operation that is not a read waits for the reads that
//!   were posted before it, so mixing the two costs round trips.
//! - **Completion.** A write that was reported complete does happen, even if the connection ends
//!   afterwards, unless the peer dies. The peer's processor may see its bytes a little later, and
//!   not all at once. A message, immediate, read or atomic that is posted behind the write comes
//!   after all of them.
//! - **Tearing.** A read that races with a write sees any mix of old and new bytes. Aligned words
//!   that only atomics use are never torn. A write of 8 bytes to an offset that is a multiple of 8
//!   is one store on `shm`, `tcp` and `sim`: [`Region::load_u64`] sees all of it or nothing. On
//!   `verbs` that depends on the adapter: an emulated one (Soft-RoCE) copies byte by byte. Code
//!   that relies on whole words must prove it for its wire (see [`post`]).
//! - **Atomics.** A remote atomic is atomic against other remote atomics. A store of the owner or a
//!   remote write to the same word at the same time may be lost.
//! - **Bounds.** At most [`limits::QUEUE_DEPTH_MAX`] operations are in flight. One more is refused
//!   with [`PostError::QueueFull`]; nothing is queued out of sight.
//! - **Refusal.** A wrong key, an access outside of the region or one that was not granted ends
//!   that operation with an [`OperationError`], touches no memory, and leaves the connection as it
//!   was. On `verbs`, however, it ends the connection: the adapter moves the queue pair to its
//!   error state.
//! - **Endings.** A peer that closes is [`Ending::Orderly`], one that dies is [`Ending::Lost`], one
//!   that breaks the protocol is [`Ending::Violation`]. [`Ending::Failed`] is a refusal on a wire
//!   where that ends the connection. All operations in flight fail first; [`Event::Closed`] is the
//!   last event.
//! - **Trust.** Peers prove the [`ClusterKey`] to each other before anything is shared. On `shm` a
//!   peer that has proved it maps the memory, so revoking access stops only a peer that keeps to
//!   the rules. On `tcp` and `verbs` bytes travel unencrypted.
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
//! By default a peer's messages arrive at its [`Connection`], in memory that belongs to that peer
//! alone. A listener that is bound with [`inbox::Inbox`]es ([`Listener::bind_inboxes`]) receives
//! them there instead, in one order over all peers and in memory that does not grow with their
//! number. The peers notice no difference. The connection still reports everything else, and its
//! owner must poll it: only polling notices the end of its peer.
//!
//! A message can also be a plain write into memory that its receiver polls: [`post`]. The
//! receiver's processor does nothing for its arrival, and neither end keeps a queue.
//!
//! # Files
//!
//! ```text
//! listener/  connection         accept, connect; post, poll, wait
//!     handshake  key            proof of the cluster key
//!     operation  completion     what is posted, what is reported
//!     region  access  memory  pages     memory that peers may access
//! inbox/                        messages of many peers in one place
//! post/                         messages as plain writes into boxes
//! wire                          the trait that each wire implements:
//!     shm/  tcp/  verbs/  sim/
//! address  counters  error  limits      used by all of the above
//! doorbell  guarded  spin  stream  timeout      waking, locking, polling, sockets, waits
//! descriptors  inherited  priority  wall        settings of the process, and its clock
//! ```
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
//! // They register a region. Its name would travel in a message.
//! let memory = Region::allocate(4096)?;
//! memory.copy_in(100, b"one-sided")?;
//! let name = theirs.register(&memory, Access::Read)?;
//!
//! // We read it; their process does nothing.
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

mod access;
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
mod operation;
mod pages;
pub mod post;
mod priority;
mod region;
mod shm;
pub mod sim;
mod spin;
mod stream;
mod tcp;
mod timeout;
#[cfg(feature = "verbs")]
mod verbs;
#[cfg(not(feature = "verbs"))]
#[path = "verbs_missing.rs"]
mod verbs;
mod wall;
mod wire;

pub use access::Access;
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
pub use operation::{Operation, Report};
pub use priority::lower_priority as be_nice;
pub use region::{Region, RegionSlice, RemoteRegion};
pub use spin::{Spin, allow_spinning, spin_time};
pub use timeout::poll_timeout;
pub use wall::{WallClock, host_name};

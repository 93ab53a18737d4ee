//! How do I read and write another process's memory?
//!
//! # Life of an operation
//!
//! 1. Both sides take a [`Region`] of memory. One [`Connection::register`]s it, which gives the peer of *that* connection
//!    access under a random key, and sends the resulting [`RemoteRegion`], a plain name, in a message.
//! 2. The other side [`Connection::post`]s operations on the name: `Write`, `Read`, `FetchAdd`, `CompareSwap`. The owner of the
//!    memory does nothing; its process need not even look. `Send` and `WriteWithImmediate` are the two that its `poll` sees.
//! 3. [`Connection::poll`] (never waits), [`Connection::wait`] (polls for a moment, then sleeps) or a reactor that
//!    sleeps on [`Connection::wait_fd`] after [`Connection::arm`] report a completion for every operation, in order.
//!
//! # What holds on every wire
//!
//! - **Order.** Operations of one connection are executed in the order of posting; who sees a message or an immediate sees
//!   every byte written before it. Nothing is promised across connections.
//! - **Tearing.** A read that races with a write sees any mix of both, byte by byte. Aligned words used by atomics
//!   only are never torn.
//! - **Bounds.** At most [`limits::QUEUE_DEPTH_MAX`] operations are in flight; one more is
//!   [`PostError::QueueFull`], and nothing ever waits in secret.
//! - **Refusal.** A wrong key, a place outside of the region or an access that was not granted ends that operation with an
//!   [`OperationError`], touches no memory, and leaves the connection as it was.
//! - **Endings.** A peer that closes is [`Ending::Orderly`], one that dies is [`Ending::Lost`], one that breaks the protocol
//!   is [`Ending::Violation`]. All operations in flight fail first; [`Event::Closed`] is the last event.
//! - **Trust.** Peers prove the [`ClusterKey`] to each other before anything is shared. On `shm` a peer that has proved it
//!   maps the memory, so revocation binds only a peer that keeps to the rules; on `tcp` bytes travel unencrypted.
//!
//! # Which wire when
//!
//! | wire | for | read, write, atomics | messages |
//! |---|---|---|---|
//! | `shm:/path` | processes of one user on one machine | a copy by the poster, in `post`; no system call | a ring in shared memory |
//! | `tcp:host:port` | different machines without RDMA | served by the peer's responder thread | a bounded queue filled by it |
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
mod doorbell;
mod error;
mod guarded;
mod handshake;
mod key;
pub mod limits;
mod listener;
mod memory;
mod operation;
mod region;
mod shm;
mod stream;
mod tcp;
mod wire;

pub use address::{Address, Wire};
pub use completion::{Done, Event};
pub use connection::Connection;
pub use counters::Counters;
pub use error::{
    AddressError, ClusterKeyError, ConnectError, Ending, ListenError, OperationError, OutOfBounds, PostError,
    RegionError, RegisterError,
};
pub use handshake::{FABRIC_MAGIC, FABRIC_VERSION};
pub use key::{CLUSTER_KEY_BYTES, ClusterKey};
pub use listener::{Listener, connect};
pub use memory::{RawSlice, SharedBytes};
pub use operation::Operation;
pub use region::{Access, Region, RegionSlice, RemoteRegion};

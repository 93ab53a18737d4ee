//! Moves stripes from a client through storage nodes onto their disks, so that the client sends
//! each byte of data once and nodes compute the parities on the way.
//!
//! The transfers are those of a `rackscan_stripe::Schedule` (or `Rebuild`), carried out on bytes.
//! This crate does not decide where cells lie on disk, and keeps no list of stripes: the [`Store`]
//! of each node does both. Decision 0036 gives the reasons for this design.
//!
//! ```text
//! Writer  --slices of data-->  Node  --slices, as received or summed-->  Node --> ...
//!    ^                          | the same slices, out of the slots where they lie
//!    |                          v
//!    +------- Stored --------  devices, where its Store says
//! ```
//!
//! | word | what it means |
//! |---|---|
//! | place | the client or one of the nodes of a session; such a node is a *member* |
//! | session | the connections and memory by which one client has stripes moved; all stripes of it have the same purpose (its *task*) |
//! | lane | what a session has for one stripe in progress: a session of two lanes moves two stripes at once |
//! | link | a connection that belongs to a session, or is about to |
//! | step | the transfer of the bytes of one cell, or of a sum of cells, from one place to another |
//! | slice | a part of a cell: the unit in which steps transfer, sum and store |
//! | slot | memory for one slice |
//! | ring | the slots that a receiver has for one step in one lane; slices use them in turn |
//! | credit | a receiver's message to a sender: how many slices the receiver does not need any more, so that their slots may be overwritten |
//! | held cell | a cell that a node reads from its devices for a stripe |
//! | kept cell | a cell that a node writes to its devices for a stripe |
//!
//! - `shape`, `task`, `plan`: derive, from the parameters of a session, what each place does for a
//!   stripe.
//! - `progress`, `ring`, `checksum`: compute which slices of a stripe are done, how far a sender
//!   may go, and the checksums of sums. They are pure, and so are the three before.
//! - `message`, `link`, `rings`: the protocol, and the transfer of slices and credits over a
//!   connection.
//! - [`Writer`] (`writer`) and [`Node`] (`node`): the two ends. Each is one thread without locks,
//!   which sleeps only when there is nothing to do.
//! - [`Store`] (`store`): the interface to the code that decides where a node's cells lie, and
//!   records that they are stored.
//! - `error`, `shape_error`: errors. [`limits`]: all bounds. `counters`: statistics.
//!
//! Storage nodes (in a thread of their own), loads and measurements use this crate.
//!
//! Invariants
//! - With `relay`, a client sends each byte of data once. Nodes copy nothing between receiving,
//!   summing, storing and forwarding.
//! - A stripe is `Stored` when every node that stores a part of it has flushed that part to its
//!   devices, and its checksum is the one computed from what the client sent.
//! - When a place is lost, every place that waits for it learns which one was lost; nothing waits
//!   forever.
//! - Memory, lanes, rings and queues are bounded when a session opens ([`limits`]).
//!
//! An example: a client sends a stripe of two cells. Three nodes store them and their XOR.
//!
//! ```
//! use rackscan_device::{Ring, RingConfig};
//! use rackscan_fabric::{ClusterKey, Listener, Region, connect};
//! use rackscan_format::ids::NodeId;
//! use rackscan_relay::{Member, Node, NodeConfig, Nowhere, Shape, Stripe, Threads, Writer};
//! use rackscan_stripe::{Parity, Way};
//!
//! let (key, folder) = (ClusterKey::generate()?, tempfile::tempdir()?);
//! let soon = std::time::Instant::now() + std::time::Duration::from_secs(30);
//! let address = |node| format!("shm:{}/{node}", folder.path().display()).parse().unwrap();
//! let members: Vec<Member> = (0..3).map(|n| Member { node: NodeId(n), address: address(n) }).collect();
//! for Member { node, address } in &members {
//!     let listener = Listener::bind(address, &key)?;
//!     let (config, calls) = (NodeConfig::new(*node, members.clone()), Threads::new(key.clone()));
//!     std::thread::spawn(move || {
//!         let io = Ring::new(RingConfig { depth: 8, ..RingConfig::default() }).unwrap();
//!         Node::new(config, listener, Box::new(calls), io, Nowhere).unwrap().run(&false.into())
//!     });
//! }
//! let (shape, memory) = (Shape::new(Parity::Xor, Way::Relay, 4096), Region::allocate(4096)?);
//! let mut writer = Writer::open(shape, members, |address| connect(address, &key, soon), soon)?;
//! let (data, what) = ([memory.whole(), memory.whole()], [const { Vec::new() }; 3]);
//! writer.write(&Stripe { number: 0, cell_bytes: 4096, what: &what, data: &data })?;
//! let ended = writer.wait(soon).ok_or("not in time")?;
//! assert_eq!((ended.outcome, writer.counters().sent_bytes), (Ok(()), 2 * 4096));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod checksum;
mod counters;
mod error;
pub mod limits;
mod link;
mod message;
mod node;
mod plan;
mod progress;
mod ring;
mod rings;
mod shape;
mod shape_error;
#[cfg(test)]
mod simulated;
mod store;
mod task;
mod writer;

pub use counters::Counters;
pub use error::{NodeError, SessionEnd, Who, WriteError};
pub use message::Cause;
pub use node::{Answered, Calls, Node, NodeConfig, Threads};
pub use shape::{Member, Shape};
pub use shape_error::ShapeError;
pub use store::{Area, Beginning, Guard, Nowhere, Place, Places, Refusal, Store, StoredCell, StripeName};
pub use task::{LostMembers, Task};
pub use writer::{Ended, Stripe, Writer};

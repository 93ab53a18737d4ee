//! How do I talk to storage nodes?
//!
//! ```text
//!   Cluster (cheap to clone)                          a storage node
//!     fetch / process / catalog / status / load
//!        | takes target memory, encodes a request
//!        v
//!     driver thread -- one message ------------------> reads, scans, ...
//!        |    target memory <-- one-sided writes ----- pages, rows, catalog
//!        |             reply <-- one message --------- cost, how busy
//!        v
//!     copies out of the target once, decodes
//! ```
//!
//! ```text
//!   Session (one thread)                              a home of transactions
//!     read / write: leases, a coordinator's messages
//!        | Lines: a connection to each node
//!        |-- one payload for each home ----------------> versions, locks, log
//!        |             reply <-- one message ---------- what was found, votes
//!        |-- GET*: copies of slots, no message -------- registered memory
//! ```
//!
//! A `Follower` reads what transactions write out of the feeds of all homes, one-sidedly.
//! `protected` has the pages of lost nodes back, and loads tables so that this can be done.
//! `direct` is one connection driven by one thread, for the laboratory and for replay.
//! `local` reads the devices of nodes on the same host without asking them.
//!
//! Invariants
//! - Nothing borrows memory that a peer may be writing: answers are copied out before they are
//!   looked at.
//! - A lost node fails every request outstanding at it at once; every request has a deadline.
//! - Nobody waits long for a node that does not answer keep-alives; the memory of what it was asked
//!   stays its own until it answers or its connection ends.
//! - Memory, queues and outstanding requests are bounded: see [`limits`].

#![forbid(unsafe_code)]

mod away;
mod cache;
mod catalog;
mod closing;
mod cluster;
mod dial;
mod direct;
mod doorbell;
mod driver;
mod error;
mod fetch;
mod forget;
mod hold;
pub mod limits;
mod lines;
mod load;
mod local;
mod members;
mod page_buffer;
mod process;
mod protected;
mod pulse;
mod race;
mod reach;
mod replicas;
mod status;
mod target;
mod transaction;

pub use catalog::{BrokenTable, ClusterCatalog, ClusterTable, PlacedSegment};
pub use cluster::{Cluster, ClusterOptions, NodeEndpoint};
pub use direct::{DirectDone, DirectError, DirectLine, DirectOptions};
pub use error::ClientError;
pub use fetch::FetchedPages;
pub use hold::TablesHold;
pub use lines::{LineBell, LineError, LineEvent, Lines, LinesOptions, OneRead};
pub use load::{Appended, LoadSession, new_table_id};
pub use local::{LocalDevices, LocalError};
pub use page_buffer::PageBuffer;
pub use process::{OfferedProgram, ProcessAnswer, Processed, SegmentPart};
pub use protected::{
    CorruptPages, Findings, RebuildReport, RebuiltTable, RepairListener, RepairProgress, ScrubOptions,
    ScrubReport,
};
pub use replicas::{ReplicaDoubt, ReplicaReport, newest_replicas};
pub use status::Echoed;
pub use transaction::{
    CaughtUp, FollowError, Follower, FollowerOptions, NoSuchOperations, Operations, ReadOutcome, ScanOutcome,
    Session, SessionOptions, TransactionError, Written,
};

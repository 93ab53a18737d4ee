//! The client of storage nodes: sends requests to them, receives pages, rows and catalogs in
//! registered memory, and runs transactions.
//!
//! ```text
//!   Cluster (cheap to clone)                          a storage node
//!     fetch / process / catalog / status / load
//!        | allocates target memory, encodes a request
//!        v
//!     driver thread -- one message ------------------> reads, scans, ...
//!        |    target memory <-- one-sided writes ----- pages, rows, catalog
//!        |             reply <-- one message --------- cost, load of the node
//!        v
//!     copies the answer out of the target once, decodes it
//! ```
//!
//! *Target memory* is registered memory of the client, into which nodes write their answers.
//!
//! ```text
//!   Session (one thread)                              a participant (a node that keeps keys)
//!     read / write: leases, the messages of a coordinator
//!        | Lines: a connection to each node
//!        |-- one payload for each participant ----------> versions, locks, log
//!        |             reply <-- one message ---------- the versions that were found, votes
//!        |-- GET*: copies of slots, no message -------- registered memory
//! ```
//!
//! This crate decides nothing about queries: the planner decides where a scan runs, and the engine
//! processes the rows. It does not use DataFusion. The course of a transaction is defined in
//! `rackscan-ramp`, and the equations of parity in `rackscan-stripe`; this crate sends the messages
//! and moves the bytes.
//!
//! | files | contents |
//! |---|---|
//! | `cluster`, `endpoint`, `dial`, `members`, `reach` | connecting to all nodes, and checks that they are the right ones |
//! | `driver`, `pulse`, `doorbell`, `message_names` | the thread that owns a cluster's connections |
//! | `node_state`, `unavailable` | which nodes are unavailable, and requests that are refused for that reason |
//! | `retry` | how often an operation that others disturb is attempted |
//! | `hedge`, `hedged_reads` | reads that other nodes answer when one node is far slower |
//! | `fetch`, `cache`, `page_buffer`, `target` | pages of a segment, caches of pages, memory |
//! | `process`, `status`, `catalog`, `hold` | scans at nodes, the status and the tables of nodes |
//! | `load`, `closing`, `forget` | tables that are loaded, replaced and dropped |
//! | `protected` | parity: protects loads, reconstructs lost pages, scrubs, rebuilds a node |
//! | `lines`, `transaction`, `replicas` | connections that their owner's thread drives, and transactions over them |
//! | `direct` | one connection that one thread drives, for the laboratory and for replay |
//! | `local` | reads of devices that are attached to this host |
//!
//! A [`Follower`] reads everything that transactions write. It reads the feeds of all participants
//! one-sidedly: a *feed* is memory in which a participant publishes its latest records.
//!
//! Invariants
//! - Nothing borrows memory that a peer may be writing: answers are copied out before they are
//!   read.
//! - When a node is lost, every request outstanding at it fails at once; every request has a
//!   deadline.
//! - No caller waits long for a node that does not answer keep-alives. Memory that was named in a
//!   request stays reserved until the node answers or its connection ends.
//! - Memory, queues and outstanding requests are bounded: see [`limits`].
//!
//! An example: a cluster of one node that does not run. The error names the node and its address.
//!
//! ```
//! use rackscan_client::{Cluster, ClusterOptions, NodeEndpoint};
//! use rackscan_fabric::ClusterKey;
//! use rackscan_format::ids::NodeId;
//!
//! let addresses = vec!["shm:/nowhere/socket".parse()?];
//! let endpoint = NodeEndpoint { id: NodeId(7), addresses };
//! let options = ClusterOptions::new(vec![endpoint], ClusterKey::generate()?);
//! let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! let error = runtime.block_on(Cluster::connect(options)).unwrap_err().to_string();
//! assert!(error.contains("node 7") && error.contains("shm:/nowhere/socket"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod cache;
mod catalog;
mod closing;
mod cluster;
mod dial;
mod direct;
mod doorbell;
mod driver;
mod endpoint;
mod error;
mod fetch;
mod forget;
mod hedge;
mod hedged_reads;
mod hold;
pub mod limits;
mod lines;
mod load;
mod local;
mod members;
mod message_names;
mod node_state;
mod page_buffer;
mod process;
mod protected;
mod pulse;
mod reach;
mod replicas;
mod retry;
mod status;
mod target;
mod transaction;
mod unavailable;

pub use catalog::{BrokenTable, ClusterCatalog, ClusterTable, PlacedSegment};
pub use cluster::{Cluster, ClusterOptions};
pub use direct::{DirectDone, DirectError, DirectLine, DirectOptions};
pub use endpoint::NodeEndpoint;
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
pub use retry::Retry;
pub use status::Echoed;
pub use transaction::{
    CaughtUp, FollowError, Follower, FollowerOptions, NoSuchOperations, Operations, ReadOutcome, ScanOutcome,
    Session, SessionOptions, TransactionError, Written,
};

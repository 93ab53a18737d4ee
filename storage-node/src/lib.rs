//! How are pages kept, versioned, protected and served?
//!
//! ```text
//!  listeners --> reactor threads (one ring, some connections each)        scan workers (one ring each)
//!                  message -> serve -> request/*                            ScanQueue -> SegmentScan
//!                    fetch    device --> requester's memory                   device --> pages --> rows
//!                    process  ---------------------- job ------------------->              |
//!                    append   source --> checked --> device                 requester's memory, or staging
//!                    publish  --> publishing thread --> catalog file
//!                    transact --> home (first reactor) --> its log's thread --> log; slots --> read by peers
//!                                                      \--> peers' thread (lines to the other nodes) --> their homes
//!                  reply  <---------------------- message queue --------------------
//!  relays: a listener, a thread and a ring each (`relay`) --> other nodes' relays, device
//! ```
//!
//! Paths, each in the order of its files
//! - remote-fetch: `bridge/reactor` -> `serve` -> `request/fetch` -> the device's ring -> one-sided
//!   write -> reply.
//! - remote-process: `bridge/reactor` -> `serve` -> `request/process` -> `scan_pool/worker` ->
//!   one-sided write -> reply.
//! - transaction: `request/transact` -> `home/access` -> `home/service` -> `home/writer` -> mail ->
//!   reply.
//! - copy of a log: `home/service` -> `peers/copier` -> another node's `request/keep_log` ->
//!   `copies` -> `peers` -> mail -> `home/copying`.
//! - end of a transaction without its client: `home/endings` -> `peers` -> another node's
//!   `request/transact` -> `peers` -> mail -> `home/endings`.
//! - stripe: `relay` (`rackscan_relay::Node`) -> other nodes' relays, and the device.
//! - load: `request/append` -> `store/allocate`, `store/loads` -> `request/publish` ->
//!   `store/publish` -> `store/catalog_file`.
//!
//! Invariants
//! - Nodes talk to each other only if they are told of each other (`peers`), and only about
//!   transactions, their logs, and stripes that pass.
//! - Requests are stateless, but for transactions: what a client leaves behind when it dies is at
//!   most a load, leases and locks, which die with it, and what it has prepared, which its homes
//!   end.
//! - All memory is divided at start (`memory_plan`); every queue has its bound in [`limits`].
//! - Nothing that a peer or a file says can panic the node.
//! - The node knows pages, programs and catalogs; it knows nothing of SQL.

#![forbid(unsafe_code)]

mod bridge;
mod cache;
mod config;
mod copies;
mod cpu_share;
mod durable_file;
mod error;
mod folder_lock;
mod home;
mod host_memory;
mod identity;
mod lifecycle;
pub mod limits;
mod link;
mod memory_plan;
mod message_queue;
mod metrics;
mod node;
mod peers;
mod private;
mod relay;
mod request;
mod scan_pool;
mod serve;
mod staging;
mod store;
mod task;

pub use config::{ByteSize, ClusterId, Config, ConfigError, DeviceConfig, LogPatience, PeerConfig};
pub use cpu_share::{CgroupVersion, ControlGroup};
pub use error::{StartError, Stopped};
pub use folder_lock::{FolderLockError, FolderOwner, folder_owner};
pub use home::HomeFileError;
pub use host_memory::available_memory;
pub use identity::{IdentityError, IdentityFile, renew_outdated};
pub use node::{Node, NodeHandle};
pub use store::{CatalogFault, CatalogFileError, LabelFault, MetadataFull};

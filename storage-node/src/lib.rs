//! Storage nodes: store pages on devices, version and protect tables, run transactions on keys, and
//! serve pages and scans.
//!
//! ```text
//!  listeners --> reactor threads (one io_uring, some connections each)    scan workers (one io_uring each)
//!                  message -> serve -> request/*                            ScanQueue -> SegmentScan
//!                    fetch    device --> requester's memory                   device --> pages --> rows
//!                    process  ---------------------- job ------------------->              |
//!                    append   client's memory --> checked --> device        requester's memory, or staging
//!                    publish  --> publishing thread --> catalog file
//!                    transact --> participant (first reactor) --> log thread --> log; slots --> read by peers
//!                                                      \--> peers' thread (connections to other nodes) --> their participants
//!                  reply  <---------------------- message queue --------------------
//!  relays: a listener, a thread and an io_uring each (`relay`) --> other nodes' relays, device
//! ```
//!
//! The path of each kind of work, file by file (mail: a message queue between threads of the node)
//! - remote-fetch: `bridge/reactor` -> `serve` -> `request/fetch` -> the device's ring -> one-sided
//!   write -> reply.
//! - remote-process: `bridge/reactor` -> `serve` -> `request/process` -> `scan_pool/worker` ->
//!   one-sided write -> reply.
//! - transaction: `request/transact` -> `participant/access` -> `participant/service` ->
//!   `participant/writer` -> mail -> reply.
//! - replication of a log: `participant/service` -> `peers/copier` -> another node's
//!   `request/keep_log` -> `copies` -> `peers` -> mail -> `participant/copying`.
//! - end of a transaction whose client is gone: `participant/endings` -> `peers` -> another node's
//!   `request/transact` -> `peers` -> mail -> `participant/endings`.
//! - stripe: `relay` (`rackscan_relay::Node`) -> other nodes' relays, and the device.
//! - load: `request/append` -> `store/allocate`, `store/loads` -> `request/publish` ->
//!   `store/publish` -> `store/catalog_file`.
//! - drop: `request/drop` -> `store/publish` -> `store/free_extents` -> `store/reclaim`.
//!
//! Invariants
//! - A node communicates only with the nodes in its configuration (`peers`), and only about
//!   transactions, their logs, and stripes that it relays.
//! - Requests are stateless, except for transactions. A client that dies leaves at most a load,
//!   leases and locks, which end with its connection, and prepared transactions, which their
//!   participants end.
//! - All memory is divided at start (`memory_plan`). Every queue has its bound in [`limits`].
//! - No bytes from a peer or a file can make the node panic.
//! - The node interprets pages, programs and catalogs, but no SQL.
//!
//! An example: a configuration is read and checked; a key that no node knows is an error.
//!
//! ```
//! use rackscan_storage_node::{ByteSize, ClusterId, Config};
//!
//! let text = r#"
//!     node = 0
//!     cluster = "demo"
//!     data_dir = "node0"
//!     devices = [{ path = "node0/device0", size = "64GiB" }]
//!     listen = ["shm:node0/socket", "tcp:127.0.0.1:7410"]
//!     key_file = "cluster.key"
//!     cache = "64MiB"
//! "#;
//! let mut config = Config::from_str(text)?;
//! assert_eq!(config.cluster, ClusterId::of_name("demo"));
//! assert_eq!(config.cache, Some(ByteSize(64 << 20)));
//! assert_eq!(Config::from_str(&config.to_toml()?)?, config);
//! config.make_relative_to("/srv".as_ref());
//! assert_eq!(config.listen[0].to_string(), "shm:/srv/node0/socket");
//!
//! let error = Config::from_str(&text.replace("cache", "cash")).unwrap_err().to_string();
//! assert!(error.contains("unknown field `cash`"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bridge;
mod cache;
mod config;
mod copies;
mod cpu_share;
mod durable_file;
mod error;
mod folder_lock;
mod host_memory;
mod identity;
mod ids;
mod lifecycle;
pub mod limits;
mod link;
mod memory_plan;
mod message_queue;
mod metrics;
mod node;
mod participant;
mod peers;
mod private;
mod refusals;
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
pub use host_memory::available_memory;
pub use identity::{IdentityError, IdentityFile, renew_outdated};
pub use node::{Node, NodeHandle};
pub use participant::ParticipantFileError;
pub use store::{CatalogFault, CatalogFileError, LabelFault, MetadataFull};

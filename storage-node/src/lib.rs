//! How are pages kept, versioned, protected and served?

#![forbid(unsafe_code)]

mod bridge;
mod config;
mod error;
mod lifecycle;
pub mod limits;
mod link;
mod mailbox;
mod memory_plan;
mod metrics;
mod node;
mod request;
mod scan_pool;
mod serve;
mod staging;
mod store;
mod task;

pub use config::{ByteSize, ClusterId, Config, ConfigError, DeviceConfig};
pub use error::{StartError, Stopped};
pub use node::{Node, NodeHandle};
pub use store::{CatalogFault, CatalogFileError, LabelFault, MetadataFull};

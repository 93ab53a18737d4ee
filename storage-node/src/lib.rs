//! How are pages kept, versioned, protected and served?

#![forbid(unsafe_code)]

mod config;
mod error;
pub mod limits;
mod memory_plan;
mod node;

pub use config::{ByteSize, ClusterId, Config, ConfigError, DeviceConfig};
pub use error::{StartError, Stopped};
pub use node::{Node, NodeHandle};

//! How do I read and write another process's memory?
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
pub use memory::RawSlice;
pub use operation::Operation;
pub use region::{Access, Region, RegionSlice, RemoteRegion};

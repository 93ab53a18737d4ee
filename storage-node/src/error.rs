//! Why does a node not start, and why did it stop?

use std::path::PathBuf;

use rackscan_device::{OpenError, PinError, PoolError, RingError};
use rackscan_fabric::{ClusterKeyError, ListenError, RegionError};

use rackscan_format::codec::CodecError;

use crate::{
    config::ConfigError,
    folder_lock::FolderLockError,
    home::HomeFileError,
    identity::IdentityError,
    store::{CatalogFault, CatalogFileError, LabelFault},
};

/// Why a node does not start. Nothing is left behind but device files and a catalog that are
/// complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cluster's key could not be read.
    #[error("key file {file}: {source}", file = file.display())]
    KeyFile {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The cluster's key makes no sense.
    #[error("key file {file}: {source}", file = file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: ClusterKeyError,
    },
    /// The data folder is in use.
    #[error(transparent)]
    Lock(#[from] FolderLockError),
    /// The data folder is not this node's, or not the newest one.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A device.
    #[error("device: {0}")]
    Device(#[from] OpenError),
    /// A device file must be made and the configuration does not say how large.
    #[error("device {path}: does not exist, and the configuration gives no size; add size = \"64GiB\"", path = path.display())]
    NoSize {
        /// The file.
        path: PathBuf,
    },
    /// A device's label.
    #[error(transparent)]
    Label(#[from] LabelFault),
    /// The catalog's file.
    #[error("catalog {0}")]
    CatalogFile(#[from] CatalogFileError),
    /// What the catalog says.
    #[error("catalog {file}: {fault}; restore it from a copy", file = file.display())]
    Catalog {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        fault: CatalogFault,
    },
    /// The home of transactions.
    #[error("transactions: {0}")]
    Home(#[from] HomeFileError),
    /// The scratch area.
    #[error("scratch on device {path}: {reason}", path = path.display())]
    Scratch {
        /// The device.
        path: PathBuf,
        /// What is missing or failed.
        reason: String,
    },
    /// The catalog could not be encoded for readers.
    #[error("encoding the catalog: {0}")]
    Encode(#[from] CodecError),
    /// The memory budget.
    #[error("memory_budget: {reason}")]
    Memory {
        /// What is needed.
        reason: String,
    },
    /// Memory for buffers.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Memory for transfers.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// An io_uring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A core to pin to.
    #[error("pin_cores: {0}")]
    Pin(#[from] PinError),
    /// An address to listen at.
    #[error("listen: {0}")]
    Listen(#[from] ListenError),
    /// A thread.
    #[error("could not {action}: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Why a node stopped by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the node stopped: {reason}")]
pub struct Stopped {
    /// What happened, and what to do.
    pub reason: String,
}

//! Defines why a node does not start, and why it stopped.

use std::path::PathBuf;

use rackscan_device::{OpenError, PinError, PoolError, RingError};
use rackscan_fabric::{ClusterKeyError, ListenError, RegionError};

use rackscan_format::codec::CodecError;

use crate::{
    config::ConfigError,
    folder_lock::FolderLockError,
    identity::IdentityError,
    participant::ParticipantFileError,
    store::{CatalogFault, CatalogFileError, LabelFault},
};

/// Why a node does not start. A failed start leaves behind nothing but complete device files and a
/// complete catalog.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is not valid.
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
    /// The cluster's key is not valid.
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
    /// The data folder belongs to another node, or is not the newest one.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A device could not be opened.
    #[error("device: {0}")]
    Device(#[from] OpenError),
    /// A device file must be made, and the configuration does not give its size.
    #[error("device {path} does not exist, and the configuration gives no size to create it with: add size = \"64GiB\"", path = path.display())]
    NoSize {
        /// The file.
        path: PathBuf,
    },
    /// A device's label is not the expected one.
    #[error(transparent)]
    Label(#[from] LabelFault),
    /// The catalog's file could not be read or written.
    #[error("catalog {0}")]
    CatalogFile(#[from] CatalogFileError),
    /// The content of the catalog is not valid.
    #[error("catalog {file}: {fault}; restore it from a copy", file = file.display())]
    Catalog {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        fault: CatalogFault,
    },
    /// The files of transactions could not be used.
    #[error("transactions: {0}")]
    Participant(#[from] ParticipantFileError),
    /// The scratch area could not be made.
    #[error("cannot create the scratch area on device {path}: {reason}", path = path.display())]
    Scratch {
        /// The device.
        path: PathBuf,
        /// What is missing or failed.
        reason: String,
    },
    /// The catalog could not be encoded for readers.
    #[error("the catalog cannot be encoded: {0}")]
    Encode(#[from] CodecError),
    /// The memory budget is too small, or larger than this process may use.
    #[error("memory_budget: {reason}")]
    Memory {
        /// What is needed.
        reason: String,
    },
    /// Memory for buffers could not be allocated.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Memory for transfers could not be allocated.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// An io_uring could not be set up.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A thread could not be pinned to its core.
    #[error("pin_cores: {0}")]
    Pin(#[from] PinError),
    /// The node cannot listen at an address.
    #[error("listen: {0}")]
    Listen(#[from] ListenError),
    /// The system refused something else, such as a thread.
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

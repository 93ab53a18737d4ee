//! Defines the errors of the store: of its catalog, its devices and its memory.

use std::{io, path::PathBuf};

use rackscan_format::{
    codec::CodecError,
    ids::{DeviceId, NodeId, SegmentId, TableId},
    schema::DefinitionError,
    segment::DirectoryError,
    stripe_set::SetId,
    withheld::WithheldError,
};

use crate::{limits::DEVICE_BYTES_MIN, participant::is_full};

/// Why the catalog could not be read or replaced.
#[derive(Debug, thiserror::Error)]
pub enum CatalogFileError {
    /// The system refused.
    #[error("{file}: {action} failed: {source}", file = file.display())]
    Os {
        /// The file or folder.
        file: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The new version may or may not be in place; only a restart can tell.
    #[error("{file}: {action} failed: {source}; only a restart of the node shows whether the change is durable", file = file.display())]
    InDoubt {
        /// The file.
        file: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is damaged.
    #[error("{file} is damaged: {source}; restore it from a copy, or remove it and the files of the node's devices to begin without tables", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: CodecError,
    },
    /// The folder is in memory, and lost when the host stops.
    #[error(
        "folder {folder} (`data_dir`) is on {filesystem}, which loses everything when the host stops; \
         name a folder on ext4, xfs or btrfs (for example `--data DIR`)",
        folder = folder.display()
    )]
    MemoryOnly {
        /// The folder.
        folder: PathBuf,
        /// Its filesystem.
        filesystem: &'static str,
    },
}

impl CatalogFileError {
    /// Whether the disk is full.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Os { source, .. } if is_full(source))
    }
}

/// What is wrong with a catalog whose checksum is right.
#[derive(Debug, thiserror::Error)]
pub enum CatalogFault {
    /// It belongs to another node or cluster.
    #[error(
        "the file belongs to node {found_node} of cluster {found_cluster}, expected node {node} of cluster {cluster}"
    )]
    Foreign {
        /// From the file.
        found_cluster: u64,
        /// From the file.
        found_node: NodeId,
        /// From the configuration.
        cluster: u64,
        /// From the configuration.
        node: NodeId,
    },
    /// A table's definition is not valid.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A segment's directory is not valid.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Its directories do not fit in memory.
    #[error(transparent)]
    Memory(#[from] MetadataFull),
    /// Something is listed twice.
    #[error("lists {what} twice")]
    Twice {
        /// What.
        what: String,
    },
    /// A segment of another table, in a table that succeeds none.
    #[error("lists a segment of table {found} under table {table}, which succeeds no other")]
    Stray {
        /// The table.
        table: TableId,
        /// The segment's table.
        found: TableId,
    },
    /// One segment in two tables, with different pages.
    #[error(
        "segment {segment}, which was written for table {written}, is listed under table {table} with other pages than under \
         another table"
    )]
    Differs {
        /// The table under which it was written.
        written: TableId,
        /// The segment.
        segment: SegmentId,
        /// One of the tables that have it.
        table: TableId,
    },
    /// The withheld rows of a segment are not valid.
    #[error("table {table}, segment {segment}: {source}")]
    Withheld {
        /// The table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// What is wrong with them.
        source: WithheldError,
    },
    /// A stripe set is not valid.
    #[error("lists stripe set {set} under table {table} {what}")]
    Set {
        /// The table.
        table: TableId,
        /// The set.
        set: SetId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An extent lies outside of its device or overlaps another one.
    #[error(
        "table {table}: an extent of segment {segment} lies outside of its device or overlaps another one"
    )]
    Extent {
        /// The table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
    },
}

/// Why a device is not used.
#[derive(Debug, thiserror::Error)]
pub enum LabelFault {
    /// It belongs to another cluster, node or place.
    #[error(
        "device {path}: its label says cluster {found_cluster}, node {found_node}, device {found_device}; \
         expected cluster {cluster}, node {node}, device {device}; it was not changed",
        path = path.display()
    )]
    Foreign {
        /// The device.
        path: PathBuf,
        /// From the label.
        found_cluster: u64,
        /// From the label.
        found_node: NodeId,
        /// From the label.
        found_device: DeviceId,
        /// From the configuration.
        cluster: u64,
        /// From the configuration.
        node: NodeId,
        /// From the configuration.
        device: DeviceId,
    },
    /// It belongs to this node, but is not the one that the catalog was written for.
    #[error(
        "device {path}: its label has the number {found:016x}, the catalog {catalog} expects \
         {expected:016x}; put the devices and the catalog that belong together back in place",
        path = path.display(), catalog = catalog.display()
    )]
    Swapped {
        /// The device.
        path: PathBuf,
        /// The catalog.
        catalog: PathBuf,
        /// On the device.
        found: u64,
        /// In the catalog.
        expected: u64,
    },
    /// It is blank, but tables have pages on it.
    #[error(
        "device {path} is blank, but tables have pages on it; put the device back in place, or remove the catalog \
         {catalog} and the other devices to begin without tables",
        path = path.display(), catalog = catalog.display()
    )]
    Lost {
        /// The device.
        path: PathBuf,
        /// The catalog.
        catalog: PathBuf,
    },
    /// It is labelled, but there is no catalog.
    #[error(
        "device {path} belongs to this node, but the catalog {catalog} is gone; put the catalog back in place, or remove \
         the devices to begin without tables",
        path = path.display(), catalog = catalog.display()
    )]
    NoCatalog {
        /// The device.
        path: PathBuf,
        /// The catalog.
        catalog: PathBuf,
    },
    /// It holds something else.
    #[error(
        "device {path} contains data that is not ours ({reason}) and was not changed; name a new file, or wipe the device \
         yourself",
        path = path.display()
    )]
    NotOurs {
        /// The device.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// It is smaller than it was.
    #[error("device {path} has {found_bytes} bytes, but its label says {label_bytes} bytes: the file was truncated", path = path.display())]
    Shrunk {
        /// The device.
        path: PathBuf,
        /// Bytes now.
        found_bytes: u64,
        /// Bytes when it was taken.
        label_bytes: u64,
    },
    /// It is too small.
    #[error("device {path} has {found_bytes} bytes, expected at least {DEVICE_BYTES_MIN}", path = path.display())]
    Small {
        /// The device.
        path: PathBuf,
        /// Bytes.
        found_bytes: u64,
    },
    /// There are fewer devices than the catalog lists.
    #[error("the configuration names {found} devices, the catalog {catalog} lists {expected}; a node cannot lose devices: name all of them", catalog = catalog.display())]
    Missing {
        /// The catalog.
        catalog: PathBuf,
        /// Devices configured.
        found: usize,
        /// Devices in the catalog.
        expected: usize,
    },
    /// It could not be read or written.
    #[error("device {path}: {reason}", path = path.display())]
    Io {
        /// The device.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
}

/// Too many directories for the memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the directories of all tables occupy {used_bytes} of at most {max_bytes} bytes of memory, and {needed_bytes} more are \
     needed; raise memory_budget, use larger pages, or drop a table"
)]
pub struct MetadataFull {
    pub(super) used_bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) needed_bytes: u64,
}

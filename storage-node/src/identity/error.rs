//! Defines why a node cannot use a data folder.

use std::{io, path::PathBuf};

use rackscan_format::ids::NodeId;

use crate::config::ClusterId;

/// The version of the identity file.
pub(super) const VERSION: u32 = 1;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// An operation on a file failed.
    #[error("{file}: {action} failed: {source}", file = file.display())]
    Os {
        /// The file or folder.
        file: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The file does not say which node the folder belongs to.
    #[error(
        "{file}: {reason}; expected the identity of a data folder, version {VERSION}: restore the file from a copy of this folder",
        file = file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder belongs to another node.
    #[error(
        "{file}: the folder belongs to node {found_node} of cluster {found_cluster}, expected node {node} of cluster {cluster}: \
         correct `data_dir`, `node` or `cluster` in the configuration",
        file = file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
        /// From the file.
        found_cluster: ClusterId,
        /// From the file.
        found_node: NodeId,
        /// From the configuration.
        cluster: ClusterId,
        /// From the configuration.
        node: NodeId,
    },
    /// The configuration lists other nodes.
    #[error(
        "the configuration lists nodes {found}, expected nodes {expected} as {file} records: a cluster cannot gain or lose nodes; \
         make the configuration list nodes {expected} again",
        file = file.display()
    )]
    Members {
        /// The file.
        file: PathBuf,
        /// From the configuration.
        found: String,
        /// From the file.
        expected: String,
    },
    /// An earlier version wrote the folder, and its tables have other nodes than the configuration.
    #[error(
        "{folder}: an earlier version wrote this folder, which records no member list yet; the configuration lists nodes {found}, \
         expected nodes {expected}, over which its tables were loaded: make the configuration list nodes {expected} again",
        folder = folder.display()
    )]
    Adoption {
        /// The folder.
        folder: PathBuf,
        /// From the configuration.
        found: String,
        /// From the tables.
        expected: String,
    },
    /// The folder is a copy.
    #[error(
        "{folder}: the folder is a copy of {original}, which is still there: a node has one data folder. Use the original, or, if \
         the copy is to take its place, stop its node, move {original} away and try again",
        folder = folder.display(), original = original.display()
    )]
    Copy {
        /// The copy.
        folder: PathBuf,
        /// The original.
        original: PathBuf,
    },
    /// Other nodes know a newer state of this node.
    #[error(
        "{folder}: the folder is outdated, as if it was restored from an older snapshot: {reason}; `rackscan rebuild {node}` brings \
         it up to date",
        folder = folder.display()
    )]
    Outdated {
        /// The folder.
        folder: PathBuf,
        /// What the other nodes know.
        reason: String,
        /// The node.
        node: NodeId,
    },
}

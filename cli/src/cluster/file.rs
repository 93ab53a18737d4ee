//! Which nodes make up the cluster, and how is each reached? The cluster's TOML file.
//!
//! ```toml
//! cluster = 8472034985            # every node must belong to it
//! key_file = "cluster.key"        # 64 hexadecimal digits, readable by the owner only
//!
//! [[node]]
//! id = 0
//! start = true                    # `rackscan cluster start` on this host runs it
//! listen = ["shm:node0/socket", "tcp:127.0.0.1:7410"]
//! data_dir = "node0"
//! devices = [{ path = "node0/device0", size = "64GiB" }]
//! memory_budget = "512MiB"        # optional, as everything a node's own file may say
//! ```
//!
//! Invariants
//! - Relative paths are relative to the file's own folder.
//! - Unknown keys, missing keys and two nodes with one id are errors that name the file.

use rackscan_client::NodeEndpoint;
use rackscan_fabric::{Address, ClusterKey};
use rackscan_format::ids::NodeId;
use rackscan_storage_node::Config;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::failure::{Failure, at_path};

/// A parsed cluster file.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its folder: everything relative is relative to it.
    pub(crate) folder: PathBuf,
    text: ClusterText,
}

/// The file's own form.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterText {
    pub(crate) cluster: u64,
    pub(crate) key_file: PathBuf,
    #[serde(rename = "node")]
    pub(crate) nodes: Vec<NodeText>,
}

//! Starts nodes to measure transactions on. These nodes store keys and do little else.

use super::{
    EphemeralNodes, Shape,
    ephemeral::{on_adapter, size},
};
use crate::failure::{Failure, at_path};
use rackscan_lab::transactions::Durability;
use std::path::{Path, PathBuf};

/// Memory of a node in addition to its keys, in bytes.
const MEMORY_BYTES: u64 = 160 << 20;

/// Where logs are in memory.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Running nodes, and the folder of their logs if those are in memory.
pub(crate) struct TransactionNodes {
    /// The nodes, which end before the folder is removed.
    pub(crate) nodes: EphemeralNodes,
    _logs: Option<tempfile::TempDir>,
}

/// The nodes to start.
pub(crate) struct TransactionNodesOptions {
    /// Folder for the logs, on the disk to measure; created if necessary.
    pub(crate) folder: PathBuf,
    /// Number of nodes, each a process.
    pub(crate) nodes: u16,
    /// Memory for transactions of each node, in bytes.
    pub(crate) transactions_bytes: u64,
    /// Adapter that all nodes also listen on, each at its tcp port: `DEVICE@ADDRESS`.
    pub(crate) verbs: Option<String>,
    /// When they acknowledge a write.
    pub(crate) durability: Durability,
}

impl TransactionNodesOptions {
    /// Starts the nodes.
    pub(crate) fn start(&self) -> Result<TransactionNodes, Failure> {
        let Self { folder, nodes, transactions_bytes, verbs, durability } = self;
        let shape = Shape { nodes: *nodes, devices: 1, device_size: "64MiB".to_owned() };
        let in_memory = || {
            let root = Path::new(MEMORY_FOLDER);
            tempfile::Builder::new().prefix("rackscan-logs-").tempdir_in(root).map_err(at_path(root))
        };
        let logs = (*durability == Durability::Memory).then(in_memory).transpose()?;
        let name = format!("keys-{}", durability.name());
        let nodes = EphemeralNodes::start(folder, &name, &shape, &mut |node| {
            node.insert("transactions".to_owned(), size(*transactions_bytes));
            node.insert("memory_budget".to_owned(), size(MEMORY_BYTES + transactions_bytes));
            // Nothing is loaded here and no query runs, so these settings are removed.
            for key in ["relay", "relay_memory", "transactions_nice"] {
                node.remove(key);
            }
            node.insert("cache".to_owned(), size(0));
            node.insert("scan_workers".to_owned(), toml::Value::Integer(1));
            let address = verbs.as_deref().and_then(|adapter| on_adapter(node, adapter));
            let listen = node.get_mut("listen").and_then(toml::Value::as_array_mut);
            listen.into_iter().for_each(|listen| listen.extend(address.clone()));
            if *durability != Durability::Replicas {
                alone(node);
            }
            if let Some(logs) = &logs {
                into(logs.path(), node);
            }
            Ok(())
        })?;
        Ok(TransactionNodes { nodes, _logs: logs })
    }
}

/// Lets a node know no other one, so that its log has no replicas: its list of the others has only
/// itself, which it ignores.
fn alone(node: &mut toml::Table) {
    let (Some(number), Some(listen)) = (node.get("node").cloned(), node.get("listen").cloned()) else {
        return;
    };
    let itself = toml::Table::from_iter([("node".to_owned(), number), ("addresses".to_owned(), listen)]);
    node.insert("peers".to_owned(), toml::Value::Array(vec![toml::Value::Table(itself)]));
    node.insert("log_replicas_min".to_owned(), toml::Value::Integer(0));
}

/// Moves the folder of a node's log; its device stays.
fn into(folder: &Path, node: &mut toml::Table) {
    let number = node.get("node").and_then(toml::Value::as_integer).unwrap_or_default();
    let path = folder.join(format!("node{number}")).display().to_string();
    node.insert("data_dir".to_owned(), toml::Value::String(path));
    node.insert("volatile".to_owned(), toml::Value::Boolean(true));
}

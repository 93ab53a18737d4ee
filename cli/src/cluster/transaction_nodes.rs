//! Starts nodes to measure transactions on. These nodes store keys and do little else.

use super::{
    EphemeralNodes, Shape,
    ephemeral::{on_adapter, size},
};
use crate::failure::Failure;
use std::path::PathBuf;

/// Memory of a node in addition to its keys, in bytes.
const MEMORY_BYTES: u64 = 160 << 20;

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
}

impl TransactionNodesOptions {
    /// Starts the nodes.
    pub(crate) fn start(&self) -> Result<EphemeralNodes, Failure> {
        let Self { folder, nodes, transactions_bytes, verbs } = self;
        let shape = Shape { nodes: *nodes, devices: 1, device_size: "64MiB".to_owned() };
        EphemeralNodes::start(folder, "keys", &shape, &mut |node| {
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
            Ok(())
        })
    }
}

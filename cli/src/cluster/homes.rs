//! On which nodes are transactions measured? Nodes of the command's own, which keep keys and little
//! else.

use super::{
    OwnNodes, Shape,
    own::{on_adapter, size},
};
use crate::failure::Failure;
use std::path::PathBuf;

/// What a node needs beside its keys.
const MEMORY_BYTES: u64 = 160 << 20;

/// How many nodes, and how large.
pub(crate) struct HomeOptions {
    /// A folder on the disk that the logs go to; made if it is not there.
    pub(crate) folder: PathBuf,
    /// Nodes, each a process.
    pub(crate) nodes: u16,
    /// Memory for transactions of each.
    pub(crate) transactions_bytes: u64,
    /// The adapter that all of them listen on, too, each at the port that it has for tcp:
    /// `DEVICE@ADDRESS`.
    pub(crate) verbs: Option<String>,
}

impl HomeOptions {
    /// Starts them.
    pub(crate) fn start(&self) -> Result<OwnNodes, Failure> {
        let Self { folder, nodes, transactions_bytes, verbs } = self;
        let shape = Shape { nodes: *nodes, devices: 1, device_size: "64MiB".to_owned() };
        OwnNodes::start(folder, "keys", &shape, &mut |node| {
            node.insert("transactions".to_owned(), size(*transactions_bytes));
            node.insert("memory_budget".to_owned(), size(MEMORY_BYTES + transactions_bytes));
            // Nothing is loaded here, and no query runs.
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

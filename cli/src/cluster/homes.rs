//! On which nodes are transactions measured? Nodes of our own, which keep keys and little else, and are gone afterwards.
//!
//! Invariants
//! - Only a folder that this command made is written and removed.
//! - A node that was killed ended at once, without being asked; one that is started again has what is on its disk.

use super::{ClusterFile, Lifelines, Shape, create};
use crate::failure::{Failure, at_path};
use rackscan_fabric::Wire;
use std::{
    fs,
    path::{Path, PathBuf},
};

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
    /// The adapter that all of them listen on, too, each at the port that it has for tcp: `DEVICE@ADDRESS`.
    pub(crate) verbs: Option<String>,
}

/// The nodes.
pub(crate) struct HomeNodes {
    root: PathBuf,
    file: ClusterFile,
    lifelines: Option<Lifelines>,
}

impl HomeNodes {
    /// Makes a folder and starts the nodes.
    pub(crate) fn start(options: &HomeOptions) -> Result<Self, Failure> {
        let HomeOptions { folder, nodes, transactions_bytes, verbs } = options;
        fs::create_dir_all(folder).map_err(at_path(folder))?;
        let folder = fs::canonicalize(folder).map_err(at_path(folder))?;
        let root = folder.join(format!("rackscan-keys-{}", std::process::id()));
        let shape = Shape { nodes: *nodes, devices: 1, device_size: "64MiB".to_owned() };
        let file = create(&root, &shape)?;
        let file = shaped(&file, *transactions_bytes, verbs.as_deref())?;
        let lifelines = super::start_for_command(&file)?;
        if lifelines.is_none() {
            return Err(Failure::Runtime(format!("{}: other nodes listen there", root.display())));
        }
        Ok(Self { root, file, lifelines })
    }

    /// Where the nodes are, and their key.
    pub(crate) fn file(&self) -> &ClusterFile {
        &self.file
    }

    /// Their processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.lifelines.iter().flat_map(Lifelines::pids).collect()
    }

    /// Ends a node at once.
    pub(crate) fn kill(&mut self, node: u16) -> Result<(), Failure> {
        self.lifelines.as_mut().map_or(Ok(()), |lifelines| lifelines.kill(node))
    }

    /// Starts a node again that was killed; returns when it can be reached.
    pub(crate) fn start_again(&mut self, node: u16) -> Result<(), Failure> {
        let Some(lifelines) = &mut self.lifelines else { return Ok(()) };
        lifelines.start_again(&self.file, node)
    }

    /// Whether the nodes listen on a wire.
    pub(crate) fn has_wire(&self, wire: Wire) -> bool {
        let mut members = self.file.members.iter();
        members.all(|member| member.config.listen.iter().any(|address| address.wire() == wire))
    }
}

impl Drop for HomeNodes {
    fn drop(&mut self) {
        if let Some(lifelines) = self.lifelines.take() {
            lifelines.stop();
        }
        let sockets = self.file.members.first().and_then(|member| {
            member.config.listen.iter().find_map(|address| match address {
                rackscan_fabric::Address::Shm { path } => path.parent().map(Path::to_owned),
                _ => None,
            })
        });
        let elsewhere = sockets.filter(|folder| !folder.starts_with(&self.root));
        for folder in elsewhere.iter().chain([&self.root]) {
            if let Err(error) = fs::remove_dir_all(folder) {
                tracing::warn!("{}: cannot be removed: {error}", folder.display());
            }
        }
    }
}

/// The same nodes with so much memory for transactions, and none for pages; they listen on an adapter, too, if there is one.
fn shaped(file: &ClusterFile, transactions_bytes: u64, verbs: Option<&str>) -> Result<ClusterFile, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::Runtime(format!("{}: {error}", file.path.display()));
    let text = fs::read_to_string(&file.path).map_err(at_path(&file.path))?;
    let mut table: toml::Table = toml::from_str(&text).map_err(|error| wrong(&error))?;
    let nodes = table.get_mut("node").and_then(toml::Value::as_array_mut);
    let size = |bytes: u64| toml::Value::String(format!("{bytes}B"));
    for node in nodes.into_iter().flatten().filter_map(toml::Value::as_table_mut) {
        node.insert("transactions".to_owned(), size(transactions_bytes));
        node.insert("memory_budget".to_owned(), size(MEMORY_BYTES + transactions_bytes));
        node.insert("cache".to_owned(), size(0));
        node.insert("scan_workers".to_owned(), toml::Value::Integer(1));
        if let (Some(place), Some(listen)) =
            (verbs, node.get_mut("listen").and_then(toml::Value::as_array_mut))
        {
            let port =
                listen.iter().find_map(|address| address.as_str()?.strip_prefix("tcp:")?.rsplit_once(':'));
            let address = port.map(|(_, port)| toml::Value::String(format!("verbs:{place}:{port}")));
            listen.extend(address);
        }
    }
    let text = toml::to_string(&table).map_err(|error| wrong(&error))?;
    fs::write(&file.path, text).map_err(at_path(&file.path))?;
    ClusterFile::read(&file.path)
}

//! Starts nodes that belong to one command and are removed when it ends.
//!
//! Invariants
//! - Only a folder that this command created is written and removed.
//! - A killed node ends at once, without a shutdown request. When it is started again, it has only
//!   the data on its disk.

use super::{ClusterFile, Lifelines, Shape, create, own_folder};
use crate::failure::{Failure, at_path};
use rackscan_fabric::{Address, Wire};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Nodes of this command; each is a process.
pub(crate) struct EphemeralNodes {
    root: PathBuf,
    file: ClusterFile,
    lifelines: Option<Lifelines>,
}

impl EphemeralNodes {
    /// Creates a folder of this name in `folder` and starts the nodes; `edit` changes the settings
    /// of each.
    pub(crate) fn start(
        folder: &Path,
        name: &str,
        shape: &Shape,
        edit: &mut dyn FnMut(&mut toml::Table) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let folder = own_folder(folder)?;
        let root = folder.join(format!("rackscan-{name}-{}", std::process::id()));
        let file = create(&root, shape)?;
        let mut nodes = Self { root, file, lifelines: None };
        nodes.file = edited(&nodes.file, edit)?;
        nodes.lifelines = super::start_for_command(&nodes.file, 0)?;
        if nodes.lifelines.is_none() {
            return Err(Failure::Runtime(format!("{}: other nodes listen there", nodes.root.display())));
        }
        Ok(nodes)
    }

    /// The cluster file, with addresses and key.
    pub(crate) fn file(&self) -> &ClusterFile {
        &self.file
    }

    /// The process ids of the nodes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.lifelines.iter().flat_map(Lifelines::pids).collect()
    }

    /// Describes a node that has ended by itself; `None` while all run.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.lifelines.as_mut()?.ended(&self.file)
    }

    /// Kills a node.
    pub(crate) fn kill(&mut self, node: u16) -> Result<(), Failure> {
        self.lifelines.as_mut().map_or(Ok(()), |lifelines| lifelines.kill(node))
    }

    /// Restarts a killed node; returns when it is reachable.
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

impl Drop for EphemeralNodes {
    fn drop(&mut self) {
        if let Some(lifelines) = self.lifelines.take() {
            lifelines.stop();
        }
        let sockets = self.file.members.first().and_then(|member| {
            member.config.listen.iter().find_map(|address| match address {
                Address::Shm { path } => path.parent().map(Path::to_owned),
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

/// Rewrites the cluster file with edited settings of each node.
fn edited(
    file: &ClusterFile,
    edit: &mut dyn FnMut(&mut toml::Table) -> Result<(), Failure>,
) -> Result<ClusterFile, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::Runtime(format!("{}: {error}", file.path.display()));
    let text = fs::read_to_string(&file.path).map_err(at_path(&file.path))?;
    let mut table: toml::Table = toml::from_str(&text).map_err(|error| wrong(&error))?;
    let nodes = table.get_mut("node").and_then(toml::Value::as_array_mut);
    for node in nodes.into_iter().flatten().filter_map(toml::Value::as_table_mut) {
        edit(node)?;
    }
    let text = toml::to_string(&table).map_err(|error| wrong(&error))?;
    fs::write(&file.path, text).map_err(at_path(&file.path))?;
    ClusterFile::read(&file.path)
}

/// A size in the form that configurations use.
pub(super) fn size(bytes: u64) -> toml::Value {
    toml::Value::String(format!("{bytes}B"))
}

/// The address on an adapter (`DEVICE@ADDRESS`) with the tcp port of the node.
pub(super) fn on_adapter(node: &toml::Table, adapter: &str) -> Option<toml::Value> {
    let listen = node.get("listen")?.as_array()?;
    let port = listen.iter().find_map(|address| address.as_str()?.strip_prefix("tcp:")?.rsplit_once(':'));
    port.map(|(_, port)| toml::Value::String(format!("verbs:{adapter}:{port}")))
}

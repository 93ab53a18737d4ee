//! Starts a cluster's nodes for one command with settings that differ from the cluster file.
//!
//! Invariants
//! - The cluster file is never changed. The changed settings are written to a file next to it,
//!   which is removed once the nodes run.
//! - Nodes that were already running keep their settings, so the caller must check that the nodes
//!   have the settings that it asked for.

use super::{ClusterFile, Member, SharedNodes};
use crate::{
    failure::{Failure, at_path},
    private,
};
use rackscan_format::message::NodeStatus;
use std::{fs, path::PathBuf};

/// A key of a node's configuration, and its value.
pub(crate) type Setting = (&'static str, toml::Value);

/// Starts the nodes. `settings` returns for each node the settings that override the file.
pub(crate) fn start_with_overrides(
    file: &ClusterFile,
    settings: &dyn Fn(&Member) -> Vec<Setting>,
) -> Result<SharedNodes, Failure> {
    let text = fs::read_to_string(&file.path).map_err(at_path(&file.path))?;
    let wrong = |error: &dyn std::fmt::Display| Failure::Runtime(format!("{}: {error}", file.path.display()));
    let mut table: toml::Table = toml::from_str(&text).map_err(|error| wrong(&error))?;
    let nodes = table.get_mut("node").and_then(toml::Value::as_array_mut);
    for node in nodes.into_iter().flatten().filter_map(toml::Value::as_table_mut) {
        let number = node.get("node").and_then(toml::Value::as_integer);
        let meant = |member: &&Member| number == Some(i64::from(member.config.node.0));
        for (key, value) in file.members.iter().find(meant).map(settings).into_iter().flatten() {
            node.insert(key.to_owned(), value);
        }
    }
    let changed = Changed(file.folder.join(format!("otherwise-{}.toml", std::process::id())));
    let text = toml::to_string(&table).map_err(|error| wrong(&error))?;
    private::write(&changed.0, &text).map_err(at_path(&changed.0))?;
    SharedNodes::start(&ClusterFile::read(&changed.0)?, 0)
}

/// Settings that give a node a page cache of `bytes` bytes, in addition to its memory budget.
pub(crate) fn page_cache(member: &Member, bytes: u64) -> Vec<Setting> {
    let budget = member.config.memory_budget.0.saturating_add(bytes);
    let size = |bytes: u64| toml::Value::String(format!("{bytes}B"));
    vec![("cache", size(bytes)), ("memory_budget", size(budget))]
}

/// Checks that a node has the page cache that was asked for.
pub(crate) fn check_page_cache(status: &NodeStatus, asked: u64) -> Result<(), Failure> {
    let found = status.cache.budget_bytes;
    if found == asked {
        return Ok(());
    }
    Err(Failure::Runtime(format!(
        "node {} has a page cache of {found} bytes, not the {asked} asked for: it ran before this command: end it with \
         `rackscan cluster stop`, and this command starts it as asked",
        status.node
    )))
}

/// A file that is removed when this value is dropped.
struct Changed(PathBuf);

impl Drop for Changed {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!("{}: cannot be removed: {error}", self.0.display());
        }
    }
}

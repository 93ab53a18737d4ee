//! Moves a node to a new folder, by changing the cluster file.
//!
//! Invariants
//! - The cluster file is replaced atomically. Only this node's folder and the devices in it change;
//!   comments and order stay.
//! - The old folder is not touched, and the new folder must be empty.
//! - Addresses stay the same, so that clients find the node again.

use super::{ClusterFile, is_running};
use crate::{
    failure::{Failure, at_path},
    private,
};
use rackscan_fabric::Address;
use rackscan_format::ids::NodeId;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};
use toml_edit::{DocumentMut, Item, Table, Value};

/// Changes the cluster file so that a node lives in `folder`, and creates that folder. Returns its
/// absolute path.
pub(crate) fn move_node(file: &ClusterFile, node: NodeId, folder: &Path) -> Result<PathBuf, Failure> {
    let member = file.members.iter().find(|member| member.config.node == node);
    let Some(member) = member.filter(|member| member.here) else {
        let path = file.path.display();
        return Err(Failure::Runtime(format!(
            "{path} says that another host runs node {node}: rebuild the node there, or change `host` in its entry"
        )));
    };
    if is_running(file, member) {
        return Err(Failure::Runtime(format!(
            "node {node} runs; end it first with `rackscan cluster stop --node {node}`"
        )));
    }
    private::make_folder(folder).map_err(at_path(folder))?;
    let folder = fs::canonicalize(folder).map_err(at_path(folder))?;
    if fs::read_dir(&folder).map_err(at_path(&folder))?.next().is_some() {
        return Err(Failure::Runtime(format!("{} is not empty; name a new folder", folder.display())));
    }
    let text = fs::read_to_string(&file.path).map_err(at_path(&file.path))?;
    let changed = moved(&text, node, &folder)
        .map_err(|problem| Failure::Runtime(format!("{}: {problem}", file.path.display())))?;
    for address in member.config.listen.iter().chain(&member.config.relay) {
        // The folder of a socket may have been lost with the old folder.
        if let Address::Shm { path } = address
            && let Some(parent) = path.parent()
        {
            private::make_folder(parent).map_err(at_path(parent))?;
        }
    }
    replace(&file.path, &changed)?;
    Ok(folder)
}

/// Returns the file's text with another folder for a node.
fn moved(text: &str, node: NodeId, folder: &Path) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    let nodes = document.get_mut("node").and_then(Item::as_array_of_tables_mut);
    let nodes =
        nodes.ok_or("the nodes are not written as [[node]] tables, expected one for the node to move")?;
    let is_it = |table: &&mut Table| table.get("node").and_then(Item::as_integer) == Some(i64::from(node.0));
    let table = nodes.iter_mut().find(is_it).ok_or_else(|| format!("has no [[node]] with node = {node}"))?;
    let path = |path: &Path| {
        path.to_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("the path {} is not valid UTF-8", path.display()))
    };
    let before = table.get("data_dir").and_then(Item::as_str).unwrap_or_default().to_owned();
    if let Some(value) = table.get_mut("data_dir").and_then(Item::as_value_mut) {
        set(value, path(folder)?);
    }
    let devices = table.get_mut("devices");
    for device in devices.map(paths).unwrap_or_default() {
        let old = PathBuf::from(device.as_str().unwrap_or_default());
        // Devices outside of the old folder (on a disk of their own) are not moved.
        if let Ok(within) = old.strip_prefix(&before) {
            set(device, path(&folder.join(within))?);
        }
    }
    Ok(document.to_string())
}

/// The paths of the devices, in either TOML form of a list of tables.
fn paths(devices: &mut Item) -> Vec<&mut Value> {
    match devices {
        Item::Value(Value::Array(devices)) => {
            let tables = devices.iter_mut().filter_map(Value::as_inline_table_mut);
            tables.filter_map(|device| device.get_mut("path")).collect()
        }
        Item::ArrayOfTables(devices) => {
            let paths = devices.iter_mut().filter_map(|device| device.get_mut("path"));
            paths.filter_map(Item::as_value_mut).collect()
        }
        _ => Vec::new(),
    }
}

/// Replaces the text of a value and keeps the whitespace and comments around it.
fn set(value: &mut Value, text: String) {
    let decor = value.decor().clone();
    *value = Value::from(text);
    *value.decor_mut() = decor;
}

/// Replaces the file atomically.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let unfinished = path.with_extension("toml.new");
    let mut file = private::create(&unfinished).map_err(at_path(&unfinished))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(at_path(&unfinished))?;
    fs::rename(&unfinished, path).map_err(at_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# ours\ncluster = 7\nkey_file = \"cluster.key\"\n\n[[node]]\nnode = 0\ndata_dir = \"node0\" # first\n\
                        devices = [{ path = \"node0/device0\", size = \"1GiB\" }]\nlisten = [\"shm:node0/socket\"]\n\n\
                        [[node]]\nnode = 1\ndata_dir = \"node1\" # second\n\
                        devices = [{ path = \"node1/device0\", size = \"1GiB\" }, { path = \"/dev/nvme7n1\" }]\nlisten = [\"shm:node1/socket\"]\n";

    #[test]
    fn only_the_folder_of_that_node_and_the_devices_in_it_are_changed() {
        let found = moved(TEXT, NodeId(1), Path::new("/new/one")).unwrap();
        let expected = TEXT
            .replace("data_dir = \"node1\"", "data_dir = \"/new/one\"")
            .replace("\"node1/device0\"", "\"/new/one/device0\"");
        assert_eq!(found, expected);
        let tables = "[[node]]\nnode = 1\ndata_dir = \"one\"\n[[node.devices]]\npath = \"one/a\"\n[[node.devices]]\npath = \"two/b\"\n";
        let expected = tables.replace("\"one\"", "\"/new\"").replace("\"one/a\"", "\"/new/a\"");
        assert_eq!(moved(tables, NodeId(1), Path::new("/new")).unwrap(), expected);
    }

    #[test]
    fn a_node_that_is_not_there_and_files_of_another_form_are_named() {
        assert!(moved(TEXT, NodeId(2), Path::new("/new")).unwrap_err().contains("node = 2"));
        assert!(moved("cluster = 7\n", NodeId(2), Path::new("/new")).unwrap_err().contains("[[node]]"));
        assert!(moved("cluster = \n", NodeId(2), Path::new("/new")).is_err());
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        fs::write(&path, TEXT).unwrap();
        replace(&path, "other").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "other");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

//! Checks that the data folders of this host belong to the cluster that the cluster file describes.
//!
//! Invariants
//! - If a data folder of this host records other nodes than the file lists, nothing is started and
//!   no connection is made.
//! - Data folders that an earlier version wrote record no member list. Such folders are refused if
//!   another node's folder is empty, because that node may have been added to the file.

use super::{ClusterFile, Member};
use crate::failure::Failure;
use rackscan_format::ids::NodeId;
use rackscan_storage_node::IdentityFile;
use std::collections::BTreeMap;

/// What a data folder holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// An identity.
    Identity,
    /// Data of an earlier version, without an identity.
    Earlier,
    Nothing,
}

/// Compares the file with what the data folders of this host record. The folder of node `rebuilt`
/// may be lost.
pub(crate) fn check_members(file: &ClusterFile, rebuilt: Option<NodeId>) -> Result<(), Failure> {
    let mut found: Vec<(&Member, Holds)> = Vec::new();
    for member in file.members_here() {
        let identity = read(file, member)?;
        if let Some(identity) = &identity {
            let checked = identity.check(&member.config);
            checked.map_err(|error| Failure::Runtime(format!("{}: {error}", file.path.display())))?;
        }
        let holds = match identity {
            Some(_) => Holds::Identity,
            None if has_data_files(member) => Holds::Earlier,
            None => Holds::Nothing,
        };
        found.push((member, holds));
    }
    let holds = |wanted: Holds| found.iter().filter(move |(_, holds)| *holds == wanted);
    let empty = holds(Holds::Nothing).find(|(member, _)| Some(member.config.node) != rebuilt);
    match (holds(Holds::Identity).next(), holds(Holds::Earlier).next(), empty) {
        (None, Some(_), Some((empty, _))) => Err(not_adopted(file, &found, empty)),
        _ => Ok(()),
    }
}

/// Whether a node has used its folder on this host.
pub(super) fn has_data(member: &Member) -> bool {
    !matches!(IdentityFile::read(&member.config.data_dir), Ok(None)) || has_data_files(member)
}

fn has_data_files(member: &Member) -> bool {
    ["catalog", "transactions.log"].iter().any(|name| member.config.data_dir.join(name).exists())
}

fn not_adopted(file: &ClusterFile, found: &[(&Member, Holds)], empty: &Member) -> Failure {
    let ids = |of: &mut dyn Iterator<Item = &Member>| {
        of.map(|member| member.config.node.to_string()).collect::<Vec<_>>().join(", ")
    };
    let listed = ids(&mut file.members.iter());
    let mut earlier = found.iter().filter(|(_, holds)| *holds == Holds::Earlier).map(|(member, _)| *member);
    let earlier = ids(&mut earlier);
    let (path, node, folder) = (file.path.display(), empty.config.node, empty.config.data_dir.display());
    Failure::Runtime(format!(
        "{path} lists nodes {listed}, but only nodes {earlier} have data, which an earlier version wrote without a member list; the \
         folder {folder} of node {node} is empty. A cluster cannot gain or lose nodes: if node {node} was added to the file, remove \
         it again; if the node has lost its folder, restore its data by `rackscan rebuild {node}`"
    ))
}

fn read(file: &ClusterFile, member: &Member) -> Result<Option<IdentityFile>, Failure> {
    IdentityFile::read(&member.config.data_dir)
        .map_err(|error| Failure::Runtime(format!("{}: {error}", file.path.display())))
}

/// The random ids of the data folders of this host's nodes, where they exist.
pub(crate) fn folder_ids(file: &ClusterFile) -> Result<BTreeMap<NodeId, u64>, Failure> {
    let mut ids = BTreeMap::new();
    for member in file.members_here() {
        if let Some(identity) = read(file, member)? {
            ids.insert(member.config.node, identity.folder_id());
        }
    }
    Ok(ids)
}

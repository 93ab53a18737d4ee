//! Reads the cluster file: a TOML file, the same on every host, that lists the nodes and their
//! addresses.
//!
//! ```toml
//! cluster = "demo"                # a name or a number; devices of other clusters are refused
//! key_file = "cluster.key"        # 64 hexadecimal digits, readable by the owner only
//!
//! [[node]]
//! node = 0
//! host = "rack1"                  # optional: `cluster start` runs it on that host only
//! data_dir = "node0"
//! devices = [{ path = "node0/device0", size = "64GiB" }]
//! listen = ["shm:node0/socket", "tcp:10.0.0.1:7410"]
//! memory_budget = "512MiB"        # optional, like all other settings of a node
//! bridge = "static"               # who waits for the devices; with io, io_threads, pollers, pin_cores
//! ```
//!
//! Invariants
//! - Relative paths are relative to the file's own folder.
//! - Unknown keys, missing keys and two nodes with the same number are errors that name the file
//!   and the node.

use crate::{
    args::Global,
    failure::{Failure, at_path},
    private,
};
use rackscan_client::NodeEndpoint;
use rackscan_fabric::ClusterKey;
use rackscan_format::ids::NodeId;
use rackscan_storage_node::{ClusterId, Config, PeerConfig};
use serde::Deserialize;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The file as parsed. [`Config`] reads all settings of a node except `host`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterText {
    cluster: ClusterId,
    key_file: PathBuf,
    node: Vec<toml::Table>,
}

/// One node of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Its settings.
    pub(crate) config: Config,
    /// Whether it runs on this host.
    pub(crate) here: bool,
}

/// A parsed and checked cluster file.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFile {
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Folder of the file, an absolute path.
    pub(crate) folder: PathBuf,
    /// The nodes.
    pub(crate) members: Vec<Member>,
    key_file: PathBuf,
}

impl ClusterFile {
    /// Reads the file that the options name; `None` if the data folder has none yet.
    pub(crate) fn find(global: &Global) -> Result<Option<Self>, Failure> {
        if let Some(path) = &global.cluster {
            return Self::read(path).map(Some);
        }
        let path = global.data.join("cluster.toml");
        if path.exists() { Self::read(&path).map(Some) } else { Ok(None) }
    }

    /// Reads and checks the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(at_path(path))?;
        let absolute = fs::canonicalize(path).map_err(at_path(path))?;
        let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        Self::parse(&text, &absolute, &folder)
            .map_err(|text| Failure::Runtime(format!("{}: {text}", path.display())))
    }

    fn parse(text: &str, path: &Path, folder: &Path) -> Result<Self, String> {
        let text: ClusterText =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if text.node.is_empty() {
            return Err("the file lists no node, expected one or more [[node]]".to_owned());
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut members: Vec<(usize, Member)> = Vec::with_capacity(text.node.len());
        for (index, mut table) in text.node.into_iter().enumerate() {
            let at = |error: String| format!("[[node]] number {index}: {error}");
            let here = match table.remove("host") {
                None => true,
                Some(toml::Value::String(name)) => name == host.trim(),
                Some(other) => return Err(at(format!("host is {other}, expected a host's name"))),
            };
            if table.contains_key("members") {
                return Err(at(
                    "`members` is not a setting of this file, because all nodes in it are members: remove it"
                        .to_owned(),
                ));
            }
            for key in ["cluster", "key_file"] {
                if table.contains_key(key) {
                    return Err(at(format!("{key} belongs at the top of the file, once for all nodes")));
                }
            }
            let cluster = toml::Value::try_from(text.cluster).map_err(|error| at(error.to_string()))?;
            table.insert("cluster".to_owned(), cluster);
            let key_file = text.key_file.display().to_string();
            table.insert("key_file".to_owned(), toml::Value::String(key_file));
            let config = toml::Value::Table(table).try_into::<Config>();
            let mut config = config.map_err(|error| at(error.to_string().trim_end().to_owned()))?;
            config.make_relative_to(folder);
            if members.iter().any(|(_, member)| member.config.node == config.node) {
                return Err(at(format!("node {} is listed twice, expected each number once", config.node)));
            }
            members.push((index, Member { config, here }));
        }
        members.sort_by_key(|(_, member)| member.config.node);
        let (numbers, mut members): (Vec<usize>, Vec<Member>) = members.into_iter().unzip();
        introduce(&mut members);
        let ids: Vec<NodeId> = members.iter().map(|member| member.config.node).collect();
        members.iter_mut().for_each(|member| member.config.members.clone_from(&ids));
        for (number, member) in numbers.into_iter().zip(&members) {
            // Checked only now, because a node's settings include its peers.
            member.config.check().map_err(|error| format!("[[node]] number {number}: {error}"))?;
        }
        let key_file = folder.join(&text.key_file);
        Ok(Self { path: path.to_owned(), folder: folder.to_owned(), members, key_file })
    }

    /// The nodes that this host runs.
    pub(crate) fn members_here(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.here)
    }

    /// The addresses of all nodes.
    pub(crate) fn endpoints(&self) -> Vec<NodeEndpoint> {
        let endpoints = self
            .members
            .iter()
            .map(|Member { config, .. }| NodeEndpoint { id: config.node, addresses: config.listen.clone() });
        endpoints.collect()
    }

    /// The cluster's key.
    pub(crate) fn key(&self) -> Result<ClusterKey, Failure> {
        let key: ClusterKey = read_key(&self.key_file)?;
        Ok(self.members.first().map_or_else(|| key.clone(), |member| key.of_cluster(member.config.cluster.0)))
    }
}

/// Name of the lock file held while a command creates a cluster, or looks for its nodes and starts
/// them.
pub(crate) const STARTING_LOCK: &str = "starting.lock";

/// Locks a file of a data folder, creating it if necessary. The lock lasts until the returned file
/// is dropped.
pub(crate) fn lock(folder: &Path, name: &str, lock: fn(&File) -> io::Result<()>) -> Result<File, Failure> {
    let path = folder.join(name);
    let opened = private::options().append(true).open(&path);
    opened.and_then(|file| lock(&file).map(|()| file)).map_err(at_path(&path))
}

/// Reads a key file, which must be readable by its owner only.
pub(crate) fn read_key(file: &Path) -> Result<ClusterKey, Failure> {
    let path = file.display();
    let found = fs::metadata(file).map_err(|error| {
        Failure::Runtime(format!(
            "{path}: {error}; expected the cluster's key, 64 hexadecimal digits: restore the file, or, with all nodes stopped, put the \
             same new key there on every host (`(umask 077; openssl rand -hex 32 > {path})`)"
        ))
    })?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Failure::Runtime(format!(
            "{path}: the key file has mode {mode:04o}, so that others can read or write it; expected 0600, for its owner alone: \
             `chmod 600 {path}`"
        )));
    }
    let text = fs::read_to_string(file).map_err(at_path(file))?;
    text.parse().map_err(|error| Failure::Runtime(format!("{path}: {error}")))
}

/// Gives every node the addresses of the others, unless the file lists its peers.
fn introduce(members: &mut [Member]) {
    let peers: Vec<PeerConfig> = members
        .iter()
        .map(|Member { config, .. }| PeerConfig {
            node: config.node,
            addresses: config.listen.clone(),
            relay: config.relay.clone(),
        })
        .collect();
    for member in members.iter_mut().filter(|member| member.config.peers.is_empty()) {
        let others = peers.iter().filter(|peer| peer.node != member.config.node);
        member.config.peers = others.cloned().collect();
    }
}

/// Reads the settings of one node: from a file of its own, or from a cluster file and the node's
/// number.
pub(crate) fn node_config(path: &Path, id: Option<u16>) -> Result<Config, Failure> {
    let Some(id) = id else {
        let config = Config::from_file(path).map_err(|error| Failure::of(&error))?;
        read_key(&config.key_file)?;
        return Ok(config);
    };
    let file = ClusterFile::read(path)?;
    file.key()?;
    let numbers: Vec<String> = file.members.iter().map(|member| member.config.node.to_string()).collect();
    let member = file.members.into_iter().find(|member| member.config.node.0 == id);
    member.map(|member| member.config).ok_or_else(|| {
        Failure::Runtime(format!("{}: has no node {id}, only {}", path.display(), numbers.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        cluster = "demo"
        key_file = "cluster.key"
        [[node]]
        node = 1
        data_dir = "node1"
        devices = [{ path = "node1/device0", size = "1GiB" }]
        listen = ["shm:node1/socket"]
        [[node]]
        node = 0
        host = "no such host"
        data_dir = "/srv/node0"
        devices = [{ path = "/srv/node0/device0", size = "1GiB" }]
        listen = ["tcp:10.0.0.9:7410"]
        "#;

    fn parse(text: &str) -> Result<ClusterFile, String> {
        ClusterFile::parse(text, Path::new("/data/cluster.toml"), Path::new("/data"))
    }

    #[test]
    fn nodes_are_read_in_order_with_paths_relative_to_the_file() {
        let file = parse(TEXT).unwrap();
        assert_eq!(file.members[0].config.node.0, 0);
        assert_eq!(file.members[1].config.listen[0].to_string(), "shm:/data/node1/socket");
        assert_eq!(file.members[1].config.key_file, Path::new("/data/cluster.key"));
    }

    #[test]
    fn a_node_is_told_where_the_others_are_unless_the_file_does() {
        let peers = |file: &ClusterFile, member: usize| {
            let peers = file.members[member].config.peers.iter();
            peers.map(|peer| format!("{} {}", peer.node, peer.addresses[0])).collect::<Vec<_>>()
        };
        let file = parse(TEXT).unwrap();
        assert_eq!(peers(&file, 0), ["1 shm:/data/node1/socket"]);
        assert_eq!(peers(&file, 1), ["0 tcp:10.0.0.9:7410"]);
        let told = "data_dir = \"node1\"\npeers = [{ node = 0, addresses = [\"tcp:10.0.0.8:1\"] }]";
        let file = parse(&TEXT.replace("data_dir = \"node1\"", told)).unwrap();
        assert_eq!(peers(&file, 1), ["0 tcp:10.0.0.8:1"]);
    }

    #[test]
    fn as_many_log_replicas_may_be_asked_for_as_there_are_other_nodes() {
        let told = |replicas: u8| format!("data_dir = \"node1\"\nlog_replicas_min = {replicas}");
        let file = parse(&TEXT.replace("data_dir = \"node1\"", &told(1))).unwrap();
        assert_eq!(file.members[1].config.log_replicas_min(), 1);
        let refused = parse(&TEXT.replace("data_dir = \"node1\"", &told(2))).unwrap_err();
        assert!(refused.contains("number 0") && refused.contains("at most 1"), "{refused}");
    }

    #[test]
    fn a_node_is_told_its_bridge() {
        let told =
            "data_dir = \"node1\"\nbridge = \"static\"\npollers = 2\nio_threads = 9\nscratch = \"1GiB\"";
        let file = parse(&TEXT.replace("data_dir = \"node1\"", told)).unwrap();
        let shown: Vec<String> =
            file.members.iter().map(|member| member.config.bridge_status().to_string()).collect();
        assert_eq!(shown, ["reactor, uring", "static, pread x 9"]);
        assert_eq!(file.members[1].config.pollers(), 2);
    }

    #[test]
    fn a_node_of_another_host_is_not_run_here() {
        let file = parse(TEXT).unwrap();
        assert_eq!(file.members_here().map(|member| member.config.node.0).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn wrong_keys_and_repeated_nodes_are_named() {
        for (from, to, message) in [
            ("key_file =", "keyfile =", "keyfile"),
            ("data_dir = \"node1\"", "datadir = \"node1\"", "datadir"),
            ("node = 0", "node = 1", "node 1 is listed twice"),
            ("listen = [\"shm:node1/socket\"]", "listen = [\"smoke:signals\"]", "wire"),
            ("host = \"no such host\"", "host = 7", "host is 7"),
            ("data_dir = \"node1\"", "data_dir = \"node1\"\nkey_file = \"x\"", "once"),
        ] {
            let error = parse(&TEXT.replace(from, to)).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        assert!(parse("cluster = 1\nkey_file = \"k\"\nnode = []").unwrap_err().contains("no node"));
    }
}

//! Runs nodes in network namespaces of their own, joined by a bridge in another namespace, so that
//! links can be cut without touching this host's network. This needs root.
//!
//! Invariants
//! - The names of the namespaces contain this process's number. They are removed at the end; those
//!   of a killed run are removed by the next run.
//! - The host's own network is not changed.

use std::process::Command;

const PREFIX: &str = "rackscan-chaos-";
const SUBNET: &str = "10.77.0";

/// A network for the nodes, and a namespace for clients.
pub(crate) struct Network {
    nodes: usize,
    /// Pairs of nodes that are cut, in one direction.
    blocked: Vec<(usize, usize)>,
    /// Nodes whose links are down.
    down: Vec<usize>,
}

fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split_whitespace()).output();
    let output =
        output.map_err(|error| format!("ip does not start: {error}; install Debian's package iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn hub() -> String {
    format!("{PREFIX}{}-hub", std::process::id())
}

fn place(node: usize) -> String {
    format!("{PREFIX}{}-{node}", std::process::id())
}

impl Network {
    /// Creates the network, or says what is missing.
    pub(crate) fn new(nodes: usize) -> Result<Self, String> {
        remove_old();
        let network = Self { nodes, blocked: Vec::new(), down: Vec::new() };
        let hub = hub();
        ip(&format!("netns add {hub}"))?;
        ip(&format!("-n {hub} link set lo up"))?;
        ip(&format!("-n {hub} link add bridge0 type bridge"))?;
        ip(&format!("-n {hub} addr add {SUBNET}.254/24 dev bridge0"))?;
        ip(&format!("-n {hub} link set bridge0 up"))?;
        for node in 0..nodes {
            let place = place(node);
            ip(&format!("netns add {place}"))?;
            ip(&format!("-n {hub} link add node{node} type veth peer name eth0 netns {place}"))?;
            ip(&format!("-n {hub} link set node{node} master bridge0 up"))?;
            ip(&format!("-n {place} addr add {}/24 dev eth0", Self::address(node)))?;
            ip(&format!("-n {place} link set eth0 up"))?;
            ip(&format!("-n {place} link set lo up"))?;
        }
        Ok(network)
    }

    /// The namespace of clients.
    pub(crate) fn clients(&self) -> String {
        hub()
    }

    /// The namespace of a node.
    pub(crate) fn node(&self, node: usize) -> String {
        assert!(node < self.nodes, "node {node} of {}", self.nodes);
        place(node)
    }

    pub(crate) fn address(node: usize) -> String {
        format!("{SUBNET}.{}", node + 1)
    }

    /// Cuts a node off from all others.
    pub(crate) fn isolate(&mut self, node: usize) {
        ip(&format!("-n {} link set node{node} down", hub())).expect("a link can be cut");
        self.down.push(node);
    }

    /// Blocks everything that a node sends to another one.
    pub(crate) fn block(&mut self, from: usize, to: usize) {
        ip(&format!("-n {} route add blackhole {}/32", place(from), Self::address(to)))
            .expect("a way can be blocked");
        self.blocked.push((from, to));
    }

    /// Restores all links.
    pub(crate) fn heal(&mut self) {
        for node in self.down.drain(..) {
            ip(&format!("-n {} link set node{node} up", hub())).expect("a link comes back");
        }
        for (from, to) in self.blocked.drain(..) {
            ip(&format!("-n {} route del blackhole {}/32", place(from), Self::address(to)))
                .expect("a way comes back");
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        remove(&format!("{PREFIX}{}-", std::process::id()));
    }
}

/// Removes the namespaces whose names have this prefix, and their links with them.
fn remove(prefix: &str) {
    for name in names().iter().filter(|name| name.starts_with(prefix)) {
        if let Err(problem) = ip(&format!("netns del {name}")) {
            eprintln!("a network namespace is left: {problem}");
        }
    }
}

/// Removes namespaces of runs that were killed.
fn remove_old() {
    for name in names() {
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next())
            .and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&name);
        }
    }
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

//! On which nodes are relays of stripes measured? Nodes of the command's own, which relay and do
//! little else.

use super::{
    ClientLink, OwnNodes, Shape,
    embedded::{RELAY_SUFFIX, free_ports},
    own::size,
};
use crate::failure::Failure;
use rackscan_lab::WireKind;
use std::path::PathBuf;

/// What a node needs beside its relays.
const MEMORY_BYTES: u64 = 160 << 20;
/// Labels and what the filesystem needs, beyond the scratch area.
const MARGIN_BYTES: u64 = 64 << 20;
/// How often the nodes are started if somebody else takes a port between our finding it free and
/// their listening there.
const STARTS_MAX: u32 = 3;
/// What is said then, by a node or by us.
const TAKEN: [&str; 2] = ["is in use", "other nodes listen there"];

/// How many nodes, and how large.
pub(crate) struct RelayOptions<'l> {
    /// A folder on the disk that cells go to; made if it is not there.
    pub(crate) folder: PathBuf,
    /// Nodes, each a process.
    pub(crate) nodes: u16,
    /// Each has a relay for each of these.
    pub(crate) wires: Vec<WireKind>,
    /// Memory of each relay.
    pub(crate) relay_bytes: u64,
    /// Bytes on disk of each relay; none if nothing is written there.
    pub(crate) area_bytes: Option<u64>,
    /// The adapter that all of them relay on if verbs is among the wires: `DEVICE@ADDRESS`.
    pub(crate) verbs: Option<String>,
    /// The only way to them over tcp.
    pub(crate) link: Option<&'l ClientLink>,
}

impl RelayOptions<'_> {
    /// Starts them.
    pub(crate) fn start(&self) -> Result<OwnNodes, Failure> {
        let mut starts = 1;
        loop {
            match self.start_once() {
                Err(failure) if starts < STARTS_MAX && is_taken(&failure.to_string()) => starts += 1,
                outcome => return outcome,
            }
        }
    }

    fn start_once(&self) -> Result<OwnNodes, Failure> {
        match self.link {
            Some(link) => link.among_nodes(|| self.start_at(link.host())).map_err(Failure::Runtime).flatten(),
            None => self.start_at("127.0.0.1"),
        }
    }

    /// Starts them where this address is theirs.
    fn start_at(&self, host: &str) -> Result<OwnNodes, Failure> {
        let relays = self.wires.len() as u64;
        let relay_bytes = self.relay_bytes * relays;
        // A node divides its area among its relays.
        let scratch_bytes = self.area_bytes.map(|bytes| bytes.saturating_mul(relays));
        let device_size = format!("{}B", scratch_bytes.unwrap_or(0).saturating_add(MARGIN_BYTES));
        let shape = Shape { nodes: self.nodes, devices: 1, device_size };
        let mut ports = free_ports(host, self.nodes.into())?.into_iter();
        OwnNodes::start(&self.folder, "relays", &shape, &mut |node| {
            let port = ports.next().unwrap_or_default();
            let socket = node.get("listen").and_then(|listen| listen.as_array()?.first()?.as_str());
            let socket = socket.unwrap_or("shm:socket").to_owned();
            let address = |wire: &WireKind| match wire {
                WireKind::Shm => format!("{socket}{RELAY_SUFFIX}"),
                WireKind::Tcp => format!("tcp:{host}:{port}"),
                WireKind::Verbs => format!("verbs:{}:{port}", self.verbs.as_deref().unwrap_or_default()),
            };
            let relay = self.wires.iter().map(|wire| toml::Value::String(address(wire))).collect();
            node.insert("relay".to_owned(), toml::Value::Array(relay));
            node.insert("relay_memory".to_owned(), size(relay_bytes));
            node.insert("transactions".to_owned(), size(0));
            node.insert("memory_budget".to_owned(), size(MEMORY_BYTES + relay_bytes));
            node.insert("cache".to_owned(), size(0));
            node.insert("scan_workers".to_owned(), toml::Value::Integer(1));
            if let Some(bytes) = scratch_bytes {
                node.insert("scratch".to_owned(), size(bytes));
            }
            Ok(())
        })
    }
}

/// Whether nodes did not start because of an address that somebody else has.
fn is_taken(why: &str) -> bool {
    TAKEN.iter().any(|said| why.contains(said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_fabric::{Address, ClusterKey, ListenError, Listener};
    use std::net::TcpListener;

    #[test]
    fn a_port_that_somebody_else_took_is_told_from_other_failures() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: held.local_addr().unwrap().port() };
        let refused: ListenError = Listener::bind(&address, &ClusterKey::from_bytes([1; 32])).unwrap_err();
        assert!(is_taken(&format!("node 1 did not start (exit status: 1): {refused}")), "{refused}");
        assert!(!is_taken("node 1 did not start (exit status: 1): memory_budget is 1MiB"));
    }
}

//! Starts nodes to measure relays of stripes on. A relay is the part of a node that forwards cells
//! of stripes to other nodes and computes their parity; these nodes do little else.

use super::{
    ClientLink, EphemeralNodes, Shape,
    embedded::{RELAY_SUFFIX, free_ports},
    ephemeral::size,
};
use crate::failure::Failure;
use rackscan_fabric::Wire;
use std::path::PathBuf;

/// Memory of a node in addition to its relays, in bytes.
const MEMORY_BYTES: u64 = 160 << 20;
/// Disk space for labels and the filesystem, in addition to the scratch area.
const MARGIN_BYTES: u64 = 64 << 20;
/// How often to start the nodes, because another process may take a port after it was found free
/// and before the node listens there.
const STARTS_MAX: u32 = 3;
/// Parts of the error messages, of a node or of this program, that report a port in use.
const TAKEN: [&str; 2] = ["is in use", "other nodes listen there"];

/// The nodes to start.
pub(crate) struct RelayOptions<'l> {
    /// Folder on the disk that cells are written to; created if necessary.
    pub(crate) folder: PathBuf,
    /// Number of nodes, each a process.
    pub(crate) nodes: u16,
    /// Wires; each node has one relay per wire.
    pub(crate) wires: Vec<Wire>,
    /// Memory of each relay, in bytes.
    pub(crate) relay_bytes: u64,
    /// Disk space of each relay in bytes; `None` if cells stay in memory.
    pub(crate) area_bytes: Option<u64>,
    /// Adapter that all nodes relay on if verbs is among the wires: `DEVICE@ADDRESS`.
    pub(crate) verbs: Option<String>,
    /// The link by which this command reaches the nodes over tcp.
    pub(crate) link: Option<&'l ClientLink>,
}

impl RelayOptions<'_> {
    /// Starts the nodes.
    pub(crate) fn start(&self) -> Result<EphemeralNodes, Failure> {
        let mut starts = 1;
        loop {
            match self.start_once() {
                Err(failure) if starts < STARTS_MAX && is_taken(&failure.to_string()) => starts += 1,
                outcome => return outcome,
            }
        }
    }

    fn start_once(&self) -> Result<EphemeralNodes, Failure> {
        match self.link {
            Some(link) => link.among_nodes(|| self.start_at(link.host())).map_err(Failure::Runtime).flatten(),
            None => self.start_at("127.0.0.1"),
        }
    }

    /// Starts the nodes at this address.
    fn start_at(&self, host: &str) -> Result<EphemeralNodes, Failure> {
        let relays = self.wires.len() as u64;
        let relay_bytes = self.relay_bytes * relays;
        // A node divides its area among its relays.
        let scratch_bytes = self.area_bytes.map(|bytes| bytes.saturating_mul(relays));
        let device_size = format!("{}B", scratch_bytes.unwrap_or(0).saturating_add(MARGIN_BYTES));
        let shape = Shape { nodes: self.nodes, devices: 1, device_size };
        let mut ports = free_ports(host, self.nodes.into())?.into_iter();
        EphemeralNodes::start(&self.folder, "relays", &shape, &mut |node| {
            let port = ports.next().unwrap_or_default();
            let socket = node.get("listen").and_then(|listen| listen.as_array()?.first()?.as_str());
            let socket = socket.unwrap_or("shm:socket").to_owned();
            let address = |wire: &Wire| match wire {
                Wire::Shm => format!("{socket}{RELAY_SUFFIX}"),
                Wire::Tcp => format!("tcp:{host}:{port}"),
                Wire::Verbs => format!("verbs:{}:{port}", self.verbs.as_deref().unwrap_or_default()),
                Wire::Sim => unreachable!("no option names the simulated wire"),
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

/// Whether nodes did not start because another process uses an address of theirs.
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

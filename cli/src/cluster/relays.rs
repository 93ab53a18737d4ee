//! On which nodes are relays of stripes measured? Nodes of the command's own, which relay and do little else.

use super::{ClientLink, OwnNodes, Shape, own::size};
use crate::failure::Failure;
use std::{net::TcpListener, path::PathBuf};

/// What a node needs beside its relays.
const MEMORY_BYTES: u64 = 160 << 20;
/// Labels and what the filesystem needs, beyond the scratch area.
const MARGIN_BYTES: u64 = 64 << 20;
/// Memory of a node's relays: for each wire so much.
const RELAY_BYTES: u64 = 192 << 20;

/// How many nodes, and how large.
pub(crate) struct RelayOptions<'l> {
    /// A folder on the disk that cells go to; made if it is not there.
    pub(crate) folder: PathBuf,
    /// Nodes, each a process.
    pub(crate) nodes: u16,
    /// Bytes of each node's scratch area, divided among its relays; none if nothing is written to disk.
    pub(crate) scratch_bytes: Option<u64>,
    /// The adapter that all of them relay on, too: `DEVICE@ADDRESS`.
    pub(crate) verbs: Option<String>,
    /// The only way to them over tcp.
    pub(crate) link: Option<&'l ClientLink>,
}

impl RelayOptions<'_> {
    /// Starts them.
    pub(crate) fn start(&self) -> Result<OwnNodes, Failure> {
        match self.link {
            Some(link) => link.among_nodes(|| self.start_at(link.host())).map_err(Failure::Runtime).flatten(),
            None => self.start_at("127.0.0.1"),
        }
    }

    /// Starts them where this address is theirs.
    fn start_at(&self, host: &str) -> Result<OwnNodes, Failure> {
        let Self { folder, nodes, scratch_bytes, verbs, link: _ } = self;
        let device_bytes = scratch_bytes.unwrap_or(0) + MARGIN_BYTES;
        let shape = Shape { nodes: *nodes, devices: 1, device_size: format!("{device_bytes}B") };
        let mut ports = free_ports(host, *nodes)?.into_iter();
        OwnNodes::start(folder, "relays", &shape, &mut |node| {
            let port = ports.next().unwrap_or_default();
            let socket = node.get("listen").and_then(|listen| listen.as_array()?.first()?.as_str());
            let shm = format!("{}.relay", socket.unwrap_or("shm:socket"));
            let mut relay = vec![toml::Value::String(shm), toml::Value::String(format!("tcp:{host}:{port}"))];
            relay.extend(verbs.iter().map(|adapter| toml::Value::String(format!("verbs:{adapter}:{port}"))));
            let relay_bytes = RELAY_BYTES * relay.len() as u64;
            node.insert("relay".to_owned(), toml::Value::Array(relay));
            node.insert("relay_memory".to_owned(), size(relay_bytes));
            node.insert("transactions".to_owned(), size(0));
            node.insert("memory_budget".to_owned(), size(MEMORY_BYTES + relay_bytes));
            node.insert("cache".to_owned(), size(0));
            node.insert("scan_workers".to_owned(), toml::Value::Integer(1));
            if let Some(bytes) = scratch_bytes {
                node.insert("scratch".to_owned(), size(*bytes));
            }
            Ok(())
        })
    }
}

/// So many ports that nobody has now.
fn free_ports(host: &str, count: u16) -> Result<Vec<u16>, Failure> {
    // Held until all are known, so that none is given twice.
    let held: Result<Vec<TcpListener>, std::io::Error> =
        (0..count).map(|_| TcpListener::bind((host, 0))).collect();
    let ports = held.and_then(|held| held.iter().map(|held| Ok(held.local_addr()?.port())).collect());
    ports.map_err(|error| Failure::Runtime(format!("no free TCP ports on {host}: {error}")))
}

//! Defines the interface that starts the nodes whose relays are measured. A relay is the part of a
//! node that computes parity and forwards cells of stripes to other nodes.

use rackscan_fabric::ClusterKey;
use rackscan_relay::Member;

use rackscan_fabric::Wire;

/// Relays to write to.
#[derive(Clone, Debug)]
pub struct Relays {
    /// By node, ascending, on the requested wire.
    pub members: Vec<Member>,
    /// Addresses to read the counters of the same nodes.
    pub nodes: Vec<rackscan_client::NodeEndpoint>,
    /// Key of the nodes.
    pub key: ClusterKey,
}

/// Starts nodes.
pub trait RelayHost {
    /// Starts this many nodes whose relays are reached by this wire. They run until others are
    /// asked for.
    ///
    /// # Errors
    /// A text that says why they could not start.
    fn start(&mut self, nodes: usize, wire: Wire) -> Result<Relays, String>;

    /// Describes nodes that should run and do not; `None` if all run.
    fn gone(&mut self) -> Option<String>;
}

//! Connects to the node that a query simulation runs on, and finds the segments of its table.

use std::sync::atomic::{AtomicBool, Ordering};

use rackscan_client::{Cluster, ClusterOptions, ClusterTable, LocalDevices, NodeEndpoint};
use rackscan_fabric::{Address, Wire};
use tokio::runtime::{Builder, Runtime};

use super::error::SimulationError;
use super::plan::Simulation;
use super::queries::TABLE;
use crate::experiment::RunningNode;
use crate::limits::NODE_PATIENCE;

/// A loaded node and the connections to it.
pub(super) struct Ground {
    pub(super) pid: Option<u32>,
    pub(super) table: ClusterTable,
    pub(super) clusters: Vec<Cluster>,
    pub(super) devices: LocalDevices,
}

impl Ground {
    /// Makes `connections` connections. They bypass the node's page cache: every page comes from
    /// its device.
    pub(super) fn connect(
        node: &RunningNode,
        simulation: &Simulation,
        connections: u32,
        stop: &AtomicBool,
    ) -> Result<Self, SimulationError> {
        let runtime = runtime()?;
        let options = options(node, simulation)?;
        let mut clusters = Vec::with_capacity(connections as usize);
        for _ in 0..connections {
            if stop.load(Ordering::Relaxed) {
                return Err(SimulationError::Stopped);
            }
            clusters.push(runtime.block_on(Cluster::connect(options.clone()))?);
        }
        let first = clusters.first().ok_or(SimulationError::Ended)?;
        let table = runtime.block_on(first.catalog())?.table(TABLE)?.clone();
        let devices = LocalDevices::attach(first.statuses());
        Ok(Self { pid: node.pid, table, clusters, devices })
    }
}

fn options(node: &RunningNode, simulation: &Simulation) -> Result<ClusterOptions, SimulationError> {
    let wire = simulation.wire;
    let address = node.addresses.iter().find(|(of, _)| *of == wire);
    let (_, address): &(Wire, Address) =
        address.ok_or_else(|| SimulationError::NoWire { wire: wire.to_string() })?;
    let endpoint = NodeEndpoint { id: node.node, addresses: vec![address.clone()] };
    let mut options = ClusterOptions::new(vec![endpoint], node.key.clone());
    options.wire = Some(wire);
    options.memory_bytes = simulation.memory_bytes();
    options.request_timeout = NODE_PATIENCE;
    options.reads_caches = false;
    Ok(options)
}

/// A runtime that awaits answers on the calling thread.
pub(super) fn runtime() -> Result<Runtime, SimulationError> {
    Builder::new_current_thread().build().map_err(SimulationError::Thread)
}

//! Opens the devices of nodes on this host, and checks that they are the devices that the nodes
//! use.
//!
//! Invariants
//! - Either all devices of a node are attached, or none is.

use std::{collections::BTreeMap, sync::Arc};

use rackscan_device::{
    Access, BufferPool, Device, DeviceIndex, IoMemory, Read, Ring, RingConfig, Token, read_all,
};
use rackscan_format::{
    ids::NodeId,
    label::DeviceLabel,
    limits::SECTOR_BYTES,
    message::{DeviceStatus, NodeStatus},
};

use crate::limits::LOCAL_DEPTH;

/// The indexes of a node's devices in the reader thread's ring, or why the node is not attached.
pub(super) type Attachment = Result<Vec<DeviceIndex>, String>;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Attaches the devices that can be read here to a new ring. The second result is the ring, or the
/// reason why nothing can be read here.
pub(super) fn attach(statuses: &[NodeStatus]) -> (BTreeMap<NodeId, Attachment>, Result<Ring, String>) {
    let mut nodes = BTreeMap::new();
    let config = RingConfig { depth: LOCAL_DEPTH, ..RingConfig::default() };
    let mut ring = match Ring::new(config) {
        Ok(ring) => ring,
        Err(error) => return (nodes, Err(error.to_string())),
    };
    let here = std::fs::read_to_string(BOOT_ID).map_err(|error| format!("{BOOT_ID}: {error}"));
    for status in statuses {
        let attached = match &here {
            Ok(here) if here.trim() == status.host.trim() => attach_node(status, &mut ring),
            Ok(_) => Err("it runs on another host".to_owned()),
            Err(reason) => Err(reason.clone()),
        };
        if let Err(reason) = &attached {
            tracing::debug!(node = %status.node, reason, "devices are not attached");
        }
        nodes.insert(status.node, attached);
    }
    (nodes, Ok(ring))
}

fn attach_node(status: &NodeStatus, ring: &mut Ring) -> Attachment {
    let mut indexes = Vec::new();
    for described in &status.devices {
        let device = Device::open(&described.path, Access::ReadOnly).map_err(|error| error.to_string())?;
        let index = ring.attach(Arc::new(device)).map_err(|error| error.to_string())?;
        check_label(status, described, index, ring)
            .map_err(|reason| format!("{}: {reason}", described.path))?;
        indexes.push(index);
    }
    Ok(indexes)
}

fn check_label(
    status: &NodeStatus,
    described: &DeviceStatus,
    index: DeviceIndex,
    ring: &mut Ring,
) -> Result<(), String> {
    let sector_bytes = SECTOR_BYTES as usize;
    let pool = BufferPool::new(sector_bytes, sector_bytes).map_err(|error| error.to_string())?;
    let buffer = pool.take(sector_bytes).map_err(|error| error.to_string())?;
    let read = Read {
        device: index,
        offset_bytes: 0,
        length_bytes: SECTOR_BYTES,
        into: IoMemory::Buffer(buffer),
        token: Token(0),
    };
    let memory = read_all(ring, vec![read]).map_err(|error| error.to_string())?;
    let buffer = memory.into_iter().next().and_then(|memory| memory.into_buffer().ok());
    let buffer = buffer.ok_or("its first sector was not read")?;
    let found = DeviceLabel::from_sector(&buffer).map_err(|error| error.to_string())?;
    let is_meant = found.label == described.label
        && found.node == status.node
        && found.device == described.device
        && found.cluster == status.cluster;
    if is_meant {
        return Ok(());
    }
    Err(format!(
        "its label is {:#018x} of node {}, expected {:#018x} of node {}: it is another device at the same path",
        found.label, found.node, described.label, status.node
    ))
}

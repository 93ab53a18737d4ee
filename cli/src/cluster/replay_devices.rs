//! Prepares the nodes and devices that a trace is replayed on.
//!
//! ```text
//! --folder      one node, started for this command, over a file that is created for it  (scratch)
//! otherwise     the nodes of the data folder's cluster, started for this command unless they run
//! --local       with either: the same device files, but this process reads them
//! ```
//!
//! Invariants
//! - Writes go to scratch areas only: to a file of this command, or to the part of a device that a
//!   node reserves for such writes.
//! - If the user asks for a bridge and the nodes run another one, the replay does not start.

use super::{
    ClusterFile, ScratchNodes, SharedNodes, check_page_cache, overrides::Setting, start_with_overrides,
};
use crate::{args::Global, failure::Failure};
use az::SaturatingAs;
use rackscan_device::{Access, Device};
use rackscan_fabric::{Address, ClusterKey, Wire};
use rackscan_format::{
    ids::NodeId,
    message::{BridgeKind, BridgeStatus, DeviceStatus, IoKind, NodeStatus},
};
use rackscan_lab::{
    LineOptions, Local, LocalOptions, NodeShape, Remote, Target, TargetError, UringShape, check_threads,
    limits::NODE_PATIENCE,
    replay::{Area, Connection, DeviceMap, ReplayCase, Routing, TargetDevice},
};
use std::{collections::BTreeMap, sync::Arc};

/// Where a replay runs.
#[derive(Clone, Copy)]
pub(crate) struct ReplayDevicesOptions {
    /// Where this replay of several runs.
    pub(crate) case: ReplayCase,
    /// How devices are read; `None` for any.
    pub(crate) io: Option<IoKind>,
    /// Page cache of each node in bytes; `None` for any.
    pub(crate) cache_bytes: Option<u64>,
    /// Requests of one message to a node, at most; `None` for as many as the depth suggests.
    pub(crate) batch: Option<u32>,
}

/// Devices, how to reach them, and what must live as long as they are used.
pub(crate) struct ReplayDevices {
    /// The devices.
    pub(crate) map: DeviceMap,
    /// The processes of the nodes on this host.
    pub(crate) pids: Vec<u32>,
    /// Name for people.
    pub(crate) name: String,
    /// The wire, if there are nodes.
    pub(crate) wire: Option<String>,
    /// How the nodes read, if there are any.
    pub(crate) bridge: Option<BridgeStatus>,
    /// How this process reads, if it does.
    pub(crate) reads_by: Option<(IoKind, u16)>,
    batch: Option<u32>,
    routes: BTreeMap<u16, Route>,
    _nodes: Option<SharedNodes>,
}

/// How a connection reaches the devices of one node.
enum Route {
    /// Over a wire.
    Node { address: Address, key: ClusterKey },
    /// By this process.
    Files { devices: Vec<Arc<Device>>, io: IoKind, io_threads: u16 },
}

/// Default size of a pool of reader threads.
const IO_THREADS: u16 = 16;

impl ReplayDevices {
    /// Starts the nodes that must run, and collects their devices: those of the cluster, or the
    /// file of `scratch`.
    pub(crate) fn prepare(
        global: &Global,
        options: &ReplayDevicesOptions,
        scratch: Option<&mut ScratchNodes>,
    ) -> Result<Self, Failure> {
        match scratch {
            Some(scratch) => Self::scratch(options, scratch),
            None if options.case.local => Self::files_of_cluster(global, options),
            None => Self::cluster(global, options),
        }
    }

    /// Opens the target of a connection.
    pub(crate) fn target(&self, connection: Connection) -> Result<Box<dyn Target>, TargetError> {
        let Connection { node, depth, slot_bytes, .. } = connection;
        let lost = TargetError::NoWire { wire: format!("node {node}") };
        match self.routes.get(&node).ok_or(lost)? {
            Route::Node { address, key } => {
                let options = line(NodeId(node), address, key, (depth, slot_bytes));
                Ok(Box::new(Remote::connect(&LineOptions { batch: self.batch, ..options })?))
            }
            Route::Files { devices, io, io_threads } => {
                let options = LocalOptions { depth, slot_bytes };
                Ok(match io {
                    IoKind::Uring => Box::new(Local::uring(devices.clone(), UringShape::USUAL, options)?),
                    IoKind::Pread => Box::new(Local::pread(devices.clone(), (*io_threads).into(), options)?),
                })
            }
        }
    }

    fn scratch(options: &ReplayDevicesOptions, nodes: &mut ScratchNodes) -> Result<Self, Failure> {
        let ReplayDevicesOptions { case, io, .. } = *options;
        let ReplayCase { local, wire, bridge, io_threads, connections, .. } = case;
        let (bridge, io) = (bridge.unwrap_or(BridgeKind::Reactor), io.unwrap_or(IoKind::Uring));
        let io_threads = io_threads.unwrap_or(IO_THREADS);
        let serving = match bridge {
            BridgeKind::Reactor => connections.min(2),
            BridgeKind::Static | BridgeKind::Dynamic => connections.min(64),
        };
        let serving = serving.saturating_as::<u16>();
        let (pools, has_pool) = match local {
            true => (connections, io == IoKind::Pread),
            false => (serving.into(), bridge == BridgeKind::Static || io == IoKind::Pread),
        };
        if has_pool {
            check_threads(pools, io_threads).map_err(|error| Failure::Usage(error.to_string()))?;
        }
        let node = nodes.started(&NodeShape { bridge, io, io_threads, serving, pin: false })?;
        let wanted = wire.unwrap_or(Wire::Shm).to_string();
        let address = node.addresses.iter().find(|(kind, _)| kind.to_string() == wanted);
        let Some((_, address)) = address else {
            return Err(Failure::Usage(format!(
                "a node over --folder has no wire {wanted}; expected shm or tcp"
            )));
        };
        let status = status_of(node.node, address, &node.key)?;
        let device = status.devices.first().ok_or_else(no_scratch)?;
        let area = scratch_of(device).ok_or_else(no_scratch)?;
        let target = TargetDevice {
            node: node.node.0,
            device: 0,
            reads: area,
            writes: Some(area),
            align_bytes: device.align_bytes,
        };
        let name = format!("a file of {} bytes in {}", area.length_bytes, nodes.folder().display());
        let route = if local {
            // A device has one writer: from here on it is this process.
            nodes.stop();
            let device =
                Device::open(nodes.device(), Access::ReadWrite).map_err(|error| Failure::of(&error))?;
            Route::Files { devices: vec![Arc::new(device)], io, io_threads }
        } else {
            Route::Node { address: address.clone(), key: node.key.clone() }
        };
        Ok(Self {
            map: DeviceMap::new(vec![target], Routing::AllToFirst)?,
            pids: if local { Vec::new() } else { node.pid.into_iter().collect() },
            name,
            wire: (!local).then_some(wanted),
            bridge: (!local).then_some(status.bridge),
            reads_by: local.then_some((io, io_threads)),
            batch: options.batch,
            routes: BTreeMap::from([(node.node.0, route)]),
            _nodes: None,
        })
    }

    /// The device files of the cluster's nodes on this host, opened for reading only.
    fn files_of_cluster(global: &Global, options: &ReplayDevicesOptions) -> Result<Self, Failure> {
        let file = found(global)?;
        let io = options.io.unwrap_or(IoKind::Uring);
        let io_threads = options.case.io_threads.unwrap_or(IO_THREADS);
        if io == IoKind::Pread {
            let pools = options.case.connections.saturating_mul(file.members_here().count().saturating_as());
            check_threads(pools, io_threads).map_err(|error| Failure::Usage(error.to_string()))?;
        }
        let (mut targets, mut routes) = (Vec::new(), BTreeMap::new());
        for member in file.members_here() {
            let node = member.config.node.0;
            let mut devices = Vec::with_capacity(member.config.devices.len());
            for (number, described) in member.config.devices.iter().enumerate() {
                let device =
                    Device::open(&described.path, Access::ReadOnly).map_err(|error| Failure::of(&error))?;
                targets.push(TargetDevice {
                    node,
                    device: number.saturating_as::<u16>(),
                    reads: Area { offset_bytes: 0, length_bytes: device.bytes() },
                    writes: None,
                    align_bytes: device.alignment().offset_bytes,
                });
                devices.push(Arc::new(device));
            }
            routes.insert(node, Route::Files { devices, io, io_threads });
        }
        Ok(Self {
            map: DeviceMap::new(targets, Routing::ByNumber)?,
            pids: Vec::new(),
            name: format!("the devices of {}", file.path.display()),
            wire: None,
            bridge: None,
            reads_by: Some((io, io_threads)),
            batch: options.batch,
            routes,
            _nodes: None,
        })
    }

    fn cluster(global: &Global, options: &ReplayDevicesOptions) -> Result<Self, Failure> {
        let wire = options.case.wire;
        let file = found(global)?;
        let nodes = match overrides(options) {
            keys if keys.is_empty() => SharedNodes::start(&file, 0)?,
            keys => start_with_overrides(&file, &|_| keys.clone())?,
        };
        let key = file.key()?;
        let (mut targets, mut routes, mut pids) = (Vec::new(), BTreeMap::new(), Vec::new());
        let (mut used, mut bridge) = (None, None);
        for member in &file.members {
            let node = member.config.node;
            let mut listens = member.config.listen.iter();
            let address = listens.find(|address| wire.is_none_or(|wire| address.wire() == wire));
            let Some(address) = address else {
                let wanted = wire.map_or_else(String::new, |wire| wire.to_string());
                return Err(Failure::Usage(format!(
                    "{}: node {node} has no address on wire {wanted}",
                    file.path.display()
                )));
            };
            let status = status_of(node, address, &key)?;
            check_bridge(&status, options, &nodes)?;
            targets.extend(status.devices.iter().map(|device| target_device(node, device)));
            routes.insert(node.0, Route::Node { address: address.clone(), key: key.clone() });
            if member.here {
                pids.push(status.process_id);
            }
            used = Some(address.wire().to_string());
            bridge = Some(status.bridge);
        }
        Ok(Self {
            map: DeviceMap::new(targets, Routing::ByNumber)?,
            // Empty unless all nodes run here: the processor time of some nodes would be mistaken
            // for that of all.
            pids: if pids.len() == file.members.len() { pids } else { Vec::new() },
            name: format!("the {} nodes of {}", file.members.len(), file.path.display()),
            wire: used,
            bridge,
            reads_by: None,
            batch: options.batch,
            routes,
            _nodes: Some(nodes),
        })
    }
}

fn found(global: &Global) -> Result<ClusterFile, Failure> {
    ClusterFile::find(global)?.ok_or_else(|| {
        let data = global.data.display();
        Failure::Runtime(format!(
            "{data}: there is no cluster to replay on; load tables first, or give --folder to replay on a file of its own"
        ))
    })
}

fn no_scratch() -> Failure {
    Failure::Runtime("the node has no scratch area".to_owned())
}

fn scratch_of(device: &DeviceStatus) -> Option<Area> {
    device.scratch.map(|area| Area { offset_bytes: area.offset_bytes, length_bytes: area.length_bytes })
}

fn target_device(node: NodeId, device: &DeviceStatus) -> TargetDevice {
    TargetDevice {
        node: node.0,
        device: device.device.0.into(),
        reads: Area { offset_bytes: 0, length_bytes: device.capacity_bytes },
        writes: scratch_of(device),
        align_bytes: device.align_bytes,
    }
}

fn line(node: NodeId, address: &Address, key: &ClusterKey, (depth, slot_bytes): (u32, u32)) -> LineOptions {
    LineOptions {
        node,
        address: address.clone(),
        key: key.clone(),
        patience: NODE_PATIENCE,
        depth,
        slot_bytes,
        batch: None,
        reads_cache: true,
    }
}

fn status_of(node: NodeId, address: &Address, key: &ClusterKey) -> Result<NodeStatus, Failure> {
    let line = Remote::connect(&line(node, address, key, (1, 512))).map_err(|error| Failure::of(&error))?;
    Ok(line.status().clone())
}

/// The settings of every node that the options override.
fn overrides(options: &ReplayDevicesOptions) -> Vec<Setting> {
    let ReplayDevicesOptions { case, io, cache_bytes, .. } = options;
    let ReplayCase { bridge, io_threads, connections, .. } = case;
    let word = |word: String| toml::Value::String(word);
    let mut keys = Vec::new();
    if let Some(bridge) = bridge {
        keys.push(("bridge", word(bridge.to_string())));
        if *bridge != BridgeKind::Reactor {
            keys.push(("pollers", toml::Value::Integer(i64::from((*connections).min(64)))));
        }
    }
    keys.extend(io.map(|io| ("io", word(io.to_string()))));
    keys.extend(cache_bytes.map(|bytes| ("cache", word(format!("{bytes}B")))));
    keys.extend(io_threads.map(|threads| ("io_threads", toml::Value::Integer(threads.into()))));
    keys
}

fn check_bridge(
    status: &NodeStatus,
    options: &ReplayDevicesOptions,
    nodes: &SharedNodes,
) -> Result<(), Failure> {
    let found = &status.bridge;
    let as_asked = options.case.bridge.is_none_or(|bridge| bridge == found.kind)
        && options.io.is_none_or(|io| io == found.io)
        && options.case.io_threads.is_none_or(|threads| threads == found.io_threads || found.io_threads == 0);
    if let Some(asked) = options.cache_bytes {
        check_page_cache(status, asked)?;
    }
    if as_asked {
        return Ok(());
    }
    let advice = if nodes.are_ours() {
        "this bridge cannot be combined with this --io or --io-threads"
    } else {
        "it ran before this command: end it with `rackscan cluster stop`, and the replay starts it as asked"
    };
    Err(Failure::Runtime(format!(
        "node {} reads its devices by {found}, not as asked: {advice}",
        status.node
    )))
}

//! Combines the values of an experiment's axes into cases, and orders the cases.
//!
//! A case is one combination of IO size, connections, depth, wire and node configuration. It is
//! measured in several modes: `local`, `wire`, `remote` or `fio`.
//!
//! Invariants
//! - The modes of a case are measured next to each other in time, so that a ratio of two modes
//!   compares the same state of the machine.
//! - If an axis has no effect with a bridge (reader threads, for instance), all values of the axis
//!   become one case with that bridge.
//! - Cases with the same node configuration are adjacent, so that each round starts the node only
//!   once for them.

use std::fmt;

use az::SaturatingAs;
use rackscan_device::limits::IO_ALIGN_BYTES;
use rackscan_fabric::Wire;
use rackscan_format::limits::RAW_TRANSFERS_MAX;
use rackscan_format::message::{BridgeKind, IoKind};
use serde::Serialize;

use crate::limits;

/// Which part of remote IO is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The device alone, by this process.
    Local,
    /// The wire alone: the node answers without any IO.
    Wire,
    /// Both: the node reads its device for this process.
    Remote,
    /// The device alone, by the program `fio`.
    Fio,
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Local => "local",
            Self::Wire => "wire",
            Self::Remote => "remote",
            Self::Fio => "fio",
        })
    }
}

/// How the node is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeShape {
    /// The bridge between connections and devices.
    pub bridge: BridgeKind,
    /// How reactors read devices.
    pub io: IoKind,
    /// Blocking reader threads of each serving thread; 0 if there are none.
    pub io_threads: u16,
    /// Number of threads that serve connections.
    pub serving: u16,
    /// Whether threads are pinned to cores.
    pub pin: bool,
}

/// Measurements to compare with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Bytes of each IO.
    pub size_bytes: u32,
    /// Number of connections, each with a requesting thread of its own.
    pub connections: u32,
    /// IOs in flight on each connection.
    pub depth: u32,
    /// Maximum IOs of one message to the node; `None` derives it from the depth.
    pub batch: Option<u32>,
    /// The wire.
    pub wire: Wire,
    /// Shape of the node.
    pub node: NodeShape,
    /// Modes to measure.
    pub modes: Vec<Mode>,
}

impl Case {
    /// Whether this process reads by the thread that submits a read.
    #[must_use]
    pub fn reads_itself(&self) -> bool {
        self.depth == 1 && self.local_io() == IoKind::Pread
    }

    /// Refuses what would end a process that starts all threads and allocates all memory.
    fn check(&self) -> Result<(), GridError> {
        let Self { size_bytes, connections, depth, .. } = *self;
        let NodeShape { io_threads, serving, .. } = self.node;
        let is = |mode| self.modes.contains(&mode);
        let mut pools = Vec::new();
        if is(Mode::Local) && self.local_io() == IoKind::Pread && !self.reads_itself() {
            pools.push(connections);
        }
        if is(Mode::Remote) || is(Mode::Wire) {
            pools.push(serving.into());
        }
        pools.into_iter().try_for_each(|connections| check_threads(connections, io_threads))?;
        // The mode local takes buffers of a pool, whose sizes are powers of two.
        let stride_bytes = match is(Mode::Local) {
            true => u64::from(size_bytes).next_power_of_two().max(IO_ALIGN_BYTES as u64),
            false => u64::from(size_bytes).next_multiple_of(IO_ALIGN_BYTES as u64),
        };
        let needed_bytes = u64::from(connections) * u64::from(depth) * stride_bytes;
        if needed_bytes > limits::LOAD_MEMORY_BYTES_MAX {
            return Err(GridError::TooMuchMemory { connections, depth, size_bytes, needed_bytes });
        }
        Ok(())
    }
}

/// Refuses more blocking reader threads than a process can have: so many for each connection, or
/// for each serving thread of a node.
///
/// # Errors
/// [`GridError::TooManyThreads`].
pub fn check_threads(connections: u32, io_threads: u16) -> Result<(), GridError> {
    if u64::from(connections) * u64::from(io_threads) > limits::PROCESS_THREADS_MAX {
        return Err(GridError::TooManyThreads { connections, io_threads });
    }
    Ok(())
}

/// The values to combine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axes {
    /// Bytes of each IO.
    pub sizes: Vec<u32>,
    /// Modes to measure.
    pub modes: Vec<Mode>,
    /// Numbers of connections, each with a requesting thread.
    pub connections: Vec<u32>,
    /// Numbers of blocking reader threads, where there are any.
    pub io_threads: Vec<u16>,
    /// IOs in flight on each connection.
    pub depths: Vec<u32>,
    /// Maximum IOs of one message; empty to derive it from the depth.
    pub batches: Vec<u32>,
    /// Bridges of the node.
    pub bridges: Vec<BridgeKind>,
    /// How reactors, and this process in the mode `local`, read devices.
    pub ios: Vec<IoKind>,
    /// Wires.
    pub wires: Vec<Wire>,
    /// Reactors of the node; `None` for one per connection, at most half of the cores.
    pub reactors: Option<u16>,
    /// Whether threads are pinned to cores.
    pub pin: bool,
}

/// Why a grid cannot be measured.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GridError {
    /// An axis without a value.
    #[error("there are no {axis} to measure; give at least one")]
    Empty {
        /// Which axis.
        axis: &'static str,
    },
    /// Trims beside other operations, or by fio.
    #[error(
        "trims are measured alone, because reads of what was trimmed do not reach the device, and without fio, which discards in another way"
    )]
    TrimBeside,
    /// A size that is not possible.
    #[error(
        "a read of {size_bytes} bytes is not possible; expected a multiple of {least} from {least} to {greatest} bytes",
        least = limits::IO_BYTES_LEAST, greatest = limits::IO_BYTES_LARGEST
    )]
    BadSize {
        /// The size.
        size_bytes: u32,
    },
    /// A number of connections, depth or threads outside the limits.
    #[error("{value} {axis} are not possible; expected 1 to {most}")]
    BadNumber {
        /// Which axis.
        axis: &'static str,
        /// The value.
        value: u32,
        /// The maximum.
        most: u32,
    },
    /// A case with more threads than a process can have.
    #[error(
        "{connections} connections with {io_threads} blocking reader threads each make {} threads of one process, at most {most} are started; \
         give fewer connections or fewer IO threads",
        u64::from(*connections) * u64::from(*io_threads), most = limits::PROCESS_THREADS_MAX
    )]
    TooManyThreads {
        /// Connections, or serving threads of the node.
        connections: u32,
        /// Threads of each of them.
        io_threads: u16,
    },
    /// A case whose reads in flight do not fit into memory.
    #[error(
        "{connections} connections with {depth} reads of {size_bytes} bytes in flight take {needed_bytes} bytes of memory, at most {} are taken; \
         give fewer connections, a smaller depth or smaller reads",
        limits::LOAD_MEMORY_BYTES_MAX
    )]
    TooMuchMemory {
        /// Connections.
        connections: u32,
        /// Reads in flight on each.
        depth: u32,
        /// Bytes of each.
        size_bytes: u32,
        /// Memory of all of them.
        needed_bytes: u64,
    },
    /// More cases than the limit.
    #[error("these axes make {cases} cases, at most {most} are measured; give fewer values", most = limits::CASES_MAX)]
    TooMany {
        /// Number of cases.
        cases: usize,
    },
}

impl Axes {
    /// Returns every distinct combination.
    ///
    /// # Errors
    /// [`GridError`] for values that cannot be measured.
    pub fn cases(&self) -> Result<Vec<Case>, GridError> {
        self.check()?;
        let (wires, sizes) = (distinct(&self.wires), distinct(&self.sizes));
        let (depths, batches) = (distinct(&self.depths), distinct(&self.batches()));
        let nodes: Vec<(u32, NodeShape)> = distinct(&self.connections)
            .into_iter()
            .flat_map(|connections| {
                distinct(&self.nodes(connections)).into_iter().map(move |node| (connections, node))
            })
            .collect();
        let axes = [nodes.len(), wires.len(), sizes.len(), depths.len(), batches.len()];
        let count = axes.into_iter().fold(1_usize, usize::saturating_mul);
        if count > limits::CASES_MAX {
            return Err(GridError::TooMany { cases: count });
        }
        let mut cases: Vec<Case> = Vec::with_capacity(count);
        for (connections, node) in nodes {
            for &wire in &wires {
                for &size_bytes in &sizes {
                    for &depth in &depths {
                        for &batch in &batches {
                            let modes = self.modes.clone();
                            cases.push(Case { size_bytes, connections, depth, batch, wire, node, modes });
                        }
                    }
                }
            }
        }
        cases.iter().try_for_each(Case::check)?;
        together(&mut cases);
        Ok(cases)
    }

    fn batches(&self) -> Vec<Option<u32>> {
        match self.batches.as_slice() {
            [] => vec![None],
            batches => batches.iter().copied().map(Some).collect(),
        }
    }

    fn nodes(&self, connections: u32) -> Vec<NodeShape> {
        let mut nodes = Vec::new();
        for &bridge in &self.bridges {
            let ios: &[IoKind] = if bridge == BridgeKind::Reactor { &self.ios } else { &[IoKind::Pread] };
            for &io in ios {
                let pool =
                    bridge == BridgeKind::Static || (bridge == BridgeKind::Reactor && io == IoKind::Pread);
                let all_wait = self.modes == [Mode::Local] && self.depths.iter().all(|depth| *depth == 1);
                let threads: &[u16] = match pool {
                    // Nobody uses the node's threads, and this process has none.
                    true if all_wait => &self.io_threads[..1],
                    true => &self.io_threads,
                    false => &[0],
                };
                for &io_threads in threads {
                    nodes.push(NodeShape {
                        bridge,
                        io,
                        io_threads,
                        serving: self.serving(bridge, connections),
                        pin: self.pin,
                    });
                }
            }
        }
        nodes
    }

    /// Bridges with pollers have one per connection; a few reactors serve many connections.
    fn serving(&self, bridge: BridgeKind, connections: u32) -> u16 {
        let connections = connections.saturating_as::<u16>();
        if bridge != BridgeKind::Reactor {
            return connections.min(limits::SERVING_MAX);
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let half = cores.div_ceil(2).saturating_as::<u16>();
        self.reactors.unwrap_or(connections.min(half)).min(limits::SERVING_MAX)
    }

    fn check(&self) -> Result<(), GridError> {
        let empty = [
            ("sizes", self.sizes.is_empty()),
            ("modes", self.modes.is_empty()),
            ("connections", self.connections.is_empty()),
            ("io-threads", self.io_threads.is_empty()),
            ("depths", self.depths.is_empty()),
            ("bridges", self.bridges.is_empty()),
            ("io", self.ios.is_empty()),
            ("wires", self.wires.is_empty()),
        ];
        if let Some((axis, _)) = empty.into_iter().find(|(_, empty)| *empty) {
            return Err(GridError::Empty { axis });
        }
        for &size_bytes in &self.sizes {
            let fits = (limits::IO_BYTES_LEAST..=limits::IO_BYTES_LARGEST).contains(&size_bytes);
            if !fits || !size_bytes.is_multiple_of(limits::IO_BYTES_LEAST) {
                return Err(GridError::BadSize { size_bytes });
            }
        }
        let within = |axis, value: u32, most| match (1..=most).contains(&value) {
            true => Ok(()),
            false => Err(GridError::BadNumber { axis, value, most }),
        };
        for &value in &self.connections {
            within("connections", value, limits::CONNECTIONS_MAX)?;
        }
        for &value in &self.depths {
            within("IOs in flight", value, limits::DEPTH_MAX)?;
        }
        for &value in &self.batches {
            within("IOs per message", value, RAW_TRANSFERS_MAX.saturating_as::<u32>())?;
        }
        for &value in &self.io_threads {
            within("IO threads", value.into(), limits::IO_THREADS_MAX.into())?;
        }
        self.reactors.map_or(Ok(()), |value| within("reactors", value.into(), limits::SERVING_MAX.into()))
    }
}

/// The values without repetitions.
pub(crate) fn distinct<T: PartialEq + Clone>(values: &[T]) -> Vec<T> {
    let mut distinct: Vec<T> = Vec::with_capacity(values.len());
    for value in values {
        if !distinct.contains(value) {
            distinct.push(value.clone());
        }
    }
    distinct
}

/// Groups cases of one node shape, in the order in which the shapes first appear.
pub(crate) fn together(cases: &mut [Case]) {
    let mut shapes: Vec<NodeShape> = Vec::new();
    for case in cases.iter() {
        if !shapes.contains(&case.node) {
            shapes.push(case.node);
        }
    }
    cases.sort_by_key(|case| shapes.iter().position(|shape| *shape == case.node));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Axes {
        Axes {
            sizes: vec![512, 4096],
            modes: vec![Mode::Local, Mode::Remote],
            connections: vec![1, 2],
            io_threads: vec![1, 4, 16],
            depths: vec![1, 32],
            batches: vec![],
            bridges: vec![BridgeKind::Reactor, BridgeKind::Static, BridgeKind::Dynamic],
            ios: vec![IoKind::Uring, IoKind::Pread],
            wires: vec![Wire::Shm],
            reactors: Some(1),
            pin: false,
        }
    }

    #[test]
    fn axes_that_change_nothing_do_not_multiply() {
        let cases = axes().cases().unwrap();
        // reactor/uring 1, reactor/pread 3, static 3, dynamic 1; by connections, sizes, depths.
        assert_eq!(cases.len(), (1 + 3 + 3 + 1) * 2 * 2 * 2);
        assert!(
            cases.iter().all(|case| case.node.bridge != BridgeKind::Dynamic || case.node.io_threads == 0)
        );
    }

    #[test]
    fn threads_that_read_by_themselves_have_no_axis_of_others() {
        let (modes, depths, bridges) = (vec![Mode::Local], vec![1], vec![BridgeKind::Reactor]);
        let cases = Axes { modes, depths, bridges, ..axes() }.cases().unwrap();
        assert_eq!(cases.len(), 2 * 2 * 2, "a ring and a thread, by connections and sizes");
    }

    #[test]
    fn a_node_shape_comes_once_in_each_round() {
        let cases = axes().cases().unwrap();
        let starts = cases.windows(2).filter(|pair| pair[0].node != pair[1].node).count();
        // Static and dynamic nodes have a poller for each connection, reactors are one.
        assert_eq!(starts + 1, 1 + 3 + 2 * (3 + 1));
    }

    #[test]
    fn values_that_nobody_can_measure_are_refused_with_the_limits() {
        let refused = |change: fn(&mut Axes)| {
            let mut axes = axes();
            change(&mut axes);
            axes.cases().unwrap_err().to_string()
        };
        assert!(refused(|axes| axes.sizes = vec![0]).contains("512 to 1048576"));
        assert!(refused(|axes| axes.sizes = vec![4096, 1000]).contains("1000 bytes"));
        assert!(refused(|axes| axes.sizes = vec![1 << 21]).contains("2097152"));
        assert!(refused(|axes| axes.depths = vec![0]).contains("1 to 4096"));
        assert!(refused(|axes| axes.connections = vec![5000]).contains("1 to 1024"));
        assert!(refused(|axes| axes.io_threads = vec![0]).contains("IO threads"));
        assert!(refused(|axes| axes.batches = vec![0]).contains("1 to "));
        let many = refused(|axes| (axes.connections, axes.io_threads) = (vec![160], vec![256]));
        assert!(many.contains("40960 threads"), "{many}");
        let large = refused(|axes| {
            (axes.connections, axes.depths, axes.sizes) = (vec![1024], vec![64], vec![1 << 20]);
        });
        assert!(large.contains("memory"), "{large}");
        assert!(refused(|axes| axes.bridges.clear()).contains("no bridges"));
        assert!(refused(|axes| axes.depths = (1..4000).collect()).contains("cases"));
    }
}

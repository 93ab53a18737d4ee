//! Defines how many seconds of each resource the scan of a segment takes, and the sum over the
//! segments in flight.

use serde::{Deserialize, Serialize};

/// What the scan of one segment takes under one placement, in seconds of each resource: of one
/// core, of the node's devices together, of the whole wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Seconds of the node's devices.
    pub device_s: f64,
    /// Seconds of the wire to the node.
    pub wire_s: f64,
    /// Seconds of a scan worker, including its waits for what it reads.
    pub worker_s: f64,
    /// Seconds until a scan worker has computed the scan. Longer than the CPU time where the node
    /// may not compute all the time.
    pub node_s: f64,
    /// CPU seconds of all the node's threads, messages included. They count against the node's
    /// share of its processors; time in which the node is kept from computing is not in it.
    pub node_cpu_s: f64,
    /// Seconds of a core of the engine.
    pub engine_s: f64,
    /// Seconds of waiting for messages.
    pub latency_s: f64,
    /// Seconds of a core to pass messages between threads and to submit reads to devices. Counted
    /// only where engine and node share a host; elsewhere each has its own cores.
    pub messages_s: f64,
}

impl Demand {
    /// The sum over the devices, the wire, the node and the engine.
    pub(crate) fn total_s(&self) -> f64 {
        self.device_s + self.wire_s + self.node_s + self.engine_s
    }
}

/// Segments that were placed and have not ended, and what they take: work that comes before that of
/// the next segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    /// How many.
    pub segments: u32,
    /// The sum of what they take, its latency aside.
    pub demand: Demand,
}

impl Ahead {
    /// Counts one more.
    pub fn add(&mut self, demand: &Demand) {
        self.segments += 1;
        self.demand.device_s += demand.device_s;
        self.demand.wire_s += demand.wire_s;
        self.demand.worker_s += demand.worker_s;
        self.demand.node_s += demand.node_s;
        self.demand.node_cpu_s += demand.node_cpu_s;
        self.demand.engine_s += demand.engine_s;
        self.demand.messages_s += demand.messages_s;
    }

    /// Counts one that has ended. After the last one the demand is exactly 0, without the rounding
    /// errors of the sums.
    ///
    /// # Panics
    /// If it was not added before.
    pub fn remove(&mut self, demand: &Demand) {
        self.segments = self.segments.checked_sub(1).expect("a segment that ends was counted before");
        let less = |sum: f64, part: f64| if self.segments == 0 { 0.0 } else { (sum - part).max(0.0) };
        self.demand = Demand {
            device_s: less(self.demand.device_s, demand.device_s),
            wire_s: less(self.demand.wire_s, demand.wire_s),
            worker_s: less(self.demand.worker_s, demand.worker_s),
            node_s: less(self.demand.node_s, demand.node_s),
            node_cpu_s: less(self.demand.node_cpu_s, demand.node_cpu_s),
            engine_s: less(self.demand.engine_s, demand.engine_s),
            messages_s: less(self.demand.messages_s, demand.messages_s),
            latency_s: 0.0,
        };
    }
}

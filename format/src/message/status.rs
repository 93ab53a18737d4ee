//! What does a node say of itself?

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{BounceReason, Request};
use super::{BridgeStatus, CacheStatus, FolderIdentity, HomeStatus, RelayStatus, STARTS_KEPT, ScratchArea};
use crate::{
    ids::{DeviceId, NodeId},
    limits::{CLUSTER_NODES_MAX, NODE_DEVICES_MAX, NODE_RELAYS_MAX},
};

/// A device as its node describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its position in the node's configuration.
    pub device: DeviceId,
    /// Its path on the node's host, for engines on the same host.
    pub path: String,
    /// The random label in its first sector, by which an engine makes sure that it opened the same
    /// device.
    pub label: u64,
    /// All bytes.
    pub capacity_bytes: u64,
    /// Bytes of published and staged segments, labels and the scratch area.
    pub used_bytes: u64,
    /// What offsets and lengths of raw reads and writes must be multiples of.
    pub align_bytes: u32,
    /// What places in a requester's memory must be multiples of for them.
    pub memory_align_bytes: u32,
    /// Where raw writes may go.
    pub scratch: Option<ScratchArea>,
}

/// Everything a node counts, since it started. Monotonic but for the gauges at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeCounters {
    /// Requests by kind.
    pub fetch_requests: u64,
    /// See [`Request::Process`].
    pub process_requests: u64,
    /// See [`Request::Append`].
    pub append_requests: u64,
    /// See [`Request::ReadRaw`] and [`Request::WriteRaw`].
    pub raw_requests: u64,
    /// All other kinds.
    pub other_requests: u64,
    /// Requests refused, for any reason.
    pub refused_requests: u64,
    /// Scans given back to engines, for any [`BounceReason`].
    pub bounced_requests: u64,
    /// Pages read from devices.
    pub pages_read: u64,
    /// Bytes read from devices.
    pub disk_read_bytes: u64,
    /// Bytes written to devices.
    pub disk_written_bytes: u64,
    /// Bytes written into requesters' memory.
    pub wire_written_bytes: u64,
    /// Bytes read from requesters' memory.
    pub wire_read_bytes: u64,
    /// Rows that reached a filter here.
    pub rows_scanned: u64,
    /// Rows that passed one.
    pub rows_selected: u64,
    /// Microseconds of CPU time of scans.
    pub scan_cpu_us: u64,
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections refused (wrong key, version, garbage).
    pub connections_refused: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Those of them that have boxes.
    pub connections_with_boxes: u64,
    /// Requests that arrived through the inboxes.
    pub inbox_messages: u64,
    /// Requests that arrived in boxes.
    pub posted_messages: u64,
    /// Times that a client was given another ring of an inbox, because it asked more or less often
    /// than others.
    pub inbox_moves: u64,
    /// Times that a client waited because its ring was full.
    pub inbox_stalls: u64,
    /// Bytes of the memory budget in use now.
    pub memory_used_bytes: u64,
    /// Most bytes of the memory budget ever in use.
    pub memory_peak_bytes: u64,
}

/// Who a node is and how it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub node: NodeId,
    /// Its cluster: nodes of another cluster are refused.
    pub cluster: u64,
    /// `rackscan` version of the process.
    pub version: String,
    /// The kernel's boot id of its host: engines with the same one may read the devices themselves.
    pub host: String,
    /// Its process id there.
    pub process_id: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Its devices.
    pub devices: Vec<DeviceStatus>,
    /// Its threads that serve connections.
    pub reactors: u16,
    /// How they read devices.
    pub bridge: BridgeStatus,
    /// Its scan workers.
    pub scan_workers: u16,
    /// Bytes it may use for buffers and scans.
    pub memory_budget_bytes: u64,
    /// Whether device buffers are registered with io_uring; if not, why not.
    pub registered_buffers: Result<(), String>,
    /// Its counters.
    pub counters: NodeCounters,
    /// Its page cache.
    pub cache: CacheStatus,
    /// Its home of transactions.
    pub home: HomeStatus,
    /// Its relays of stripes, at most `NODE_RELAYS_MAX`.
    pub relays: Vec<RelayStatus>,
    /// Why its home of transactions takes no requests, or no writes, if it does not.
    pub home_refuses: Option<String>,
    /// What its data folder says: the member list, and how new the folder is.
    pub identity: FolderIdentity,
}

impl NodeStatus {
    /// What a node may say at most; else what is too much.
    pub(super) fn check(&self) -> Result<(), String> {
        let FolderIdentity { members, history, seen, .. } = &self.identity;
        for (what, found, max) in [
            ("a node of {} devices", self.devices.len(), NODE_DEVICES_MAX),
            ("a node of {} relays", self.relays.len(), NODE_RELAYS_MAX),
            ("a member list of {} nodes", members.len(), CLUSTER_NODES_MAX),
            ("a node that has seen starts of {} peers", seen.len(), CLUSTER_NODES_MAX),
            ("a node with the ids of {} starts", history.recent.len(), STARTS_KEPT),
        ] {
            if found > max {
                return Err(format!("{}, expected at most {max}", what.replace("{}", &found.to_string())));
            }
        }
        Ok(())
    }
}

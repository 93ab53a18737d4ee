//! Defines the status of a node: identity, configuration, devices and counters.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::BounceReason;
use super::{
    BridgeStatus, CacheStatus, FolderIdentity, ParticipantStatus, RelayStatus, STARTS_KEPT, ScratchArea,
};
use crate::{
    ids::{DeviceId, NodeId},
    limits::{CLUSTER_NODES_MAX, NODE_DEVICES_MAX, NODE_RELAYS_MAX},
};

/// The description of a device by its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its position in the node's configuration.
    pub device: DeviceId,
    /// Its path on the node's host, for engines on the same host.
    pub path: String,
    /// The random label in its first sector, with which an engine makes sure that it opened the
    /// same device.
    pub label: u64,
    /// The size of the device in bytes.
    pub capacity_bytes: u64,
    /// Bytes of published and staged segments, labels and the scratch area.
    pub used_bytes: u64,
    /// Offsets and lengths of raw reads and writes must be multiples of this.
    pub align_bytes: u32,
    /// Offsets in the requester's memory of raw reads and writes must be multiples of this.
    pub memory_align_bytes: u32,
    /// The area that raw writes may write to.
    pub scratch: Option<ScratchArea>,
}

/// Counters of a node since it started. All are monotonic except `connections_open`,
/// `connections_with_boxes` and the gauges of memory at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeCounters {
    /// Fetch requests; the next fields count the other kinds.
    pub fetch_requests: u64,
    /// See [`Request::Process`](super::Request::Process).
    pub process_requests: u64,
    /// See [`Request::Append`](super::Request::Append).
    pub append_requests: u64,
    /// See [`Request::ReadRaw`](super::Request::ReadRaw) and
    /// [`Request::WriteRaw`](super::Request::WriteRaw).
    pub raw_requests: u64,
    /// Requests of all other kinds.
    pub other_requests: u64,
    /// Refused requests, for any reason.
    pub refused_requests: u64,
    /// Bounced scans, for any [`BounceReason`].
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
    /// Rows that a filter was evaluated on.
    pub rows_scanned: u64,
    /// Rows that passed the filter.
    pub rows_selected: u64,
    /// Microseconds of CPU time of scans.
    pub scan_cpu_us: u64,
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections refused (wrong key, version, garbage).
    pub connections_refused: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Open connections that have boxes.
    pub connections_with_boxes: u64,
    /// Requests that arrived through the inboxes.
    pub inbox_messages: u64,
    /// Requests that arrived in boxes.
    pub posted_messages: u64,
    /// Times that a client was moved to another ring of an inbox, because it sent requests more or
    /// less often than others.
    pub inbox_moves: u64,
    /// Times that a client had to wait because its ring was full.
    pub inbox_stalls: u64,
    /// Bytes of the memory budget in use now.
    pub memory_used_bytes: u64,
    /// The maximum number of bytes of the memory budget that were ever in use.
    pub memory_peak_bytes: u64,
}

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub node: NodeId,
    /// Its cluster: nodes of another cluster are refused.
    pub cluster: u64,
    /// `rackscan` version of the process.
    pub version: String,
    /// The kernel's boot id of its host: engines on a host with the same id may read the devices
    /// directly.
    pub host: String,
    /// Its process id on that host.
    pub process_id: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Its devices.
    pub devices: Vec<DeviceStatus>,
    /// The number of its threads that serve connections.
    pub reactors: u16,
    /// How requests get from connections to devices.
    pub bridge: BridgeStatus,
    /// The number of its scan workers.
    pub scan_workers: u16,
    /// Bytes it may use for buffers and scans.
    pub memory_budget_bytes: u64,
    /// Whether device buffers are registered with io_uring; if not, the reason.
    pub registered_buffers: Result<(), String>,
    /// Its counters.
    pub counters: NodeCounters,
    /// Its page cache.
    pub cache: CacheStatus,
    /// Its participant in transactions.
    pub participant: ParticipantStatus,
    /// Its relays, at most `NODE_RELAYS_MAX`.
    pub relays: Vec<RelayStatus>,
    /// Why its participant accepts no requests or no writes; `None` if it accepts both.
    pub participant_refuses: Option<String>,
    /// What its data folder records: the member list, and the history of starts.
    pub identity: FolderIdentity,
}

impl NodeStatus {
    /// Checks the lengths of the lists; the error names the list that is too long.
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

//! Turns the records of a trace into requests for the target devices.
//!
//! Invariants
//! - Every record is either replayed as one or more requests, or counted once as left out, with the
//!   reason.
//! - The requests of a node are ordered by time; records of the same time keep their order.
//! - No request is longer than [`IO_BYTES_LARGEST`], and a write is inside its device's scratch
//!   area, which is the part of a device that may be overwritten.

use std::{collections::BTreeMap, fmt};

use az::SaturatingAs;
use rackscan_trace::{Operation, Record, TraceError};
use serde::{Deserialize, Serialize};

use super::device_map::DeviceMap;
use super::error::ReplayError;
use super::limits::{RECORDS_MAX, REQUESTS_MAX};
use super::offsets::{Mapped, Mapping, Offsets};
use crate::limits::IO_BYTES_LARGEST;
use crate::target::IoOperation;

/// Why a record is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// It is outside of the target, or longer than it.
    Outside,
    /// The node or device does not exist.
    NoSuchDevice,
    /// It writes, and the target has no area for writes.
    NoScratch,
    /// It is a flush, which moves no bytes.
    Flush,
    /// It discards bytes, which no target can do.
    Discard,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "outside of the target",
            Self::NoSuchDevice => "of an unknown node or device",
            Self::NoScratch => "writes without a scratch area",
            Self::Flush => "flushes",
            Self::Discard => "discards",
        })
    }
}

/// Changes that were needed to replay the records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Records left out, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// Records that were not aligned and became longer.
    pub widened: u64,
    /// Records that were split into several requests.
    pub cut: u64,
    /// Records with a time before that of an earlier record; they were sorted.
    pub out_of_order: u64,
}

impl Changes {
    fn skip(&mut self, reason: Skip) {
        *self.skipped.entry(reason).or_default() += 1;
    }
}

/// How records become requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// How offsets are mapped.
    pub offsets: Offsets,
    /// Whether a record that cannot be replayed as it was recorded is an error.
    pub strict: bool,
    /// Maximum number of records to replay.
    pub records_max: Option<u64>,
    /// Bytes of each request in place of its record's, a multiple of 512; the request begins at the
    /// multiple of this size that the record begins in.
    pub size_bytes: Option<u32>,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Nanoseconds since the first record.
    pub at_ns: u64,
    /// Offset on the target's device.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u32,
    /// Number of the device on its node.
    pub device: u16,
    /// Read or write.
    pub operation: IoOperation,
}

// The whole trace is in memory; limits.rs assumes these sizes.
const _: () = assert!(size_of::<Request>() == 24 && size_of::<Routed>() == 24);

/// A trace, ready to be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    nodes: Vec<(u16, Vec<Request>)>,
    records: u64,
    changes: Changes,
    trace_ns: u64,
}

/// A read or write of the trace with its target device.
#[derive(Debug, Clone, Copy)]
struct Routed {
    at_ns: u64,
    offset_bytes: u64,
    length_bytes: u32,
    /// Index in [`DeviceMap::devices`].
    target: u16,
    operation: IoOperation,
}

impl Plan {
    /// Reads the whole trace and maps each record.
    ///
    /// # Errors
    /// The trace cannot be read, is too long, or nothing of it can be replayed on these devices;
    /// with [`PlanOptions::strict`], also the first record that cannot be replayed as it was
    /// recorded.
    pub fn new(
        records: impl Iterator<Item = Result<Record, TraceError>>,
        device_map: &DeviceMap,
        options: PlanOptions,
    ) -> Result<Self, ReplayError> {
        let mut changes = Changes::default();
        let (routed, count) = routed(records, device_map, options, &mut changes)?;
        let mut nodes: BTreeMap<u16, Vec<Request>> = BTreeMap::new();
        let mappings = mappings(&routed, device_map, options.offsets);
        let first_ns = routed.first().map_or(0, |record| record.at_ns);
        let trace_ns = routed.last().map_or(0, |record| record.at_ns - first_ns);
        let mut requests = 0;
        for (at, record) in routed.iter().enumerate() {
            let mapping = mappings.get(&(record.target, record.operation == IoOperation::Write));
            let length_bytes = u64::from(record.length_bytes);
            let Some(mapped) = mapping.and_then(|mapping| mapping.map(record.offset_bytes, length_bytes))
            else {
                refuse_if(options.strict, at, "left out", || outside(record, device_map))?;
                changes.skip(Skip::Outside);
                continue;
            };
            if mapped.widened {
                refuse_if(options.strict, at, "widened", || unaligned(record, device_map))?;
                changes.widened += 1;
            }
            let target = device_map.devices()[usize::from(record.target)];
            let of_node = nodes.entry(target.node).or_default();
            let before = of_node.len();
            pieces(of_node, mapped, (record, record.at_ns - first_ns, target.device));
            let count = of_node.len() - before;
            changes.cut += u64::from(count > 1);
            requests += count;
            if requests > REQUESTS_MAX {
                return Err(ReplayError::TooManyRequests);
            }
        }
        if requests == 0 {
            return Err(nothing(count, &changes));
        }
        Ok(Self { nodes: nodes.into_iter().collect(), records: count, changes, trace_ns })
    }

    /// The nodes that have requests, with their requests.
    #[must_use]
    pub fn nodes(&self) -> &[(u16, Vec<Request>)] {
        &self.nodes
    }

    /// Number of records of the trace, including those left out.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Number of requests over all nodes.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.nodes.iter().map(|(_, requests)| requests.len() as u64).sum()
    }

    /// The changes that the records needed.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Nanoseconds from the first to the last read or write of the trace.
    #[must_use]
    pub fn trace_ns(&self) -> u64 {
        self.trace_ns
    }

    /// Bytes of the longest request.
    #[must_use]
    pub fn largest_bytes(&self) -> u32 {
        let lengths =
            self.nodes.iter().flat_map(|(_, requests)| requests).map(|request| request.length_bytes);
        lengths.max().unwrap_or(0)
    }
}

/// The reads and writes that have a target device, ordered by time, and the number of all records.
fn routed(
    records: impl Iterator<Item = Result<Record, TraceError>>,
    device_map: &DeviceMap,
    options: PlanOptions,
    changes: &mut Changes,
) -> Result<(Vec<Routed>, u64), ReplayError> {
    let mut routed = Vec::new();
    let mut count: u64 = 0;
    let mut latest_ns = 0;
    let mut records = records;
    while options.records_max.is_none_or(|most| count < most) {
        let Some(record) = records.next() else { break };
        let record = record?;
        count += 1;
        if count > RECORDS_MAX {
            return Err(ReplayError::TooManyRecords);
        }
        let operation = match record.operation {
            Operation::Read => IoOperation::Read,
            Operation::Write => IoOperation::Write,
            Operation::Flush => {
                changes.skip(Skip::Flush);
                continue;
            }
            Operation::Discard => {
                changes.skip(Skip::Discard);
                continue;
            }
        };
        let at = (count - 1).saturating_as::<usize>();
        let Some(target) = device_map.find(record.node, record.device) else {
            let missing = || format!("the target has no device {} of node {}", record.device, record.node);
            refuse_if(options.strict, at, "left out", missing)?;
            changes.skip(Skip::NoSuchDevice);
            continue;
        };
        let writes = device_map.devices()[usize::from(target)].writes;
        if operation == IoOperation::Write && writes.is_none() {
            let missing = || "it writes, and the target has no scratch area".to_owned();
            refuse_if(options.strict, at, "left out", missing)?;
            changes.skip(Skip::NoScratch);
            continue;
        }
        let at_ns = record.at.as_nanos().saturating_as::<u64>();
        changes.out_of_order += u64::from(at_ns < latest_ns);
        latest_ns = latest_ns.max(at_ns);
        // A record's length has been verified; any longer than 4 GiB is outside of every target.
        let (offset_bytes, length_bytes) = match options.size_bytes {
            Some(size) => (record.offset_bytes / u64::from(size) * u64::from(size), size),
            None => (record.offset_bytes, record.length_bytes.saturating_as::<u32>()),
        };
        routed.push(Routed { at_ns, offset_bytes, length_bytes, target, operation });
    }
    if changes.out_of_order > 0 {
        routed.sort_by_key(|record| record.at_ns);
    }
    Ok((routed, count))
}

/// A mapping for the reads and one for the writes of each target device that has any.
fn mappings(routed: &[Routed], device_map: &DeviceMap, offsets: Offsets) -> BTreeMap<(u16, bool), Mapping> {
    let mut spans: BTreeMap<(u16, bool), u64> = BTreeMap::new();
    for record in routed {
        let span = spans.entry((record.target, record.operation == IoOperation::Write)).or_default();
        *span = (*span).max(record.offset_bytes.saturating_add(u64::from(record.length_bytes)));
    }
    let mapping = |((at, writes), span)| {
        let target = device_map.devices()[usize::from(at)];
        let area = if writes { target.writes? } else { target.reads };
        Some(((at, writes), Mapping::new(offsets, area, target.align_bytes, span)))
    };
    spans.into_iter().filter_map(mapping).collect()
}

/// Appends the request, split into pieces if it is too long.
fn pieces(requests: &mut Vec<Request>, mapped: Mapped, (record, at_ns, device): (&Routed, u64, u16)) {
    let mut done_bytes = 0;
    while done_bytes < mapped.length_bytes {
        let left = mapped.length_bytes - done_bytes;
        let length_bytes = left.saturating_as::<u32>().min(IO_BYTES_LARGEST);
        requests.push(Request {
            at_ns,
            offset_bytes: mapped.offset_bytes + done_bytes,
            length_bytes,
            device,
            operation: record.operation,
        });
        done_bytes += u64::from(length_bytes);
    }
}

fn refuse_if(
    strict: bool,
    at: usize,
    instead: &'static str,
    reason: impl Fn() -> String,
) -> Result<(), ReplayError> {
    if !strict {
        return Ok(());
    }
    Err(ReplayError::Inexact { record: at as u64 + 1, reason: reason(), instead })
}

fn outside(record: &Routed, device_map: &DeviceMap) -> String {
    let target = device_map.devices()[usize::from(record.target)];
    let area = match (record.operation, target.writes) {
        (IoOperation::Write, Some(writes)) => writes,
        _ => target.reads,
    };
    let Routed { operation, length_bytes, offset_bytes, .. } = record;
    format!(
        "a {operation} of {length_bytes} bytes at {offset_bytes} does not fit into the target's {} bytes",
        area.length_bytes
    )
}

fn unaligned(record: &Routed, device_map: &DeviceMap) -> String {
    let Routed { operation, length_bytes, offset_bytes, .. } = record;
    let align_bytes = device_map.devices()[usize::from(record.target)].align_bytes;
    format!(
        "a {operation} of {length_bytes} bytes at {offset_bytes}, where the target needs multiples of {align_bytes}"
    )
}

fn nothing(records: u64, changes: &Changes) -> ReplayError {
    let reasons: Vec<String> =
        changes.skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    // Every trace has flushes and discards; the advice is about the other reasons, which the user
    // can change.
    let curable = changes.skipped.iter().filter(|(reason, _)| !matches!(reason, Skip::Flush | Skip::Discard));
    let advice = match curable.max_by_key(|(_, count)| **count) {
        Some((Skip::Outside, _)) => ": use --offsets wrap or scale, or a larger target",
        Some((Skip::NoSuchDevice, _)) => ": replay it on a scratch file with --folder",
        Some((Skip::NoScratch, _)) => {
            ": replay it on a scratch file with --folder, or give the node a scratch area"
        }
        _ => "",
    };
    ReplayError::NothingToReplay { records, reasons: reasons.join(", "), advice }
}

#[cfg(test)]
mod tests;

//! Implements a target whose IOs a storage node does: sends IOs to the node in messages, and ends
//! them when the node replies.
//!
//! The node writes what it reads into registered memory of this process (on `shm` its device does
//! so directly), and reads what it writes from there; writes go into the node's scratch area, which
//! is a part of a device for such tests. The target can also measure the wire alone: then the node
//! answers each message at once with as many meaningless bytes, without any device.
//!
//! ```text
//! submit x n     -> waiting: nothing is sent
//! flush, reap    -> groups of at most `batch` IOs, a message each -> DirectLine
//! a reply        -> ends every IO of its group
//! ```
//!
//! Invariants
//! - A slot (the number and memory of one IO) is in `waiting`, in exactly one group in flight, or
//!   free.
//! - The number of a group is the id of its message. The memory of a slot begins at its number
//!   times `stride_bytes`.
//! - The IOs of one message end together. With a `batch` of 1, each IO has its own message and its
//!   own latency.

use std::sync::Arc;
use std::time::{Duration, Instant};

use az::SaturatingAs;
use rackscan_client::{DirectDone, DirectLine, DirectOptions};
use rackscan_device::{Wait as DeviceWait, limits::IO_ALIGN_BYTES};
use rackscan_fabric::{Address, ClusterKey};
use rackscan_format::ids::{DeviceId, NodeId};
use rackscan_format::limits::RAW_TRANSFERS_MAX;
use rackscan_format::message::{NodeStatus, RawRead, RawWrite};

use super::{Cached, Io, IoDone, IoOperation, Target, TargetError, Wait};
use crate::limits;

/// The node, and the shape of the target.
#[derive(Debug, Clone)]
pub struct LineOptions {
    /// Id of the node that must answer at the address.
    pub node: NodeId,
    /// Address of the node.
    pub address: Address,
    /// The cluster's key.
    pub key: ClusterKey,
    /// How long the node may be silent while it owes replies, and how long connecting may take.
    pub patience: Duration,
    /// Maximum IOs in flight.
    pub depth: u32,
    /// Largest IO, in bytes.
    pub slot_bytes: u32,
    /// Maximum IOs per message; `None` derives it from the depth.
    pub batch: Option<u32>,
    /// Read the node's page cache one-sidedly where possible, if it has one. Each IO is then a
    /// message of its own, because the node reveals the address of a part only if it is the
    /// message's only one.
    pub reads_cache: bool,
}

/// What a message requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// Bytes of the device.
    Transfers,
    /// Meaningless bytes, without any device.
    Echoes,
}

/// A target over a storage node: its devices, or only the wire.
#[derive(Debug)]
pub struct Remote {
    line: DirectLine,
    asks: Asks,
    slot_bytes: u32,
    stride_bytes: u64,
    batch: usize,
    busy: Vec<bool>,
    waiting: Vec<Io>,
    /// The slots of each message in flight, by its id.
    groups: Vec<Vec<u32>>,
    free_groups: Vec<u32>,
    reads: Vec<RawRead>,
    replies: Vec<DirectDone>,
}

impl Remote {
    /// Connects to the node, to read and write its devices.
    ///
    /// # Errors
    /// [`TargetError::BadShape`] outside the limits, [`TargetError::Lost`] if the node cannot be
    /// reached or refuses.
    pub fn connect(options: &LineOptions) -> Result<Self, TargetError> {
        Self::asking(options, Asks::Transfers)
    }

    /// Connects to the node, which answers without any device and ignores offsets.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn wire_only(options: &LineOptions) -> Result<Self, TargetError> {
        Self::asking(options, Asks::Echoes)
    }

    fn asking(options: &LineOptions, asks: Asks) -> Result<Self, TargetError> {
        let LineOptions { depth, slot_bytes, .. } = *options;
        let fits =
            (1..=limits::DEPTH_MAX).contains(&depth) && (1..=limits::IO_BYTES_LARGEST).contains(&slot_bytes);
        if !fits {
            return Err(TargetError::BadShape { depth, slot_bytes });
        }
        let stride = (slot_bytes as usize).next_multiple_of(IO_ALIGN_BYTES);
        let direct = DirectOptions {
            node: options.node,
            address: options.address.clone(),
            key: options.key.clone(),
            memory_bytes: stride * depth as usize,
            patience: options.patience,
        };
        let lost = |source| TargetError::Lost { source: Arc::new(source) };
        let mut line = DirectLine::connect(&direct, Instant::now() + options.patience).map_err(lost)?;
        let is_cached = options.reads_cache && asks == Asks::Transfers && line.open_cache().map_err(lost)?;
        fill(&line, stride * depth as usize)?;
        // Enough messages that the node always has some while others travel.
        let small = BATCHED_BYTES / slot_bytes;
        let chosen = if is_cached { 1 } else { (depth / MESSAGES_UNDER_WAY).min(small) };
        let batch = options.batch.unwrap_or(chosen);
        let batch = (batch.max(depth.div_ceil(limits::MESSAGES_MAX)) as usize).clamp(1, RAW_TRANSFERS_MAX);
        Ok(Self {
            line,
            asks,
            slot_bytes,
            stride_bytes: stride as u64,
            batch,
            busy: vec![false; depth as usize],
            waiting: Vec::with_capacity(depth as usize),
            groups: (0..depth).map(|_| Vec::with_capacity(batch)).collect(),
            free_groups: (0..depth).rev().collect(),
            reads: Vec::with_capacity(batch),
            replies: Vec::with_capacity(depth as usize),
        })
    }

    /// The node's description of itself: its devices, their alignment and scratch area.
    #[must_use]
    pub fn status(&self) -> &NodeStatus {
        self.line.status()
    }

    /// Maximum IOs of one message.
    #[must_use]
    pub fn batch(&self) -> u32 {
        u32::try_from(self.batch).expect("at most RAW_TRANSFERS_MAX")
    }

    /// A copy of the first bytes of a slot.
    #[must_use]
    pub fn bytes(&self, slot: u32, length_bytes: u32) -> Option<Vec<u8>> {
        let at = usize::try_from(u64::from(slot) * self.stride_bytes).ok()?;
        self.line.memory().to_vec(at, length_bytes as usize).ok()
    }

    /// How many of the waiting IOs, from `first` on, go into one message.
    fn together(&self, first: usize) -> usize {
        let kind = |io: &Io| (io.operation, (self.asks == Asks::Echoes).then_some(io.length_bytes));
        let wanted = kind(&self.waiting[first]);
        let most =
            if wanted.0 == IoOperation::Write && self.asks == Asks::Transfers { 1 } else { self.batch };
        self.waiting[first..].iter().take(most).take_while(|io| kind(io) == wanted).count()
    }

    fn send(
        &mut self,
        group: u32,
        range: std::ops::Range<usize>,
    ) -> Result<(), rackscan_client::DirectError> {
        let (stride, id) = (self.stride_bytes, u64::from(group));
        let ios = &self.waiting[range];
        let Some(Io { slot, operation, device, offset_bytes, length_bytes }) = ios.first().copied() else {
            return Ok(());
        };
        let place = |slot: u32| u64::from(slot) * stride;
        match (self.asks, operation) {
            (Asks::Echoes, _) => {
                // One answer of as many bytes, into memory that nobody reads.
                let bytes = length_bytes.saturating_mul(ios.len().saturating_as::<u32>());
                let end = stride * self.busy.len() as u64;
                self.line.echo(id, place(slot).min(end.saturating_sub(bytes.into())), bytes)?;
            }
            (Asks::Transfers, IoOperation::Read) => {
                self.reads.clear();
                self.reads.extend(ios.iter().map(|io| RawRead {
                    device: device_id(io.device),
                    offset_bytes: io.offset_bytes,
                    length_bytes: io.length_bytes,
                    target_offset_bytes: place(io.slot),
                }));
                self.line.read(id, &self.reads)?;
            }
            (Asks::Transfers, _) => {
                let source_offset_bytes = place(slot);
                let device = device_id(device);
                self.line
                    .write(id, &[RawWrite { device, offset_bytes, length_bytes, source_offset_bytes }])?;
            }
        }
        let slots = &mut self.groups[group as usize];
        slots.clear();
        slots.extend(ios.iter().map(|io| io.slot));
        Ok(())
    }
}

impl Target for Remote {
    fn depth(&self) -> u32 {
        self.busy.len().saturating_as::<u32>()
    }

    fn submit(&mut self, io: Io) -> Result<(), TargetError> {
        let Io { slot, length_bytes, .. } = io;
        let (depth, slot_bytes) = (self.depth(), self.slot_bytes);
        let busy = self.busy.get_mut(slot as usize).ok_or(TargetError::NoSuchSlot { slot, depth })?;
        if length_bytes == 0 || length_bytes > slot_bytes {
            return Err(TargetError::BadLength { length_bytes, slot_bytes });
        }
        if *busy {
            return Err(TargetError::SlotBusy { slot });
        }
        match io.operation {
            IoOperation::Read | IoOperation::Write => {}
            IoOperation::Trim => return Err(TargetError::Unsupported { what: "trimming" }),
            IoOperation::Fsync => return Err(TargetError::Unsupported { what: "flushing" }),
        }
        *busy = true;
        self.waiting.push(io);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        let mut taken = 0;
        while taken < self.waiting.len() && self.line.room() > 0 {
            let Some(group) = self.free_groups.pop() else { break };
            let count = self.together(taken);
            if let Err(source) = self.send(group, taken..taken + count) {
                self.free_groups.push(group);
                return Err(TargetError::Lost { source: Arc::new(source) });
            }
            taken += count;
        }
        self.waiting.drain(..taken);
        self.line.flush().map_err(lost)
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError> {
        self.flush()?;
        let wait = match wait {
            Wait::Now => DeviceWait::Now,
            Wait::ForOne => DeviceWait::ForOne,
            Wait::Until(moment) => DeviceWait::Until(moment),
        };
        self.line.reap(wait, &mut self.replies).map_err(lost)?;
        let Self { replies, groups, free_groups, busy, .. } = self;
        for DirectDone { id, outcome, is_one_sided, .. } in replies.drain(..) {
            let group = u32::try_from(id).ok().filter(|group| (*group as usize) < groups.len());
            let Some(group) = group else { continue };
            // The reply says how many parts came from the cache, but not which.
            let hits = outcome.as_ref().map_or(0, |cost| cost.pages_cached as usize);
            let hit = if is_one_sided { Cached::OneSidedly } else { Cached::ByRequest };
            for (number, slot) in groups[group as usize].drain(..).enumerate() {
                busy[slot as usize] = false;
                let outcome = match &outcome {
                    Ok(_cost) => Ok(()),
                    Err(refusal) => Err(TargetError::ByNode { refusal: refusal.clone() }),
                };
                done.push(IoDone { slot, outcome, cached: (number < hits).then_some(hit) });
            }
            free_groups.push(group);
        }
        Ok(())
    }
}

/// Messages in flight, if the target chooses how many IOs go into one.
const MESSAGES_UNDER_WAY: u32 = 8;
/// Bytes of the IOs that share a message, if the target chooses: a large IO gains more from ending
/// on its own than a message costs.
const BATCHED_BYTES: u32 = 16 << 10;

fn lost(source: rackscan_client::DirectError) -> TargetError {
    TargetError::Lost { source: Arc::new(source) }
}

/// Devices above the highest possible number do not exist; the node reports that.
fn device_id(device: u16) -> DeviceId {
    DeviceId(device.saturating_as::<u8>())
}

/// Fills the memory, so that writes are not all zeroes.
fn fill(line: &DirectLine, bytes: usize) -> Result<(), TargetError> {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let mut piece = vec![0; IO_ALIGN_BYTES];
    for at in (0..bytes).step_by(IO_ALIGN_BYTES) {
        random.fill(&mut piece);
        line.memory().copy_in(at, &piece)?;
    }
    Ok(())
}

//! Defines the errors of targets, and tells whether a target can still be used after an error.

use std::sync::Arc;

use rackscan_client::DirectError;
use rackscan_device::{IoFault, OpenError, PoolError, ReapError, RingError, SubmitError, TakeError};
use rackscan_fabric::OutOfBounds;
use rackscan_format::message::{Refusal, RefusalCode};

use crate::limits;

/// Why an IO, or a whole target, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The slot is not one of the target's.
    #[error("the target has no slot {slot}: its {depth} slots are numbered from 0")]
    NoSuchSlot {
        /// The slot asked for.
        slot: u32,
        /// Number of slots.
        depth: u32,
    },
    /// The slot has an IO in flight.
    #[error("slot {slot} of the target has an IO in flight: wait for its end first")]
    SlotBusy {
        /// The slot number.
        slot: u32,
    },
    /// The IO is larger than the slot's memory, or empty.
    #[error("an IO of {length_bytes} bytes is not possible; expected 1 to {slot_bytes} bytes")]
    BadLength {
        /// Length of the IO.
        length_bytes: u32,
        /// Bytes of a slot's memory.
        slot_bytes: u32,
    },
    /// Depth or memory of a target is outside the limits.
    #[error(
        "a target of depth {depth} with {slot_bytes} bytes for each IO is not possible; expected a depth of 1 to \
         {depth_max} and 1 to {bytes_max} bytes", depth_max = limits::DEPTH_MAX, bytes_max = limits::IO_BYTES_LARGEST
    )]
    BadShape {
        /// Depth asked for.
        depth: u32,
        /// Largest IO asked for, in bytes.
        slot_bytes: u32,
    },
    /// The device refused the IO because of its shape.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// The device failed to carry out the IO.
    #[error(transparent)]
    Fault(#[from] Box<IoFault>),
    /// A file cannot be used as a device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no memory for the IOs.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// There is no memory left for a slot.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// The kernel refused to create a ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Waiting for the device failed.
    #[error(transparent)]
    Reap(#[from] ReapError),
    /// The node refused the IO, and can still be used.
    #[error("the node refused the IO ({code:?}): {text}", code = refusal.code, text = refusal.text)]
    ByNode {
        /// The node's answer.
        refusal: Box<Refusal>,
    },
    /// The connection to the node can no longer be used.
    #[error(transparent)]
    Lost {
        /// The cause.
        source: Arc<DirectError>,
    },
    /// The node does not listen on this wire.
    #[error("the node does not listen on the wire {wire}")]
    NoWire {
        /// The wire.
        wire: String,
    },
    /// The target cannot do this.
    #[error("{what} is not possible here: only devices of this host can do it")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// A range of a device could not be trimmed.
    #[error("trimming {length_bytes} bytes at byte {offset_bytes} of {device} failed: {source}")]
    Trim {
        /// The device.
        device: String,
        /// Begin of the range.
        offset_bytes: u64,
        /// Length of the range.
        length_bytes: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// Bytes that were written are not on the device.
    #[error(
        "device {device} of the load has other bytes at byte {offset_bytes} than were written there last"
    )]
    Differs {
        /// Index of the device.
        device: u16,
        /// Offset of the first wrong byte, rounded down to eight.
        offset_bytes: u64,
    },
    /// A slot's memory is out of bounds: a bug.
    #[error(transparent)]
    Memory(#[from] OutOfBounds),
}

impl TargetError {
    /// Whether no other IO can succeed either.
    #[must_use]
    pub fn ends_the_target(&self) -> bool {
        match self {
            Self::NoSuchSlot { .. } | Self::SlotBusy { .. } | Self::BadLength { .. } | Self::Trim { .. } => {
                false
            }
            Self::Refused(reason) => matches!(reason, SubmitError::Enter { .. }),
            Self::Fault(fault) => fault.must_stop(),
            Self::BadShape { .. }
            | Self::Open(_)
            | Self::Pool(_)
            | Self::Take(_)
            | Self::Ring(_)
            | Self::Reap(_)
            | Self::Lost { .. }
            | Self::NoWire { .. }
            | Self::Unsupported { .. }
            | Self::Differs { .. }
            | Self::Memory(_) => true,
            Self::ByNode { refusal } => refusal.code == RefusalCode::Stopping,
        }
    }
}

//! How does a storage node do the IOs, over a wire?
//!
//! Raw reads into our registered memory (on `shm` by the device itself), raw writes from it into the node's scratch area.

use rackscan_format::message::NodeStatus;

use super::line::{Asks, LineOptions, Slots};
use super::{Io, IoDone, Target, TargetError, Wait};

/// A target over the devices of a storage node.
#[derive(Debug)]
pub struct Remote {
    slots: Slots,
}

impl Remote {
    /// Connects to the node.
    ///
    /// # Errors
    /// [`TargetError::BadShape`] outside the limits, [`TargetError::Lost`] if the node cannot be reached or refuses.
    pub fn connect(options: &LineOptions) -> Result<Self, TargetError> {
        Ok(Self { slots: Slots::connect(options, Asks::Transfers)? })
    }

    /// What the node said of itself: its devices, their alignment and scratch area.
    #[must_use]
    pub fn status(&self) -> &NodeStatus {
        self.slots.status()
    }

    /// A copy of the first bytes of a slot.
    #[must_use]
    pub fn bytes(&self, slot: u32, length_bytes: u32) -> Option<Vec<u8>> {
        self.slots.bytes(slot, length_bytes)
    }
}

impl Target for Remote {
    fn depth(&self) -> u32 {
        self.slots.depth()
    }

    fn submit(&mut self, io: Io) -> Result<(), TargetError> {
        self.slots.submit(io)
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        self.slots.flush()
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError> {
        self.slots.reap(wait, done)
    }
}

//! What would remote IO be if devices took no time?
//!
//! The node answers each message at once with as many bytes of no meaning. Offsets are not looked at.

use super::line::{Asks, LineOptions, Slots};
use super::{Io, IoDone, Target, TargetError, Wait};

/// A target that is only the way to a storage node and back.
#[derive(Debug)]
pub struct WireOnly {
    slots: Slots,
}

impl WireOnly {
    /// Connects to the node.
    ///
    /// # Errors
    /// [`TargetError::BadShape`] outside the limits, [`TargetError::Lost`] if the node cannot be reached or refuses.
    pub fn connect(options: &LineOptions) -> Result<Self, TargetError> {
        Ok(Self { slots: Slots::connect(options, Asks::Echoes)? })
    }
}

impl Target for WireOnly {
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

//! Checks whether a participant may prepare a part, which is what a transaction writes there.
//!
//! ```text
//! no key is under a closed prefix -> the client's clock is not ahead of the host's -> the versions of its keys allow it ([`Store::admit`])
//! ```
//!
//! Invariant: a transaction on which the participant has voted is not checked again, because a vote
//! never changes.

use super::Participant;
use crate::{
    message::{Part, Preconditions, Refusal},
    slot::SlotMemory,
    store::Store,
};

impl<M: SlotMemory> Participant<M> {
    /// The same participant, on the host of this name, which errors about clocks mention.
    #[must_use]
    pub fn on_host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.clock.host);
        self
    }

    /// Sets the wall clock of the host, in milliseconds since 1970, for the requests that follow.
    pub fn set_wall_ms(&mut self, wall_ms: u64) {
        self.clock.wall_ms = Some(wall_ms);
    }

    /// Whether a part may be prepared.
    pub(super) fn admit(&self, part: &Part, preconditions: &Preconditions) -> Result<(), Refusal> {
        if self.store.vote(part.timestamp).is_some() {
            return Ok(());
        }
        part.check()?;
        let closed = part.items.iter().map(|(key, _)| key).find(|key| self.store.is_closed(key));
        if let Some(key) = closed {
            return Err(Refusal::Closed { key: key.clone() });
        }
        self.clock.check(preconditions.wall_ms)?;
        Store::admit(&self.store, part, &preconditions.expected)
    }
}

#[cfg(test)]
mod tests;

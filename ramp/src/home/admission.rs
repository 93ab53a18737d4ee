//! May a part be prepared?
//!
//! ```text
//! closed prefix? -> the client's clock against ours -> the versions of its keys ([`Store::admit`])
//! ```
//!
//! Invariants
//! - What was voted on before is not asked again: a vote never changes.
//! - The clock of the client is compared, and not its timestamp. A client that has heard of a
//!   timestamp from a clock that is ahead writes above it, also at participants that have never
//!   seen that timestamp, and that is right.

use super::Home;
use crate::{
    limits::CLOCK_SKEW_MS_MAX,
    message::{Part, Preconditions, Refusal},
    slot::SlotMemory,
    store::Store,
};

/// What the participant was last told of the time, and of where it is.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// The wall clock, in milliseconds since 1970. Without one no client's clock is ahead of it.
    wall_ms: Option<u64>,
    host: String,
}

impl<M: SlotMemory> Home<M> {
    /// The same home, on the host of this name, which errors about clocks tell.
    #[must_use]
    pub fn on_host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.present.host);
        self
    }

    /// What the wall clock of the host says, in milliseconds since 1970: it counts for the requests
    /// that follow.
    pub fn set_wall_ms(&mut self, wall_ms: u64) {
        self.present.wall_ms = Some(wall_ms);
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
        self.check_clock(preconditions.wall_ms)?;
        Store::admit(&self.store, part, &preconditions.expected)
    }

    fn check_clock(&self, client_ms: u64) -> Result<(), Refusal> {
        let Present { wall_ms: Some(host_ms), host } = &self.present else { return Ok(()) };
        if client_ms.saturating_sub(*host_ms) <= CLOCK_SKEW_MS_MAX {
            return Ok(());
        }
        Err(Refusal::ClockAhead { client_ms, host: host.clone(), host_ms: *host_ms })
    }
}

#[cfg(test)]
mod tests;

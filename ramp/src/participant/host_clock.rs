//! Compares the wall clocks of clients with that of the participant's host, and refuses clients
//! whose clock is too far ahead.
//!
//! Invariant: the reading of the client's clock is compared, not the client's timestamp. A
//! timestamp may correctly be ahead: a client that has received a timestamp from a clock that is
//! ahead writes above it, also at participants that have never seen that timestamp.

use crate::{limits::CLOCK_SKEW_MS_MAX, message::Refusal};

/// The wall clock of the participant's host, as it was last told, and the name of that host.
#[derive(Debug, Default)]
pub(super) struct HostClock {
    /// In milliseconds since 1970. Without a reading no client's clock counts as ahead.
    pub(super) wall_ms: Option<u64>,
    pub(super) host: String,
}

impl HostClock {
    /// Refuses a client whose clock is ahead by more than [`CLOCK_SKEW_MS_MAX`].
    pub(super) fn check(&self, client_ms: u64) -> Result<(), Refusal> {
        let Self { wall_ms: Some(host_ms), host } = self else { return Ok(()) };
        if client_ms.saturating_sub(*host_ms) <= CLOCK_SKEW_MS_MAX {
            return Ok(());
        }
        Err(Refusal::ClockAhead { client_ms, host: host.clone(), host_ms: *host_ms })
    }
}

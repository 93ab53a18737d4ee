//! In which order are transactions?
//!
//! By hybrid logical clocks (Kulkarni et al. 2014): the upper 48 bits of a time are milliseconds since 1970, the lower 16 count what
//! happened within one. Behind the time stands the client that made it.
//!
//! Invariants
//! - Two stamps are never equal: a client's grow strictly, and clients have different ids.
//! - A stamp is above every stamp that its client had heard of, whatever the wall clock says.
//! - Clocks that a peer sets far ahead move nobody further than [`AHEAD_MAX_MS`]: such a stamp is refused.

use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// Bits of a time that count events within a millisecond.
const LOGICAL_BITS: u32 = 16;
/// How far ahead of the own wall clock a peer's may be: a minute.
pub const AHEAD_MAX_MS: u64 = 60_000;

/// Which client made a stamp. Whoever hands ids out never hands one out twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u32);

/// The place of a transaction among all others. [`Stamp::FIRST`] is before every transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// Hybrid time: milliseconds and a count.
    pub time: u64,
    /// Who made it.
    pub client: ClientId,
}

impl Stamp {
    /// What nobody has written has this stamp.
    pub const FIRST: Self = Self { time: 0, client: ClientId(0) };

    /// Bytes of [`Stamp::to_bytes`].
    pub const ENCODED_BYTES: usize = 12;

    /// Little-endian time and client.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        bytes[..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..].copy_from_slice(&self.client.0.to_le_bytes());
        bytes
    }

    /// Milliseconds since 1970 of its time.
    #[must_use]
    pub fn milliseconds(self) -> u64 {
        self.time >> LOGICAL_BITS
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}@{}", self.milliseconds(), self.time & ((1 << LOGICAL_BITS) - 1), self.client.0)
    }
}

/// A stamp from further ahead than clocks may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stamp {stamp} is {ahead_ms} ms ahead of this host's clock, expected at most {AHEAD_MAX_MS} ms: set the clocks of both hosts"
)]
pub struct FarAhead {
    /// The stamp.
    pub stamp: Stamp,
    /// By how much.
    pub ahead_ms: u64,
}

/// What gives a client its stamps. Threads may share it.
#[derive(Debug)]
pub struct Clock {
    client: ClientId,
    last: AtomicU64,
}

impl Clock {
    /// A clock whose stamps are above `heard`: the highest stamp that the stores know of, so that a client that begins again with a
    /// wall clock that was set back does not write behind what is there.
    #[must_use]
    pub fn after(client: ClientId, heard: Stamp) -> Self {
        Self { client, last: AtomicU64::new(heard.time) }
    }

    /// Whose clock it is.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The next stamp; `wall_ms` is the wall clock, in milliseconds since 1970.
    pub fn next(&self, wall_ms: u64) -> Stamp {
        let wall = wall_ms << LOGICAL_BITS;
        let step = |last: u64| Some(wall.max(last.saturating_add(1)));
        let last = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        let last = last.unwrap_or_else(|last| last);
        Stamp { time: wall.max(last.saturating_add(1)), client: self.client }
    }

    /// Takes note of somebody else's stamp: the next own one is above it.
    ///
    /// # Errors
    /// [`FarAhead`]; the clock stays where it was.
    pub fn hear(&self, stamp: Stamp, wall_ms: u64) -> Result<(), FarAhead> {
        let ahead_ms = stamp.milliseconds().saturating_sub(wall_ms);
        if ahead_ms > AHEAD_MAX_MS {
            return Err(FarAhead { stamp, ahead_ms });
        }
        self.last.fetch_max(stamp.time, Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeSet, sync::Arc, thread};

    proptest! {
        #[test]
        fn stamps_grow_whatever_the_wall_clock_and_peers_say(
            heard in 0_u64..1 << 60,
            steps in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 60), 1..50),
        ) {
            let clock = Clock::after(ClientId(7), Stamp { time: heard, client: ClientId(9) });
            let mut last = Stamp { time: heard, client: ClientId(9) };
            for (wall_ms, time) in steps {
                let peers = Stamp { time, client: ClientId(1) };
                let taken = clock.hear(peers, wall_ms);
                let next = clock.next(wall_ms);
                prop_assert!(next > last, "{next} after {last}");
                prop_assert!(taken.is_err() || next > peers, "{next} after {peers}");
                last = next;
            }
        }
    }

    #[test]
    fn threads_that_share_a_clock_never_get_the_same_stamp() {
        let clock = Arc::new(Clock::after(ClientId(3), Stamp::FIRST));
        let threads = (0..4).map(|_| {
            let clock = Arc::clone(&clock);
            thread::spawn(move || (0..10_000).map(|_| clock.next(1)).collect::<Vec<_>>())
        });
        let threads: Vec<_> = threads.collect();
        let stamps: Vec<Stamp> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(stamps.iter().collect::<BTreeSet<_>>().len(), 40_000);
    }

    #[test]
    fn a_clock_that_is_far_ahead_moves_nobody() {
        let clock = Clock::after(ClientId(1), Stamp::FIRST);
        let far = Stamp { time: (1_000 + AHEAD_MAX_MS + 1) << LOGICAL_BITS, client: ClientId(2) };
        assert_eq!(clock.hear(far, 1_000).unwrap_err().ahead_ms, AHEAD_MAX_MS + 1);
        assert_eq!(clock.next(1_000).milliseconds(), 1_000);
    }
}

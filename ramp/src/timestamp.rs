//! Orders transactions by timestamps from hybrid logical clocks (Kulkarni et al. 2014).
//!
//! The upper 48 bits of a time are milliseconds since 1970; the lower 16 count events within one
//! millisecond. Timestamps with equal times are ordered by the id of the client that issued them.
//!
//! Invariants
//! - Two timestamps are never equal: those of one client strictly increase, and clients have
//!   different ids.
//! - A timestamp is above every timestamp that its client had received, however far ahead of the
//!   wall clock that one is. So what a client writes is newer than what it has read.
//! - A participant refuses clients by the readings of their wall clocks
//!   ([`crate::message::Preconditions`]), not by their timestamps, which may correctly be ahead.
//! - A clock either returns a timestamp that is newer than its last one, or fails.

use crate::limits::{LOGICAL_BITS, TIME_MAX};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// The client that made a timestamp. No id may be given to two clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u32);

/// The position of a transaction in the order of all transactions. [`Timestamp::FIRST`] is before
/// every transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Hybrid time: milliseconds and a counter.
    pub time: u64,
    /// Who made it.
    pub client: ClientId,
}

impl Timestamp {
    /// The timestamp of keys that nobody has written.
    pub const FIRST: Self = Self { time: 0, client: ClientId(0) };

    /// Bytes of [`Timestamp::to_bytes`].
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

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}@{}", self.milliseconds(), self.time & ((1 << LOGICAL_BITS) - 1), self.client.0)
    }
}

/// A clock cannot make a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// The wall clock is wrong.
    #[error(
        "the clock of this host reads {found_ms} ms since 1970, the maximum is {} ms (the year 6429): set the clock",
        TIME_MAX >> LOGICAL_BITS
    )]
    Wall {
        /// What it says.
        found_ms: u64,
    },
    /// The last possible timestamp is in use.
    #[error(
        "no newer timestamp exists, because this client has read a version with the highest possible one, which no correct client uses: delete the keys that have such a version"
    )]
    Exhausted,
}

/// Makes a client's timestamps. Threads may share it.
#[derive(Debug)]
pub struct Clock {
    client: ClientId,
    last: AtomicU64,
}

impl Clock {
    /// A clock whose timestamps are above `heard`, the highest timestamp that the stores know of.
    /// So a client that restarts after its wall clock was set back does not write versions older
    /// than those that exist.
    #[must_use]
    pub fn after(client: ClientId, heard: Timestamp) -> Self {
        Self { client, last: AtomicU64::new(heard.time) }
    }

    /// Whose clock it is.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The next timestamp; `wall_ms` is the wall clock, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`ClockError`]; the clock is unchanged.
    pub fn next(&self, wall_ms: u64) -> Result<Timestamp, ClockError> {
        let wall = wall_ms.checked_mul(1 << LOGICAL_BITS).filter(|wall| *wall <= TIME_MAX);
        let wall = wall.ok_or(ClockError::Wall { found_ms: wall_ms })?;
        let after = |last: u64| last.checked_add(1).map(|next| next.max(wall));
        let last = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, after);
        let time = last.ok().and_then(after).ok_or(ClockError::Exhausted)?;
        Ok(Timestamp { time, client: self.client })
    }

    /// Records the timestamp of another client: the next one of this clock is above it.
    pub fn hear(&self, timestamp: Timestamp) {
        self.last.fetch_max(timestamp.time, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeSet, sync::Arc, thread};

    proptest! {
        #[test]
        fn timestamps_grow_whatever_the_wall_clock_and_peers_say(
            heard in 0_u64..1 << 60,
            steps in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 60), 1..50),
        ) {
            let clock = Clock::after(ClientId(7), Timestamp { time: heard, client: ClientId(9) });
            let mut last = Timestamp { time: heard, client: ClientId(9) };
            for (wall_ms, time) in steps {
                let peers = Timestamp { time, client: ClientId(1) };
                clock.hear(peers);
                let next = clock.next(wall_ms).unwrap();
                prop_assert!(next > last, "{next} after {last}");
                prop_assert!(next > peers, "{next} after {peers}");
                last = next;
            }
        }
    }

    #[test]
    fn threads_that_share_a_clock_never_get_the_same_timestamp() {
        let clock = Arc::new(Clock::after(ClientId(3), Timestamp::FIRST));
        let threads = (0..4).map(|_| {
            let clock = Arc::clone(&clock);
            thread::spawn(move || (0..10_000).map(|_| clock.next(1).unwrap()).collect::<Vec<_>>())
        });
        let threads: Vec<_> = threads.collect();
        let timestamps: Vec<Timestamp> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(timestamps.iter().collect::<BTreeSet<_>>().len(), 40_000);
    }

    #[test]
    fn a_wall_clock_beyond_the_horizon_and_the_last_timestamp_give_errors_and_no_timestamp_twice() {
        let clock = Clock::after(ClientId(1), Timestamp::FIRST);
        let last_ms = TIME_MAX >> LOGICAL_BITS;
        for found_ms in [last_ms + 1, 1 << 48, u64::MAX] {
            assert_eq!(clock.next(found_ms), Err(ClockError::Wall { found_ms }));
        }
        assert_eq!(clock.next(5).unwrap().milliseconds(), 5, "it stayed where it was");
        assert_eq!(clock.next(last_ms).unwrap().milliseconds(), last_ms);
        clock.hear(Timestamp { time: u64::MAX - 1, client: ClientId(2) });
        assert_eq!(clock.next(5).unwrap().time, u64::MAX);
        assert_eq!(clock.next(5), Err(ClockError::Exhausted));
    }
}

//! Writes a transaction, and repeats it with a newer timestamp if its timestamp was too old.
//!
//! ```text
//! timestamp -> PREPARE at all participants -> committed
//!     ^                   \-- refused: a key has a newer version -> the attempt is aborted everywhere
//!     \-------- a timestamp above that version's <-------------------------/
//! ```
//!
//! Invariants
//! - An acknowledged version is newer than every version that it supersedes: participants refuse
//!   anything else, and the next attempt has a timestamp above every timestamp that this one met,
//!   however far that is ahead of this host's clock.
//! - Attempts are bounded in number and by the session's time. An attempt whose outcome is unknown
//!   is the last one.
//! - The condition of an item is the same in all attempts.

use std::time::{Duration, Instant};

use az::SaturatingAs;
use rackscan_ramp::{
    algorithm::{Abortion, Algorithm, Begun, Interruption, Outcome},
    item::{Key, Value, Write},
    limits::{CLOCK_SKEW_MS_MAX, LOGICAL_BITS},
    message::{ParticipantId, Refusal},
    timestamp::Timestamp,
};

use super::{Session, TransactionError, Written, running::RunningTransaction, session::Participants};
use crate::{limits::WRITE_ATTEMPTS_MAX, retry::Retry};

/// Why an attempt is not known to be committed.
enum WriteFailure {
    /// A retry with a timestamp newer than this one may succeed.
    Outdated(Timestamp),
    Final(TransactionError),
}

impl Session {
    /// Writes values under keys atomically. If a key occurs twice, the last value counts.
    /// [`Value::DELETED`] deletes.
    ///
    /// # Errors
    /// [`TransactionError`]; nothing was written unless it is [`TransactionError::Unknown`].
    pub fn write(&mut self, items: Vec<(Key, Value)>) -> Result<Written, TransactionError> {
        self.write_if(items.into_iter().map(Write::from).collect())
    }

    /// Like [`Session::write`], if the keys with a condition still have the expected versions
    /// ([`Write::expected`]).
    ///
    /// # Errors
    /// Those of [`Session::write`], and [`TransactionError::Conflict`].
    pub fn write_if(&mut self, items: Vec<Write>) -> Result<Written, TransactionError> {
        let begun = Instant::now();
        self.check_sizes(&items)?;
        self.make_ready(items.iter().map(|item| &item.key), begun + self.timeout)?;
        self.write_with(begun, |_| Ok(items.clone()))
    }

    /// Like [`Session::write_if`], for keys or values that contain the transaction's own timestamp:
    /// no other transaction can write under such keys. `make` is called for each attempt, with its
    /// timestamp. All participants must be available, since the keys are not known before.
    ///
    /// # Errors
    /// Those of [`Session::write_if`], and those of `make`.
    pub fn write_with_timestamp<W: Into<Write>, E: From<TransactionError>>(
        &mut self,
        mut make: impl FnMut(Timestamp) -> Result<Vec<W>, E>,
    ) -> Result<Written, E> {
        let begun = Instant::now();
        let ids = self.ids.clone();
        self.make_participants_ready(&ids, begun + self.timeout)?;
        self.write_with(begun, |timestamp| Ok(make(timestamp)?.into_iter().map(W::into).collect()))
    }

    /// Writes at participants that are ready, repeating with newer timestamps until one is new
    /// enough.
    fn write_with<E: From<TransactionError>>(
        &mut self,
        begun: Instant,
        mut make: impl FnMut(Timestamp) -> Result<Vec<Write>, E>,
    ) -> Result<Written, E> {
        let mut retry = Retry::new(WRITE_ATTEMPTS_MAX).until(begun + self.timeout);
        loop {
            let wall_ms = self.wall.now_ms();
            let timestamp = self.clock.next(wall_ms).map_err(TransactionError::from)?;
            let items = make(timestamp)?;
            self.check_sizes(&items)?;
            match self.attempt(timestamp, wall_ms, items, begun) {
                Ok(written) => return Ok(written),
                Err(WriteFailure::Final(error)) => return Err(error.into()),
                Err(WriteFailure::Outdated(newest)) if retry.again() => {
                    self.clock.hear(ahead(newest, begun.elapsed()));
                }
                Err(WriteFailure::Outdated(newest)) => {
                    let attempts = retry.attempts();
                    return Err(TransactionError::Contended { timestamp, newest, attempts }.into());
                }
            }
        }
    }

    /// Writes once under this timestamp, at participants that are ready.
    fn attempt(
        &mut self,
        timestamp: Timestamp,
        wall_ms: u64,
        items: Vec<Write>,
        begun: Instant,
    ) -> Result<Written, WriteFailure> {
        let participants = self.participants_of(items.iter().map(|item| &item.key));
        self.begin(begun);
        let cluster = Participants { participants: &self.participants, ids: &self.ids };
        let began = self.algorithm.begin_write(Begun { timestamp, wall_ms, settled: &[] }, items, &cluster);
        let (coordinator, messages) = began.map_err(|error| WriteFailure::Final(error.into()))?;
        let (outcome, run) = self.drive(coordinator, messages, begun + self.timeout);
        match outcome {
            Outcome::Committed { timestamp } => {
                if self.algorithm != Algorithm::None {
                    self.settled(timestamp, &participants);
                }
                Ok(Written { timestamp, untold: Vec::new() })
            }
            Outcome::CommittedInPart { timestamp, missing } => {
                self.go_on_telling(timestamp, &participants);
                Ok(Written { timestamp, untold: missing })
            }
            Outcome::Unknown { timestamp, missing } => Err(WriteFailure::Final(unknown(timestamp, missing))),
            Outcome::Torn { timestamp, missing, why } => Err(why
                .newest()
                .map_or_else(|| WriteFailure::Final(unknown(timestamp, missing)), WriteFailure::Outdated)),
            Outcome::Aborted { timestamp, why } => match why.newest() {
                Some(newest) => Err(WriteFailure::Outdated(newest)),
                None => Err(WriteFailure::Final(self.refused_for(timestamp, why, run))),
            },
            Outcome::Interrupted { why } => Err(WriteFailure::Final(self.interrupted(why, run))),
            Outcome::Read { .. } | Outcome::Listed { .. } => {
                Err(WriteFailure::Final(self.interrupted(Interruption::GivenUp, run)))
            }
        }
    }

    /// The error of an aborted transaction for which a newer timestamp would not help.
    fn refused_for(&self, timestamp: Timestamp, why: Abortion, run: RunningTransaction) -> TransactionError {
        match why {
            Abortion::Refused { participant, why: Refusal::Conflict { key, expected, found, committed } } => {
                TransactionError::Conflict { participant, key, expected, found, committed }
            }
            Abortion::Refused { participant, why: Refusal::ClockAhead { client_ms, host, host_ms } } => {
                let client_host = rackscan_fabric::host_name();
                TransactionError::ClockAhead { participant, client_host, client_ms, host, host_ms }
            }
            why => self.aborted(timestamp, why, run),
        }
    }
}

fn unknown(timestamp: Timestamp, participants: Vec<ParticipantId>) -> TransactionError {
    TransactionError::Unknown { timestamp, participants }
}

/// The timestamp that the next attempt must exceed: ahead of the newest one that this attempt met
/// by the time that all attempts have taken. Otherwise a client that is far away would always lose
/// to clients that write the same key from nearby.
fn ahead(newest: Timestamp, taken: Duration) -> Timestamp {
    // Bounded, so that one slow client does not drive all timestamps far ahead of the clocks.
    let ms = taken.as_millis().saturating_as::<u64>().min(CLOCK_SKEW_MS_MAX);
    Timestamp { time: newest.time.saturating_add(ms << LOGICAL_BITS), ..newest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_ramp::timestamp::ClientId;

    #[test]
    fn the_next_attempt_is_ahead_by_what_all_have_taken_and_a_minute_at_most() {
        let met = Timestamp { time: 1000 << LOGICAL_BITS, client: ClientId(1) };
        let ms = |taken| ahead(met, taken).milliseconds();
        assert_eq!(ms(Duration::from_micros(300)), 1000);
        assert_eq!(ms(Duration::from_millis(40)), 1040);
        assert_eq!(ms(Duration::from_secs(3600)), 1000 + CLOCK_SKEW_MS_MAX);
        let last = Timestamp { time: u64::MAX - 1, client: ClientId(1) };
        assert_eq!(ahead(last, Duration::from_secs(1)).time, u64::MAX);
    }
}

//! Scans keys: reads all keys with a prefix, atomically.
//!
//! ```text
//! list the keys at all participants -> read them, atomically -> list them again: if the list is the same, done
//!           ^--------------------------- otherwise read again, with the new keys --------------/
//! ```
//!
//! Reading alone would be atomic for the listed keys, but could miss a key that a transaction
//! inserted whose other writes the read has returned. Such a transaction was prepared at all of its
//! participants before the read, so the second listing contains its keys.
//!
//! Invariants
//! - A scan returns a read-atomic state of its range. If the range changes during every attempt,
//!   the scan ends with an error, not with a wrong state.

use std::{collections::BTreeMap, time::Instant};

use rackscan_ramp::{
    algorithm::{Interruption, Outcome, begin_listing},
    item::{Key, Version},
    limits::READ_KEYS_MAX,
    message::KeyRange,
};

use super::{ReadOutcome, Session, TransactionError};
use crate::{
    limits::{SESSION_ATTEMPTS_MAX, SESSION_SCANS_MAX},
    retry::Retry,
};

/// The result of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOutcome {
    /// The keys in order, with their versions; deleted keys are left out.
    pub items: Vec<(Key, Version)>,
    /// The key behind which there may be more keys; the result may still have fewer keys than were
    /// asked for.
    pub goes_on: Option<Key>,
    /// Number of rounds of messages or one-sided reads.
    pub rounds: u32,
}

impl Session {
    /// Reads the first keys of a range at all participants, atomically and in order: at most as
    /// many as a transaction may read.
    ///
    /// # Errors
    /// [`TransactionError`]; nothing was read then.
    pub fn scan(&mut self, range: &KeyRange) -> Result<ScanOutcome, TransactionError> {
        let deadline = Instant::now() + self.timeout;
        let most = u32::try_from(READ_KEYS_MAX).expect("READ_KEYS_MAX: it fits 32 bits");
        let listing = KeyRange { most: range.most.clamp(1, most), ..range.clone() };
        let (mut keys, mut goes_on) = self.list(&listing, deadline)?;
        let mut rounds = 1;
        let mut retry = Retry::new(SESSION_SCANS_MAX);
        loop {
            if keys.is_empty() {
                return Ok(ScanOutcome { items: Vec::new(), goes_on, rounds });
            }
            let ReadOutcome { items, rounds: read_rounds, .. } = self.read(&keys)?;
            let again = self.list(&listing, deadline)?;
            rounds += read_rounds + 1;
            if again == (keys, goes_on.clone()) {
                let is_there = |(_, version): &(Key, Version)| version.value.bytes().is_some();
                let items = items.into_iter().filter(is_there).collect();
                return Ok(ScanOutcome { items, goes_on, rounds });
            }
            if !retry.again() {
                return Err(TransactionError::Changing { attempts: retry.attempts() });
            }
            (keys, goes_on) = again;
        }
    }

    fn list(
        &mut self,
        listing: &KeyRange,
        deadline: Instant,
    ) -> Result<(Vec<Key>, Option<Key>), TransactionError> {
        let ids = self.ids.clone();
        let mut retry = Retry::new(SESSION_ATTEMPTS_MAX).until(deadline);
        loop {
            self.make_participants_ready(&ids, deadline)?;
            self.begin(Instant::now());
            let leases =
                self.participants.iter().filter_map(|participant| Some((participant.id, participant.lease?)));
            let (coordinator, messages) = begin_listing(listing, &leases.collect::<BTreeMap<_, _>>());
            let (outcome, run) = self.drive(coordinator, messages, deadline);
            match outcome {
                Outcome::Listed { keys, goes_on } => return Ok((keys, goes_on)),
                Outcome::Interrupted { why: Interruption::Unleased { .. } } if retry.again() => {}
                Outcome::Interrupted { why } => return Err(self.interrupted(why, run)),
                // Listings have no other outcome.
                _ => return Err(self.interrupted(Interruption::GivenUp, run)),
            }
        }
    }
}

//! How is everything read that begins alike?
//!
//! ```text
//! list the keys at all homes -> read them, atomically -> list them again: the same? done : with the new ones, again
//! ```
//!
//! Reading alone would be atomic for the keys that were listed, and might miss one that a
//! transaction which was seen has inserted beside them. Whatever the read has seen was prepared at
//! all of its homes before, so the second listing has it.
//!
//! Invariants
//! - What a scan returns is one read-atomic picture of its range; a range that changes all the time
//!   ends with an error, not with a picture that is none.

use std::{collections::BTreeMap, time::Instant};

use rackscan_ramp::{
    algorithm::{Interruption, Outcome, begin_listing},
    item::{Key, Version},
    limits::READ_KEYS_MAX,
    message::KeyRange,
};

use super::{ReadOutcome, Session, TransactionError};
use crate::limits::{SESSION_ATTEMPTS_MAX, SESSION_SCANS_MAX};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOutcome {
    /// By key, in order; what is deleted is left out.
    pub items: Vec<(Key, Version)>,
    /// Behind which key there may be more. Fewer keys than were asked for may be there all the
    /// same.
    pub goes_on: Option<Key>,
    /// Rounds of messages or reads that it took.
    pub rounds: u32,
}

impl Session {
    /// Reads the first keys of a range, in order, of all homes, as of moments that no transaction
    /// lies between: as many as a transaction may read, at most.
    ///
    /// # Errors
    /// [`TransactionError`]; then nothing was read.
    pub fn scan(&mut self, range: &KeyRange) -> Result<ScanOutcome, TransactionError> {
        let deadline = Instant::now() + self.timeout;
        let most = u32::try_from(READ_KEYS_MAX).unwrap_or(u32::MAX);
        let listing = KeyRange { most: range.most.clamp(1, most), ..range.clone() };
        let (mut keys, mut goes_on) = self.list(&listing, deadline)?;
        let mut rounds = 1;
        for _ in 0..SESSION_SCANS_MAX {
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
            (keys, goes_on) = again;
        }
        Err(TransactionError::Changing { attempts: SESSION_SCANS_MAX })
    }

    fn list(
        &mut self,
        listing: &KeyRange,
        deadline: Instant,
    ) -> Result<(Vec<Key>, Option<Key>), TransactionError> {
        let ids = self.ids.clone();
        for attempt in 1.. {
            self.make_homes_ready(&ids, deadline)?;
            self.begin(Instant::now());
            let leases = self.homes.iter().filter_map(|home| Some((home.id, home.lease?)));
            let (coordinator, messages) = begin_listing(listing, &leases.collect::<BTreeMap<_, _>>());
            let (outcome, run) = self.drive(coordinator, messages, deadline);
            match outcome {
                Outcome::Listed { keys, goes_on } => return Ok((keys, goes_on)),
                Outcome::Interrupted { why: Interruption::Unleased { .. } }
                    if attempt < SESSION_ATTEMPTS_MAX && Instant::now() < deadline => {}
                Outcome::Interrupted { why } => return Err(self.interrupted(why, run)),
                // Listings end in no other way.
                _ => return Err(self.interrupted(Interruption::GivenUp, run)),
            }
        }
        Err(TransactionError::TimedOut { waited: self.timeout, homes: Vec::new() })
    }
}

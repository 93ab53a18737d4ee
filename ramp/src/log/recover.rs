//! Which store do records make?
//!
//! Invariants
//! - The same records make the same store as the calls that wrote them down made, without what only
//!   readers needed.
//! - What is in doubt stays in doubt: whoever recovers asks the other homes (`termination`). What
//!   has no other home is not: that it was prepared is its commit.

use super::record::Record;
use crate::{
    message::Refusal,
    slot::SlotMemory,
    store::{Commit, Snapshot, Store, StoreOptions},
    timestamp::Timestamp,
};

/// A log that no store can have written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// A version that the store does not take.
    #[error("record {sequence} of the log cannot be done again: {why}")]
    Refused {
        /// Counted from the first one that was given, from 1.
        sequence: u64,
        /// Why.
        why: Refusal,
    },
    /// What was committed is refused.
    #[error(
        "record {sequence} of the log refuses {timestamp}, which an earlier one commits: the log is not of one home"
    )]
    Contradiction {
        /// Counted from the first one that was given, from 1.
        sequence: u64,
        /// The transaction.
        timestamp: Timestamp,
    },
}

/// A store from the records of its log. Of a log that begins with a snapshot, all records from
/// there on.
///
/// # Errors
/// The first record that cannot have been written there.
pub fn recover<M: SlotMemory>(
    options: StoreOptions,
    memory: M,
    records: impl IntoIterator<Item = Record>,
) -> Result<Store<M>, RecoverError> {
    let mut store = Store::new(options, memory);
    for (sequence, record) in (1..).zip(records) {
        let refused = |why| RecoverError::Refused { sequence, why };
        match record {
            Record::Prepare(part) => {
                store.prepare(&part).map_err(refused)?;
                // Nobody else has a vote.
                if part.is_whole() {
                    let _: Commit = store.commit(part.timestamp);
                }
            }
            Record::Put(part) => store.put(&part).map_err(refused)?,
            Record::Commit(timestamp) => {
                let _: Commit = store.commit(timestamp);
            }
            Record::Refuse(timestamp) => {
                store.refuse(timestamp).ok_or(RecoverError::Contradiction { sequence, timestamp })?;
            }
            Record::Settle(timestamp) => {
                store.settle(timestamp);
            }
            Record::Floor(timestamp) => store.raise_floor(timestamp),
            // Of a snapshot nothing more is known.
            Record::End(timestamp) => {
                if !store.end(timestamp) {
                    store.remember_ended(timestamp);
                }
            }
        }
    }
    store.empty_again();
    Ok(store)
}

/// The records that a new log begins with, so that the old one can be thrown away.
#[must_use]
pub fn snapshot_records(snapshot: Snapshot) -> Vec<Record> {
    let committed = snapshot.committed.into_iter().map(Record::Put);
    let prepared = snapshot.prepared.into_iter().map(Record::Prepare);
    let refused = snapshot.refused.into_iter().map(Record::Refuse);
    let ended = snapshot.ended.into_iter().map(Record::End);
    // Last, because what is in doubt may be older than what is promised in bulk.
    committed.chain(prepared).chain(refused).chain(ended).chain([Record::Floor(snapshot.floor)]).collect()
}

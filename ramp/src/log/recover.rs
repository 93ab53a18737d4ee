//! Rebuilds the store of a participant from the records of its log.
//!
//! Invariants
//! - The rebuilt store equals the store that wrote the records, except for leases and the
//!   superseded versions that they protected.
//! - A transaction that was in doubt stays in doubt: after recovery the participant asks the other
//!   participants for their votes (`termination`). A transaction with one participant is never in
//!   doubt: it is committed because it was prepared.

use super::record::Record;
use crate::{
    message::Refusal,
    slot::SlotMemory,
    store::{Commit, Snapshot, Store, StoreOptions},
    timestamp::Timestamp,
};

/// The log contradicts itself or the limits of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// The store refuses a record.
    #[error("record {sequence} of the log cannot be replayed: {why}")]
    Refused {
        /// Number of the record among those that were given, from 1.
        sequence: u64,
        /// Why.
        why: Refusal,
    },
    /// A record refuses a transaction that was committed.
    #[error(
        "record {sequence} of the log aborts the transaction {timestamp}, which an earlier record commits: the log contains records of more than one participant; restore it from a log replica"
    )]
    Contradiction {
        /// Number of the record among those that were given, from 1.
        sequence: u64,
        /// The transaction.
        timestamp: Timestamp,
    },
}

/// Makes a store from the records of its log. If the log begins with a snapshot, these are all
/// records from the snapshot on.
///
/// # Errors
/// The first record that this log cannot contain.
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
                // No other participant has a vote.
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
            // A snapshot holds no more of an ended transaction than its timestamp.
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

/// The records that a new log begins with, so that the old one can be deleted.
#[must_use]
pub fn snapshot_records(snapshot: Snapshot) -> Vec<Record> {
    let committed = snapshot.committed.into_iter().map(Record::Put);
    let prepared = snapshot.prepared.into_iter().map(Record::Prepare);
    let refused = snapshot.refused.into_iter().map(Record::Refuse);
    let ended = snapshot.ended.into_iter().map(Record::End);
    // The floor is last, because transactions in doubt may be older than it.
    committed.chain(prepared).chain(refused).chain(ended).chain([Record::Floor(snapshot.floor)]).collect()
}

//! Adapts a session of a cluster of storage nodes to the interface of a measured store
//! ([`TransactionStore`]).
//!
//! Invariants
//! - The outcome of a write is the outcome that the session reports; this adapter never guesses it.
//! - A write counts as successful when it is committed, even if some participants do not know this
//!   yet; the session informs those participants.

use super::store::{Failure, ReadDone, TransactionStore, WriteEnd, WriteFailure};
use az::SaturatingAs;
use rackscan_client::{ClientError, Session, SessionOptions, TransactionError};
use rackscan_ramp::{
    item::{Key, Value},
    message::KeyRange,
    timestamp::Timestamp,
};

/// A session of a cluster of storage nodes.
#[derive(Debug)]
pub struct ClusterSession(Session);

impl ClusterSession {
    /// Opens a session.
    ///
    /// # Errors
    /// A text about options that cannot work.
    pub fn open(options: SessionOptions) -> Result<Self, Failure> {
        let refused =
            |error: ClientError| Failure { kind: "not opened", why: error.to_string(), session_over: true };
        Session::open(options).map(Self).map_err(refused)
    }
}

impl TransactionStore for ClusterSession {
    fn read(&mut self, keys: &[Key]) -> Result<ReadDone, Failure> {
        let done = self.0.read(keys).map_err(|error| failure(&error))?;
        let one_sided = done.one_sided.saturating_as::<u32>();
        Ok(ReadDone { items: done.items, rounds: done.rounds, one_sided })
    }

    fn write(&mut self, items: Vec<(Key, Value)>) -> Result<Timestamp, WriteFailure> {
        self.0.write(items).map(|written| written.timestamp).map_err(|error| {
            let end = match &error {
                TransactionError::Aborted { timestamp, .. }
                | TransactionError::Contended { timestamp, .. } => WriteEnd::Aborted(*timestamp),
                TransactionError::Unknown { timestamp, .. } => WriteEnd::Unknown(*timestamp),
                _ => WriteEnd::NotBegun,
            };
            WriteFailure { failure: failure(&error), end }
        })
    }

    fn scan(&mut self, prefix: &[u8], from: &Key, count: usize) -> Result<Option<ReadDone>, Failure> {
        // A range starts after a key, so its first key is read separately.
        let first = self.0.read(std::slice::from_ref(from)).map_err(|error| failure(&error))?;
        let mut items: Vec<_> =
            first.items.into_iter().filter(|(_, version)| version.value.bytes().is_some()).collect();
        let most = count.saturating_sub(items.len()).saturating_as::<u32>();
        let mut rounds = first.rounds;
        if most > 0 {
            let (prefix, after) = (prefix.to_vec(), Some(from.clone()));
            let range = KeyRange { prefix, after, most, values: true };
            let rest = self.0.scan(&range).map_err(|error| failure(&error))?;
            rounds += rest.rounds;
            items.extend(rest.items);
        }
        Ok(Some(ReadDone { items, rounds, one_sided: 0 }))
    }
}

fn failure(error: &TransactionError) -> Failure {
    let kind = match error {
        TransactionError::NodeDown { .. } => "node down",
        TransactionError::NodeFull { .. } => "node full",
        TransactionError::Aborted { .. } => "aborted",
        TransactionError::Contended { .. } => "contended",
        TransactionError::Conflict { .. } => "conflict",
        TransactionError::ClockAhead { .. } | TransactionError::Clock(_) => "wrong clock",
        TransactionError::Unknown { .. } => "unknown",
        TransactionError::Interrupted { .. } => "interrupted",
        TransactionError::TimedOut { .. } => "timed out",
        TransactionError::Changing { .. } => "range changes",
        TransactionError::Keys(_) | TransactionError::TooLarge { .. } => "too large",
        TransactionError::KeepsNoKeys { .. } | TransactionError::NoParticipant { .. } => "no participant",
    };
    // A session can continue: it reconnects to nodes by itself.
    Failure { kind, why: error.to_string(), session_over: false }
}

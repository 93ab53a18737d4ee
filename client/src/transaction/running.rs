//! Defines the state of the transaction that a session is running.

use rackscan_ramp::{
    algorithm::{Coordinator, Outcome},
    message::ParticipantId,
};

use super::TransactionError;

/// The running transaction.
#[derive(Debug)]
pub(super) struct RunningTransaction {
    pub(super) number: u64,
    pub(super) coordinator: Coordinator,
    pub(super) outcome: Option<Outcome>,
    /// Whether it is committed, and participants are being told.
    pub(super) commits: bool,
    /// Number of keys that were read one-sidedly.
    pub(super) one_sided: usize,
    /// The first participant that was unavailable, and why.
    pub(super) unavailable: Option<(ParticipantId, String)>,
    /// The error that makes the transaction impossible.
    pub(super) failure: Option<TransactionError>,
}

//! Defines the result of catching up, and the reasons why it can fail.

use std::time::Duration;

use rackscan_ramp::{feed::Behind, message::ParticipantId};

use crate::TransactionError;

/// The cost of catching up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaughtUp {
    /// Number of rounds, in each of which all feeds were read to their ends.
    pub rounds: u32,
    /// Number of records that were told.
    pub records: u64,
    /// Whether everything that was told before is void.
    pub began_anew: bool,
}

/// Why the state that was told is not read-atomic. The next call begins anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError<F> {
    /// A participant is unavailable, or refuses.
    #[error("the writes of a participant could not be read: {0}")]
    Participant(#[from] TransactionError),
    /// The participant has no feed.
    #[error(
        "{participant} has no feed, from which its writes could be read: give its node more memory for transactions"
    )]
    NoFeed {
        /// The participant.
        participant: ParticipantId,
    },
    /// A feed was overwritten before it was read, in every attempt.
    #[error(
        "the feed of {participant}, which contains its latest writes, could not be read in {attempts} attempts: {why}; give its node more memory for transactions"
    )]
    Behind {
        /// The participant.
        participant: ParticipantId,
        /// How often everything began anew.
        attempts: u32,
        /// Why the last attempt failed.
        why: Behind,
    },
    /// After the time limit, some transaction was still not read to its end, because others were
    /// committed all the time.
    #[error(
        "all feeds were read {rounds} times in {waited:?}, and there was always a transaction whose end had not been read: set a longer timeout"
    )]
    Unsettled {
        /// How often all feeds were read.
        rounds: u32,
        /// For how long.
        waited: Duration,
    },
    /// The `follow` value rejected what it was told.
    #[error("the records of participants cannot be interpreted: {0}")]
    Fault(F),
}

/// Why an attempt to catch up has ended.
#[derive(Debug)]
pub(super) enum StopReason {
    /// The participant was lost; everything is to begin anew.
    Lost(ParticipantId),
    /// The feed was overwritten; everything is to begin anew.
    Behind(ParticipantId, Behind),
    Participant(TransactionError),
    NoFeed(ParticipantId),
    Unsettled {
        rounds: u32,
        waited: Duration,
    },
}

impl StopReason {
    pub(super) fn into_error<F>(self, attempts: u32) -> FollowError<F> {
        match self {
            Self::Lost(participant) => {
                let reason = format!("it was lost in each of {attempts} attempts");
                FollowError::Participant(TransactionError::NodeDown { participant, reason })
            }
            Self::Behind(participant, why) => FollowError::Behind { participant, attempts, why },
            Self::Participant(error) => FollowError::Participant(error),
            Self::NoFeed(participant) => FollowError::NoFeed { participant },
            Self::Unsettled { rounds, waited } => FollowError::Unsettled { rounds, waited },
        }
    }
}

impl From<TransactionError> for StopReason {
    fn from(error: TransactionError) -> Self {
        Self::Participant(error)
    }
}

/// Why an attempt has ended: a reason of the follower, or a fault of the `follow` value.
pub(super) enum AttemptError<F> {
    Stop(StopReason),
    Fault(F),
}

impl<F> From<StopReason> for AttemptError<F> {
    fn from(stop: StopReason) -> Self {
        Self::Stop(stop)
    }
}

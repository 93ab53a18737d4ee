//! Defines the events that a session passes on to a follower: replies, and the ends of reads.

use rackscan_ramp::message::Reply;

use super::TransactionError;

/// An event for a follower.
#[derive(Debug)]
pub(super) enum FollowerEvent {
    Reply { at: usize, attempt: u64, reply: Reply },
    Failed { attempt: u64, error: TransactionError },
    Read { at: usize, is_done: bool },
}

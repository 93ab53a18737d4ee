//! Identifies who sent messages to the participant (a request, or the participant itself), and
//! contains these messages.

use az::SaturatingAs;
use rackscan_ramp::message::Request;

use crate::{ids::ConnectionId, limits::REACTORS_MAX};

/// The caller: a reactor and the number of one of all its requests, or an ending of the participant
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller(pub(super) u64);

const REACTOR_SHIFT: u32 = 48;
/// Marks the participant itself, which ends a transaction. There are not that many reactors.
const ENDING: u64 = 0xffff << REACTOR_SHIFT;
const _: () = assert!((REACTORS_MAX as u64) << REACTOR_SHIFT < ENDING);

impl Caller {
    /// The request with this number of a reactor.
    pub(super) fn of_request(reactor: u16, number: u64) -> Self {
        Self(u64::from(reactor) << REACTOR_SHIFT | number)
    }

    /// The ending with this number.
    pub(super) fn of_ending(number: u64) -> Self {
        Self(ENDING | number)
    }

    /// The number of the ending, if it is one.
    pub(super) fn ending(self) -> Option<u64> {
        (self.0 >= ENDING).then_some(self.0 & !ENDING)
    }

    /// The reactor that asks.
    pub(super) fn reactor(self) -> usize {
        (self.0 >> REACTOR_SHIFT).saturating_as::<usize>()
    }
}

/// Messages of one caller for the participant.
#[derive(Debug)]
pub(crate) struct ParticipantRequest {
    pub(crate) caller: Caller,
    /// The connection over which they came.
    pub(crate) connection: ConnectionId,
    /// In order; at most one of them is answered.
    pub(crate) messages: Vec<Request>,
}

/// Whether the participant answers a message.
pub(crate) fn is_answered(message: &Request) -> bool {
    !matches!(
        message,
        Request::Advance { .. } | Request::Close { .. } | Request::Settled { .. } | Request::Ended { .. }
    )
}

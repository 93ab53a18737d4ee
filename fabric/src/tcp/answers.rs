//! What does the peer's answer mean for our requests, and what is the answer to its atomic
//! operations?
//!
//! Invariants
//! - Answers come in the order of requests; an answer to another than the next, or of another kind
//!   than it asks for, is a violation.

use super::{
    frame::{Body, Refusal},
    link::{Expected, Link},
};
use crate::{
    completion::{Done, Event},
    error::{Ending, OperationError},
    operation::RemoteSpan,
    region::Access,
};

pub(super) fn violation(reason: impl ToString) -> Ending {
    Ending::Violation { reason: reason.to_string() }
}

/// Executes the peer's atomic operation.
pub(super) fn execute_atomic(link: &Link, body: Body) -> Body {
    use std::sync::atomic::Ordering::SeqCst;
    let (Body::FetchAdd { key, address, .. } | Body::CompareSwap { key, address, .. }) = body else {
        return Body::Refused(Refusal::UnknownKey);
    };
    let found = || {
        let at = link.grants.find(RemoteSpan { key, address, length: 8 }, Access::ReadWrite)?;
        let word = at.region.mapping().word_to_store(at.offset).map_err(OperationError::OutOfBounds)?;
        Ok(match body {
            Body::FetchAdd { add, .. } => word.fetch_add(add, SeqCst),
            Body::CompareSwap { expected, replacement, .. } => {
                word.compare_exchange(expected, replacement, SeqCst, SeqCst).unwrap_or_else(|found| found)
            }
            _ => 0,
        })
    };
    match found() {
        Ok(value) => Body::Found { value },
        Err(error) => Body::Refused(Refusal::of(&error)),
    }
}

/// The peer has done all writes and messages up to `through`.
pub(super) fn acknowledged(link: &Link, through: u64) -> Result<(), Ending> {
    loop {
        let mut flights = link.flights.lock();
        if flights.first_sequence() > through {
            return Ok(());
        }
        match flights.first() {
            Some(flight) => {
                let Expected::Acknowledge { bytes } = flight.expected else {
                    return Err(violation(format!("request {} was acknowledged", flights.first_sequence())));
                };
                let id = flight.id;
                flights.answered(&link.outbox);
                drop(flights);
                link.report(Event::Completed { id, outcome: Ok(Done::Moved { bytes }) });
            }
            None => return Err(violation(format!("request {through} was acknowledged before it was made"))),
        }
    }
}

/// The peer's atomic operation found `value`.
pub(super) fn found(link: &Link, sequence: u64, value: u64) -> Result<(), Ending> {
    let mut flights = link.flights.lock();
    let asked = flights.first().is_some_and(|flight| matches!(flight.expected, Expected::Found));
    let is_next = flights.first_sequence() == sequence;
    let Some(flight) = (asked && is_next).then(|| flights.answered(&link.outbox)).flatten() else {
        return Err(violation(format!(
            "a value in answer to request {sequence}, which was not next or asked for none"
        )));
    };
    drop(flights);
    link.report(Event::Completed { id: flight.id, outcome: Ok(Done::Found { value }) });
    Ok(())
}

/// The peer has refused a request.
pub(super) fn refused(link: &Link, sequence: u64, refusal: Refusal) -> Result<(), Ending> {
    let mut flights = link.flights.lock();
    let is_next = flights.first_sequence() == sequence;
    let outcome = flights.first().and_then(|flight| match (refusal, &flight.expected, flight.touches) {
        (Refusal::InboxFull, Expected::Acknowledge { bytes }, _) => {
            Some(OperationError::InboxFull { bytes: *bytes })
        }
        (Refusal::InboxFull, _, _) | (_, _, None) => None,
        (refusal, _, Some((span, needed))) => Some(refusal.to_error(span, needed)),
    });
    let (Some(error), true) = (outcome, is_next) else {
        return Err(violation(format!("request {sequence} was refused, which cannot be or was not next")));
    };
    let flight = flights.answered(&link.outbox);
    drop(flights);
    if let Some(flight) = flight {
        link.report(Event::Completed { id: flight.id, outcome: Err(error) });
    }
    Ok(())
}

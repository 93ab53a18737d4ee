//! Handles the peer's answers to our requests, and executes its atomic operations.
//!
//! Invariants
//! - Answers arrive in the order of requests. An answer that does not belong to the next request,
//!   or has a kind that the request does not expect, is a violation of the protocol.

use super::{
    frame::{Body, Refusal},
    request::Expected,
    shared::SharedState,
};
use crate::{
    access::Access,
    completion::{Done, Event},
    error::{Ending, OperationError},
    operation::RemoteSpan,
};

/// Executes the peer's atomic operation.
pub(super) fn execute_atomic(shared: &SharedState, body: Body) -> Body {
    use std::sync::atomic::Ordering::SeqCst;
    let (Body::FetchAdd { key, address, .. } | Body::CompareSwap { key, address, .. }) = body else {
        return Body::Refused(Refusal::UnknownKey);
    };
    let found = || {
        let at = shared.grants.find(RemoteSpan { key, address, length: 8 }, Access::ReadWrite)?;
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

/// Completes all writes and messages up to `through`, which the peer has acknowledged.
pub(super) fn acknowledged(shared: &SharedState, through: u64) -> Result<(), Ending> {
    loop {
        let mut flights = shared.flights.lock();
        if flights.first_sequence() > through {
            return Ok(());
        }
        match flights.first() {
            Some(flight) => {
                let Expected::Acknowledge { bytes } = flight.expected else {
                    return Err(Ending::violation(format!(
                        "it acknowledged request {}, which expects another answer",
                        flights.first_sequence()
                    )));
                };
                let id = flight.id;
                flights.answered(&shared.outbox);
                drop(flights);
                shared.report(Event::Completed { id, outcome: Ok(Done::Moved { bytes }) });
            }
            None => {
                return Err(Ending::violation(format!(
                    "it acknowledged request {through}, which was not sent yet"
                )));
            }
        }
    }
}

/// Completes an atomic operation of ours, for which the peer found `value`.
pub(super) fn found(shared: &SharedState, sequence: u64, value: u64) -> Result<(), Ending> {
    let mut flights = shared.flights.lock();
    let asked = flights.first().is_some_and(|flight| matches!(flight.expected, Expected::Found));
    let is_next = flights.first_sequence() == sequence;
    let Some(flight) = (asked && is_next).then(|| flights.answered(&shared.outbox)).flatten() else {
        return Err(Ending::violation(format!(
            "it answered request {sequence} with a value, but that request was not the next one, or expects no value"
        )));
    };
    drop(flights);
    shared.report(Event::Completed { id: flight.id, outcome: Ok(Done::Found { value }) });
    Ok(())
}

/// Fails a request that the peer has refused.
pub(super) fn refused(shared: &SharedState, sequence: u64, refusal: Refusal) -> Result<(), Ending> {
    let mut flights = shared.flights.lock();
    let is_next = flights.first_sequence() == sequence;
    let outcome = flights.first().and_then(|flight| match (refusal, &flight.expected, flight.touches) {
        (Refusal::InboxFull, Expected::Acknowledge { bytes }, _) => {
            Some(OperationError::InboxFull { bytes: *bytes })
        }
        (Refusal::InboxFull, _, _) | (_, _, None) => None,
        (refusal, _, Some((span, needed))) => Some(refusal.to_error(span, needed)),
    });
    let (Some(error), true) = (outcome, is_next) else {
        return Err(Ending::violation(format!(
            "it refused request {sequence}, but that request was not the next one, or cannot be refused for this reason"
        )));
    };
    let flight = flights.answered(&shared.outbox);
    drop(flights);
    if let Some(flight) = flight {
        shared.report(Event::Completed { id: flight.id, outcome: Err(error) });
    }
    Ok(())
}

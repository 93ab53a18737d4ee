//! Pulls bytes: reads the bytes that a request names from the requester's memory.
//!
//! If that memory is mapped here, the bytes are copied at once. Otherwise they are read one-sidedly
//! into staging memory and copied from there.
//!
//! Invariant: the staging memory belongs to the transfer while the transfer is in flight, and is
//! returned when the transfer has ended, with or without success.

use az::SaturatingAs;
use rackscan_fabric::{Access, OperationError};
use rackscan_format::message::{BounceReason, Refusal, RefusalCode, Target};

use crate::{
    bridge::Core,
    metrics::add,
    staging::Slot,
    task::{Place, bad_memory},
};

/// The result of beginning a pull.
pub(super) enum Pulled {
    /// The bytes are here.
    Here(Vec<u8>),
    /// The bytes are in flight: [`end`] takes them when the transfer has ended.
    UnderWay(Slot),
    /// There is no memory for the bytes now; nothing was begun.
    NoMemory,
}

/// Bounces a scan for whose bytes there is no memory.
pub(super) fn bounced(source: &Target, what: &'static str) -> Refusal {
    let length = source.length_bytes;
    let text = format!("no {length} bytes of staging memory are free for {what}; fetch the segment");
    Refusal::new(RefusalCode::Bounced(BounceReason::Memory), text)
}

/// Begins to pull all bytes of the source, whose length was checked.
pub(super) fn begin(
    core: &mut Core,
    place: Place,
    source: &Target,
    what: &'static str,
) -> Result<Pulled, Refusal> {
    let length = source.length_bytes.saturating_as::<usize>();
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    if link.maps_memory() {
        let mapped = link.map(source, Access::Read).ok_or_else(|| {
            bad_memory(format!("the {what} at {source:?} are not registered on this connection"))
        })?;
        let mut bytes = vec![0; length];
        mapped.copy_out(0, &mut bytes).map_err(|error| bad_memory(error.to_string()))?;
        add(&core.node.metrics.wire_read_bytes, source.length_bytes);
        return Ok(Pulled::Here(bytes));
    }
    let Some(slot) = core.take_slot(place, length) else { return Ok(Pulled::NoMemory) };
    let into = core.staging.slice(&slot, length).map_err(|error| bad_memory(error.to_string()));
    match into.and_then(|into| core.fetch(place, 0, source, 0, into)) {
        Ok(()) => Ok(Pulled::UnderWay(slot)),
        Err(refusal) => {
            core.give_back(place, &slot);
            Err(refusal)
        }
    }
}

/// The bytes of a transfer that has ended, if it succeeded.
pub(super) fn end(
    core: &mut Core,
    place: Place,
    slot: &Slot,
    (source, what): (&Target, &'static str),
    outcome: Result<(), OperationError>,
) -> Result<Vec<u8>, Refusal> {
    let mut bytes = vec![0; source.length_bytes.saturating_as::<usize>()];
    let copied = core.staging.copy_out(slot, &mut bytes);
    core.give_back(place, slot);
    outcome.map_err(|error| bad_memory(format!("reading {what}: {error}")))?;
    copied.map_err(|error| bad_memory(error.to_string()))?;
    Ok(bytes)
}

//! How do places of a stripe set get their bytes again?
//!
//! As pages of an append do, each to the place where it lies, and to the devices before the answer.
//! A crash in between leaves each place corrupt, half written, or whole; it is never another one.
//!
//! Invariant: only what was there is written. Others of the same request may have been.

use std::sync::Arc;

use rackscan_format::{
    ids::DeviceId,
    message::{Refusal, Repair},
};

use super::{Append, Page, What, begin};
use crate::{
    bridge::{Core, Submitted},
    store::{HeldPlace, HeldSet},
    task::{Place, Work, malformed},
};

/// What is repaired.
pub(super) struct Repairing {
    set: Arc<HeldSet>,
    places: Vec<(u64, HeldPlace)>,
    /// Devices that are yet to be flushed.
    devices: Vec<DeviceId>,
}

impl Repairing {
    /// Whether these are the bytes of the place.
    pub(super) fn check(&self, index: usize, bytes: &[u8]) -> Result<(), Refusal> {
        let (number, place) = &self.places[index];
        let set = self.set.id();
        place.check(bytes).map_err(|reason| {
            malformed(format!("place {number} of set {set} is not repaired by that: {reason}"))
        })
    }
}

/// Begins to repair.
pub(crate) fn repair(core: &mut Core, place: Place, request: &Repair) -> Result<Box<dyn Work>, Refusal> {
    let set = core.node.store.held_set(request.set)?;
    let (mut places, mut pages, mut source_offset) = (Vec::new(), Vec::new(), 0);
    for number in &request.places {
        let held = set.place(*number).ok_or_else(|| {
            malformed(format!("place {number} of set {}; there are {}", request.set, set.places()))
        })?;
        let (identity, extent) = (held.identity(), held.extent);
        pages.push(Page { identity, extent, first_row: 0, rows: 0, source_offset });
        source_offset += u64::from(held.extent.length_bytes);
        places.push((*number, held));
    }
    if source_offset != request.source.length_bytes {
        return Err(malformed(format!(
            "{} places of set {} of {source_offset} bytes in a source of {}, expected exactly their bytes",
            places.len(),
            request.set,
            request.source.length_bytes
        )));
    }
    let mut devices: Vec<DeviceId> = places.iter().map(|(_, place)| place.extent.device).collect();
    devices.sort_unstable();
    devices.dedup();
    let what = What::Places(Repairing { set, places, devices });
    let mut append = begin(core, place, request.set.load, 0, request.source, what)?;
    append.plan_these(pages);
    Ok(Box::new(append))
}

impl Append {
    /// Makes durable what was written, if that is not left to somebody else. True when nothing is
    /// left to be flushed.
    pub(super) fn flush(&mut self, core: &mut Core, place: Place) -> bool {
        let What::Places(repairing) = &mut self.what else { return true };
        while let Some(device) = repairing.devices.last().copied() {
            if !core.has_room() {
                return false;
            }
            match core.flush(place, u32::MAX, device) {
                Submitted::Underway => {
                    repairing.devices.pop();
                    self.under_way += 1;
                }
                Submitted::NoRoom => return false,
                Submitted::Refused(refusal) => {
                    self.failed.get_or_insert(refusal);
                    return self.under_way == 0;
                }
            }
        }
        self.under_way == 0
    }
}

//! Repairs places of a stripe set.
//!
//! It works like an append of pages, but each place is written where it already is, and the devices
//! are flushed before the answer. A crash in between leaves each place corrupt, half written or
//! whole; a place never gets the bytes of another.
//!
//! Invariant: a place is written only with its original bytes. If a request fails, some of its
//! places may have been written.

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

/// The places of a repair.
pub(super) struct Repairing {
    set: Arc<HeldSet>,
    places: Vec<(u64, HeldPlace)>,
    /// Devices that must still be flushed.
    devices: Vec<DeviceId>,
}

impl Repairing {
    /// Checks that these are the bytes of the place.
    pub(super) fn check(&self, index: usize, bytes: &[u8]) -> Result<(), Refusal> {
        let (number, place) = &self.places[index];
        let set = self.set.id();
        place.check(bytes).map_err(|reason| {
            malformed(format!("the bytes for place {number} of stripe set {set} are not its own: {reason}"))
        })
    }
}

/// Begins to repair.
pub(crate) fn repair(core: &mut Core, place: Place, request: &Repair) -> Result<Box<dyn Work>, Refusal> {
    let set = core.node.store.held_set(request.set)?;
    let (mut places, mut pages, mut source_offset) = (Vec::new(), Vec::new(), 0);
    for number in &request.places {
        let held = set.place(*number).ok_or_else(|| {
            malformed(format!(
                "place {number} of stripe set {}, which has {} places",
                request.set,
                set.places()
            ))
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
    /// Flushes the devices of a repair. Returns true when no flush is left or in flight; other
    /// appends are flushed elsewhere.
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

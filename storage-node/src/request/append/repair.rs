//! Repairs places of a stripe set: writes lost or corrupt pages and parity cells again, at the
//! extents where they were.
//!
//! A repair runs like an append of pages, but it allocates nothing, and flushes the devices before
//! the answer. After a crash in between, each place is corrupt, half written or repaired; no place
//! contains the bytes of another.
//!
//! Invariant: a place is written only with its original bytes. If a request fails, some of its
//! places may have been written.

use std::sync::Arc;

use rackscan_format::{
    ids::DeviceId,
    message::{Refusal, Repair},
};

use super::directory::Page;
use crate::{
    refusals::malformed,
    store::{HeldPlace, HeldSet, Store},
};

/// The places of a repair.
pub(super) struct Repairing {
    set: Arc<HeldSet>,
    places: Vec<(u64, HeldPlace)>,
    /// Devices that are yet to be flushed.
    pub(super) devices: Vec<DeviceId>,
}

impl Repairing {
    /// The places that a request names, and what is to be written to each.
    pub(super) fn of(store: &Store, request: &Repair) -> Result<(Self, Vec<Page>), Refusal> {
        let set = store.held_set(request.set)?;
        let (mut places, mut pages, mut source_offset) = (Vec::new(), Vec::new(), 0);
        for number in &request.places {
            let held = set.place(*number).ok_or_else(|| {
                malformed(format!(
                    "place {number} of stripe set {} does not exist: the set has {} places here",
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
                "{} places of stripe set {} have {source_offset} bytes, the source has {}; expected exactly the bytes of the places",
                places.len(),
                request.set,
                request.source.length_bytes
            )));
        }
        let mut devices: Vec<DeviceId> = places.iter().map(|(_, place)| place.extent.device).collect();
        devices.sort_unstable();
        devices.dedup();
        Ok((Self { set, places, devices }, pages))
    }

    /// Whether these are the bytes of the place.
    pub(super) fn check(&self, index: usize, bytes: &[u8]) -> Result<(), Refusal> {
        let (number, place) = &self.places[index];
        let set = self.set.id();
        place.check(bytes).map_err(|reason| {
            malformed(format!("the bytes for place {number} of stripe set {set} are not its own: {reason}"))
        })
    }
}

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

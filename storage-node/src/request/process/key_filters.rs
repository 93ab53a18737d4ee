//! How do a program's key filters get here?
//!
//! The program names them by digest; their bytes lie in the requester's memory. They are pulled one after the other, once for each
//! program (`scan_pool/programs`).
//!
//! Invariants
//! - Only bytes that have the digest of their name become a filter.
//! - While a transfer is under way its staging memory is ours; it goes back when the transfer has ended, however it ended.

use std::sync::Arc;

use rackscan_fabric::{Access, OperationError};
use rackscan_format::{
    key_filter::{KeyFilter, KeyFilterName},
    message::{BounceReason, Refusal, RefusalCode, Target},
    program::VerifiedProgram,
};

use crate::{
    bridge::Core,
    metrics::add,
    staging::Slot,
    task::{Place, bad_memory, malformed},
};

/// A program and the filters that have come.
pub(super) struct Pulling {
    program: VerifiedProgram,
    sources: Vec<Target>,
    pulled: Vec<Arc<KeyFilter>>,
    slot: Option<Slot>,
}

impl Pulling {
    /// Nothing has come yet.
    pub(super) fn new(program: VerifiedProgram, sources: &[Target]) -> Result<Self, Refusal> {
        let names = &program.program().key_filters;
        let fits =
            |(name, source): (&KeyFilterName, &Target)| u64::from(name.length_bytes) <= source.length_bytes;
        if names.len() != sources.len() || !names.iter().zip(sources).all(fits) {
            let text = format!("a program of key filters {names:?} with their bytes at {sources:?}");
            return Err(malformed(text));
        }
        Ok(Self { program, sources: sources.to_vec(), pulled: Vec::new(), slot: None })
    }

    fn next(&self) -> Option<(KeyFilterName, Target)> {
        let index = self.pulled.len();
        let name = *self.program.program().key_filters.get(index)?;
        let source = Target { length_bytes: name.length_bytes.into(), ..*self.sources.get(index)? };
        Some((name, source))
    }

    /// Begins with the next filter; true when all are here. A node without memory for it gives the scan back.
    pub(super) fn advance(&mut self, core: &mut Core, place: Place) -> Result<bool, Refusal> {
        while self.slot.is_none() {
            let Some((name, source)) = self.next() else { return Ok(true) };
            let length = name.length_bytes as usize;
            let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
            if link.maps_memory() {
                let mapped = link.map(&source, Access::Read).ok_or_else(|| {
                    bad_memory(format!("the key filter at {source:?} is not registered on this connection"))
                })?;
                let mut bytes = vec![0; length];
                mapped.copy_out(0, &mut bytes).map_err(|error| bad_memory(error.to_string()))?;
                add(&core.node.metrics.wire_read_bytes, length as u64);
                self.open(&bytes, &name)?;
                continue;
            }
            let Some(slot) = core.take_slot(place, length) else {
                let text = format!(
                    "no {length} bytes of staging memory are free for a key filter; fetch the segment"
                );
                return Err(Refusal::new(RefusalCode::Bounced(BounceReason::Memory), text));
            };
            let into = core.staging.slice(&slot, length).map_err(|error| bad_memory(error.to_string()));
            match into.and_then(|into| core.fetch(place, 0, &source, 0, into)) {
                Ok(()) => self.slot = Some(slot),
                Err(refusal) => {
                    core.give_back(place, &slot);
                    return Err(refusal);
                }
            }
        }
        Ok(false)
    }

    /// The transfer under way has ended.
    pub(super) fn arrived(
        &mut self,
        core: &mut Core,
        place: Place,
        outcome: Result<(), OperationError>,
    ) -> Result<(), Refusal> {
        let (Some(slot), Some((name, _))) = (self.slot.take(), self.next()) else { return Ok(()) };
        let mut bytes = vec![0; name.length_bytes as usize];
        let copied = core.staging.copy_out(&slot, &mut bytes);
        core.give_back(place, &slot);
        outcome.map_err(|error| bad_memory(format!("reading a key filter: {error}")))?;
        copied.map_err(|error| bad_memory(error.to_string()))?;
        self.open(&bytes, &name)
    }

    fn open(&mut self, bytes: &[u8], name: &KeyFilterName) -> Result<(), Refusal> {
        let filter = KeyFilter::from_bytes(bytes, name).map_err(|error| malformed(error.to_string()))?;
        self.pulled.push(Arc::new(filter));
        Ok(())
    }

    /// The program with all its filters.
    pub(super) fn finish(self) -> Result<VerifiedProgram, Refusal> {
        self.program.with_key_filters(self.pulled).map_err(|error| malformed(error.to_string()))
    }
}

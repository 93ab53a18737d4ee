//! How do a program's key filters get here?
//!
//! The program names them by digest; their bytes lie in the requester's memory. They are pulled one
//! after the other, once for each program (`scan_pool/programs`).
//!
//! Invariant: only bytes that have the digest of their name become a filter.

use std::sync::Arc;

use rackscan_fabric::OperationError;
use rackscan_format::{
    key_filter::{KeyFilter, KeyFilterName},
    message::{Refusal, Target},
    program::VerifiedProgram,
};

use super::super::pull::{self, Pulled};
use crate::{
    bridge::Core,
    staging::Slot,
    task::{Place, malformed},
};

const WHAT: &str = "bytes of a key filter";

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

    /// Begins with the next filter; true when all are here.
    pub(super) fn advance(&mut self, core: &mut Core, place: Place) -> Result<bool, Refusal> {
        while self.slot.is_none() {
            let Some((name, source)) = self.next() else { return Ok(true) };
            match pull::begin(core, place, &source, WHAT)? {
                Pulled::Here(bytes) => self.open(&bytes, &name)?,
                Pulled::UnderWay(slot) => self.slot = Some(slot),
                Pulled::NoMemory => return Err(pull::bounced(&source, WHAT)),
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
        let (Some(slot), Some((name, source))) = (self.slot.take(), self.next()) else { return Ok(()) };
        let bytes = pull::end(core, place, &slot, (&source, WHAT), outcome)?;
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

//! Pulls the key filters of a scan program from the requester's memory. A key filter is a set of
//! join keys.
//!
//! The program names each filter by the digest of its bytes. The filters are pulled one after the
//! other, and once for each program: `scan_pool/programs` remembers them.
//!
//! Invariant: bytes are used as a filter only if they have the digest in the program.

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

/// A program and the filters pulled so far.
pub(super) struct Pulling {
    program: VerifiedProgram,
    sources: Vec<Target>,
    pulled: Vec<Arc<KeyFilter>>,
    slot: Option<Slot>,
}

impl Pulling {
    /// Nothing was pulled yet.
    pub(super) fn new(program: VerifiedProgram, sources: &[Target]) -> Result<Self, Refusal> {
        let names = &program.program().key_filters;
        let fits =
            |(name, source): (&KeyFilterName, &Target)| u64::from(name.length_bytes) <= source.length_bytes;
        if names.len() != sources.len() || !names.iter().zip(sources).all(fits) {
            let text = format!(
                "key filters at {sources:?}, expected a source of sufficient length for each of {names:?}"
            );
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

    /// Begins to pull the next filter. Returns true when all are here.
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

    /// Handles the end of the transfer in flight.
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

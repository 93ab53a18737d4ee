//! What tables does the node have? The sealed catalog, in parts that fit the target.

use rackscan_fabric::OperationError;
use rackscan_format::message::{Answer, Refusal, RefusalCode, Target};

use crate::{
    bridge::Core,
    limits::CATALOG_PART_BYTES_MAX,
    staging::Slot,
    task::{Place, Progress, Work, bad_memory, malformed},
};

struct Catalog {
    part: Vec<u8>,
    total_bytes: u64,
    generation: u64,
    target: Target,
    slot: Option<Slot>,
    outcome: Option<Result<(), Refusal>>,
}

/// Begins to serve it.
pub(crate) fn start(core: &Core, from_bytes: u64, target: Target) -> Result<Box<dyn Work>, Refusal> {
    let (encoded, generation) = core.node.store.catalog();
    let total_bytes = encoded.len() as u64;
    if from_bytes > total_bytes {
        return Err(malformed(format!("catalog bytes from {from_bytes} on; there are {total_bytes}")));
    }
    let length = (total_bytes - from_bytes).min(target.length_bytes).min(CATALOG_PART_BYTES_MAX);
    if length == 0 && from_bytes < total_bytes {
        let mut refusal = Refusal::new(RefusalCode::TargetTooSmall, "the target of a catalog has no bytes");
        refusal.needed_bytes = total_bytes - from_bytes;
        return Err(refusal);
    }
    let at = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let part = encoded.get(at(from_bytes)..at(from_bytes + length)).unwrap_or_default().to_vec();
    let outcome = if part.is_empty() { Some(Ok(())) } else { None };
    Ok(Box::new(Catalog { part, total_bytes, generation, target, slot: None, outcome }))
}

impl Catalog {
    fn begin(&mut self, core: &mut Core, place: Place, slot: &Slot) -> Result<(), Refusal> {
        let staged = core.staging.copy_in(slot, &self.part);
        let source = staged.and_then(|()| core.staging.slice(slot, self.part.len()));
        let source = source.map_err(|error| bad_memory(error.to_string()))?;
        core.send(place, 0, source, &self.target, 0)
    }
}

impl Work for Catalog {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if self.outcome.is_none() && self.slot.is_none() {
            if core.link(place).is_none() {
                return Progress::Finished(Err(bad_memory("the connection is gone")));
            }
            let Some(slot) = core.take_slot(place, self.part.len()) else { return Progress::Starved };
            match self.begin(core, place, &slot) {
                Ok(()) => self.slot = Some(slot),
                Err(refusal) => {
                    core.give_back(place, &slot);
                    self.outcome = Some(Err(refusal));
                }
            }
        }
        let Some(outcome) = self.outcome.take() else { return Progress::Working };
        let (written_bytes, total_bytes) = (self.part.len() as u64, self.total_bytes);
        let generation = self.generation;
        Progress::Finished(outcome.map(|()| Answer::Catalog { written_bytes, total_bytes, generation }))
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, _part: u32, outcome: Result<(), OperationError>) {
        if let Some(slot) = self.slot.take() {
            core.give_back(place, &slot);
        }
        self.outcome = Some(outcome.map_err(|error| bad_memory(format!("writing the target: {error}"))));
    }
}

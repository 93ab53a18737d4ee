//! Sends the node's encoded catalog, the map of a protected table, or the list of what a load has
//! stored here. A reply contains as much as fits into the target, which is memory of the requester.

use std::sync::Arc;

use az::SaturatingAs;
use rackscan_fabric::OperationError;
use rackscan_format::message::{Answer, LoadHeld, ReadMap, Refusal, RefusalCode, Target};

use crate::{
    bridge::Core,
    limits::{CATALOG_PART_BYTES_MAX, LOAD_PART_BYTES_MAX},
    staging::Slot,
    task::{Place, Progress, Work, bad_memory, malformed},
};

struct Told {
    part: Vec<u8>,
    answer: Option<Answer>,
    target: Target,
    slot: Option<Slot>,
    outcome: Option<Result<(), Refusal>>,
}

/// Begins to send a part of the catalog.
pub(crate) fn start(core: &Core, from_bytes: u64, target: Target) -> Result<Box<dyn Work>, Refusal> {
    part("catalog", core.node.store.catalog(), from_bytes, target)
}

/// Begins to send a part of a map.
pub(crate) fn map(core: &Core, request: &ReadMap) -> Result<Box<dyn Work>, Refusal> {
    part("map", core.node.store.map(request.table)?, request.from_bytes, request.target)
}

/// Begins to send what a load has stored here.
pub(crate) fn load_held(core: &Core, request: &LoadHeld) -> Result<Box<dyn Work>, Refusal> {
    let LoadHeld { load, after, target } = *request;
    let most = target.length_bytes.min(LOAD_PART_BYTES_MAX);
    let (part, next) = core.node.store.load_held(load, after, most)?;
    Ok(told(Answer::LoadHeld { written_bytes: part.len() as u64, next }, part, target))
}

fn part(
    what: &str,
    (encoded, generation): (Arc<Vec<u8>>, u64),
    from_bytes: u64,
    target: Target,
) -> Result<Box<dyn Work>, Refusal> {
    let total_bytes = encoded.len() as u64;
    if from_bytes > total_bytes {
        return Err(malformed(format!(
            "the request is for {what} bytes from {from_bytes} on, expected at most {total_bytes}"
        )));
    }
    let length = (total_bytes - from_bytes).min(target.length_bytes).min(CATALOG_PART_BYTES_MAX);
    if length == 0 && from_bytes < total_bytes {
        let mut refusal =
            Refusal::new(RefusalCode::TargetTooSmall, format!("the target of a {what} has no bytes"));
        refusal.needed_bytes = total_bytes - from_bytes;
        return Err(refusal);
    }
    let at = |bytes: u64| bytes.saturating_as::<usize>();
    let part = encoded.get(at(from_bytes)..at(from_bytes + length)).unwrap_or_default().to_vec();
    let written_bytes = part.len() as u64;
    Ok(told(Answer::Catalog { written_bytes, total_bytes, generation }, part, target))
}

/// Writes bytes into a target, then answers.
fn told(answer: Answer, part: Vec<u8>, target: Target) -> Box<dyn Work> {
    let outcome = if part.is_empty() { Some(Ok(())) } else { None };
    Box::new(Told { part, answer: Some(answer), target, slot: None, outcome })
}

impl Told {
    fn begin(&mut self, core: &mut Core, place: Place, slot: &Slot) -> Result<(), Refusal> {
        let staged = core.staging.copy_in(slot, &self.part);
        let source = staged.and_then(|()| core.staging.slice(slot, self.part.len()));
        let source = source.map_err(|error| bad_memory(error.to_string()))?;
        core.send(place, 0, source, &self.target, 0)
    }
}

impl Work for Told {
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
        Progress::Finished(outcome.map(|()| self.answer.take().unwrap_or(Answer::Done)))
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, _part: u32, outcome: Result<(), OperationError>) {
        if let Some(slot) = self.slot.take() {
            core.give_back(place, &slot);
        }
        self.outcome = Some(outcome.map_err(|error| bad_memory(format!("writing the target: {error}"))));
    }
}

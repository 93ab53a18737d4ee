//! Sends a part of a log replica that this node stores for another node, the owner of the log.
//!
//! The owner asks for it when its log is lost or the end of the log is damaged. A follower (a
//! client that reads all committed changes) asks for it while the owner is unavailable.

use std::sync::Arc;

use az::SaturatingAs;
use rackscan_fabric::OperationError;
use rackscan_format::{
    ids::NodeId,
    limits::KEPT_BYTES_MAX,
    message::{Answer, CopyHeld, CopyOfLog, LogGeneration, Refusal, RefusalCode},
};

use crate::{
    bridge::Core,
    copies::{Keeping, Kept, RoomTaken},
    message_queue::{Mail, ReplyTo},
    staging::Slot,
    task::{Place, Progress, Work, bad_memory},
};

enum Stage {
    Arrived,
    /// The copies' thread is reading.
    Asked,
    /// The thread has read a part.
    Read(Option<CopyHeld>, Vec<u8>, Option<LogGeneration>),
    /// The bytes are in flight to the requester.
    Sending(Slot, Answer),
    Ended(Result<Answer, Refusal>),
}

struct Tell {
    request: CopyOfLog,
    /// Held until the request ends.
    _room: RoomTaken,
    stage: Stage,
}

/// Access to the copies, if this node keeps those of `origin`.
pub(super) fn keeping(core: &Core, origin: NodeId, has_bytes: bool) -> Result<&Keeping, Refusal> {
    let none = || {
        Refusal::new(
            RefusalCode::NotFound,
            "this node keeps no copies of logs: its configuration has no `peers`",
        )
    };
    let keeping = core.node.keeping.as_ref().ok_or_else(none)?;
    keeping.check(origin, has_bytes).map(|()| keeping)
}

fn most(request: &CopyOfLog) -> usize {
    request.target.length_bytes.saturating_as::<usize>().min(KEPT_BYTES_MAX)
}

/// Begins to serve the request.
pub(crate) fn start(core: &Core, request: CopyOfLog) -> Result<Box<dyn Work>, Refusal> {
    let room = keeping(core, request.origin, false)?.room.take(most(&request) as u64)?;
    Ok(Box::new(Tell { request, _room: room, stage: Stage::Arrived }))
}

impl Tell {
    fn go_on(&mut self, core: &mut Core, place: Place) -> Result<Progress, Refusal> {
        match std::mem::replace(&mut self.stage, Stage::Asked) {
            Stage::Arrived => {
                let CopyOfLog { origin, from_bytes, .. } = self.request;
                let reply_to = ReplyTo::new(Arc::clone(&core.message_queue), place.task, Mail::Kept);
                keeping(core, origin, false)?.read(origin, from_bytes, most(&self.request), reply_to)?;
            }
            Stage::Read(held, bytes, generation) if bytes.is_empty() => {
                return Ok(Progress::Finished(Ok(Answer::CopyOfLog { held, written_bytes: 0, generation })));
            }
            Stage::Read(held, bytes, generation) => {
                let Some(slot) = core.take_slot(place, bytes.len()) else {
                    self.stage = Stage::Read(held, bytes, generation);
                    return Ok(Progress::Starved);
                };
                let staged = core.staging.copy_in(&slot, &bytes);
                let staged = staged.and_then(|()| core.staging.slice(&slot, bytes.len()));
                let staged = staged.map_err(|error| bad_memory(error.to_string()));
                let target = self.request.target;
                if let Err(refusal) = staged.and_then(|staged| core.send(place, 0, staged, &target, 0)) {
                    core.give_back(place, &slot);
                    return Err(refusal);
                }
                let answer = Answer::CopyOfLog { held, written_bytes: bytes.len() as u64, generation };
                self.stage = Stage::Sending(slot, answer);
            }
            Stage::Ended(outcome) => return Ok(Progress::Finished(outcome)),
            waiting @ (Stage::Asked | Stage::Sending(..)) => self.stage = waiting,
        }
        Ok(Progress::Working)
    }
}

impl Work for Tell {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if matches!(self.stage, Stage::Arrived | Stage::Read(..)) && core.link(place).is_none() {
            return Progress::Finished(Err(bad_memory("the connection is gone")));
        }
        self.go_on(core, place).unwrap_or_else(|refusal| Progress::Finished(Err(refusal)))
    }

    fn kept(&mut self, outcome: Result<Kept, Refusal>) {
        self.stage = match outcome {
            Ok(Kept::Copy(held, bytes, generation)) => Stage::Read(held, bytes, generation),
            Ok(Kept::Log(_)) => Stage::Ended(Err(bad_memory("the request was mistaken for another"))),
            Err(refusal) => Stage::Ended(Err(refusal)),
        };
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, _part: u32, outcome: Result<(), OperationError>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Asked);
        let Stage::Sending(slot, answer) = stage else {
            self.stage = stage;
            return;
        };
        core.give_back(place, &slot);
        let sent = outcome.map_err(|error| bad_memory(format!("writing the target: {error}")));
        self.stage = Stage::Ended(sent.map(|()| answer));
    }
}

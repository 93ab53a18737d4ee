//! Appends a part of another node's log to the log replica here.
//!
//! The bytes are in the request, or are pulled as one piece from the requester's memory. The
//! replicas' thread (`copies`) writes them, and the reply is sent when they are durable.

use std::sync::Arc;

use az::SaturatingAs;
use rackscan_fabric::OperationError;
use rackscan_format::message::{Answer, KeepLog, Payload, Refusal, Target};

use crate::{
    bridge::Core,
    copies::{Kept, RoomTaken},
    message_queue::{Mail, ReplyTo},
    request::copy_of_log::keeping,
    staging::Slot,
    task::{Place, Progress, Work, bad_memory},
};

enum Stage {
    /// The bytes are in the requester's memory.
    Beside(Target),
    /// The bytes are in flight.
    Pulling(Slot, usize),
    /// The bytes are here.
    Here(Vec<u8>),
    /// The copies' thread has the bytes.
    Asked,
    Ended(Result<Answer, Refusal>),
}

struct Keep {
    /// The request without its bytes.
    request: KeepLog,
    room: Option<RoomTaken>,
    stage: Stage,
}

/// Begins to serve the request.
pub(crate) fn start(core: &Core, mut request: KeepLog) -> Result<Box<dyn Work>, Refusal> {
    let has_bytes = request.cut.is_some() || request.bytes != Payload::Here(Vec::new());
    let keeping = keeping(core, request.origin, has_bytes)?;
    let stage = match std::mem::replace(&mut request.bytes, Payload::Here(Vec::new())) {
        Payload::Here(bytes) => Stage::Here(bytes),
        Payload::Beside(source) => Stage::Beside(source),
    };
    let bytes = match &stage {
        Stage::Beside(source) => source.length_bytes,
        Stage::Here(bytes) => bytes.len() as u64,
        _ => 0,
    };
    let room = Some(keeping.room.take(bytes)?);
    Ok(Box::new(Keep { request, room, stage }))
}

impl Keep {
    /// Advances as far as possible without waiting, and returns what it waits for.
    fn go_on(&mut self, core: &mut Core, place: Place) -> Result<Progress, Refusal> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Asked) {
                Stage::Beside(source) => {
                    let length = source.length_bytes.saturating_as::<usize>();
                    let Some(slot) = core.take_slot(place, length) else {
                        self.stage = Stage::Beside(source);
                        return Ok(Progress::Starved);
                    };
                    let into =
                        core.staging.slice(&slot, length).map_err(|error| bad_memory(error.to_string()));
                    if let Err(refusal) = into.and_then(|into| core.fetch(place, 0, &source, 0, into)) {
                        core.give_back(place, &slot);
                        return Err(refusal);
                    }
                    self.stage = Stage::Pulling(slot, length);
                    return Ok(Progress::Working);
                }
                Stage::Here(bytes) => {
                    let has_bytes = self.request.cut.is_some() || !bytes.is_empty();
                    let keeping = keeping(core, self.request.origin, has_bytes)?;
                    let Some(room) = self.room.take() else { return Ok(Progress::Working) };
                    let reply_to = ReplyTo::new(Arc::clone(&core.message_queue), place.task, Mail::Kept);
                    keeping.keep(&self.request, bytes, room, reply_to)?;
                }
                Stage::Ended(outcome) => return Ok(Progress::Finished(outcome)),
                waiting @ (Stage::Pulling(..) | Stage::Asked) => {
                    self.stage = waiting;
                    return Ok(Progress::Working);
                }
            }
        }
    }
}

impl Work for Keep {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if matches!(self.stage, Stage::Beside(_)) && core.link(place).is_none() {
            return Progress::Finished(Err(bad_memory("the connection is gone")));
        }
        self.go_on(core, place).unwrap_or_else(|refusal| Progress::Finished(Err(refusal)))
    }

    fn kept(&mut self, outcome: Result<Kept, Refusal>) {
        self.stage = Stage::Ended(match outcome {
            Ok(Kept::Log(kept)) => Ok(Answer::LogKept(kept)),
            Ok(Kept::Copy(..)) => Err(bad_memory("the request was mistaken for another")),
            Err(refusal) => Err(refusal),
        });
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, _part: u32, outcome: Result<(), OperationError>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Asked);
        let Stage::Pulling(slot, length) = stage else {
            self.stage = stage;
            return;
        };
        let mut bytes = vec![0; length];
        let copied = core.staging.copy_out(&slot, &mut bytes);
        core.give_back(place, &slot);
        let arrived = outcome
            .map_err(|error| bad_memory(format!("reading a part of a log: {error}")))
            .and_then(|()| copied.map_err(|error| bad_memory(error.to_string())));
        self.stage = match arrived {
            Ok(()) => Stage::Here(bytes),
            Err(refusal) => Stage::Ended(Err(refusal)),
        };
    }
}

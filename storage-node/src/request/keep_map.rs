//! Stores the map of a protected table: the list of its segments and of its stripe sets on all
//! nodes.
//!
//! The map arrives in pieces, each pulled from the requester's memory. After the last piece, the
//! catalog's thread checks the map and makes it durable.
//!
//! Invariant: the map has no effect before all of it has been checked.

use std::sync::Arc;

use rackscan_fabric::OperationError;
use rackscan_format::message::{Answer, KeepMap, Refusal};

use super::pull::{self, Pulled};
use crate::{
    bridge::Core,
    message_queue::{Mail, ReplyTo},
    staging::Slot,
    store::Change,
    task::{Place, Progress, Work, bad_memory, malformed},
};

const WHAT: &str = "bytes of a map";

enum State {
    Asked,
    UnderWay(Slot),
    Pulled(Vec<u8>),
    /// The catalog's thread has the map.
    Kept,
    Ended(Result<(), Refusal>),
}

struct Keep {
    request: KeepMap,
    state: State,
    /// Whether the load waits for this piece.
    begun: bool,
}

/// Begins to serve the request.
pub(crate) fn start(core: &mut Core, place: Place, request: KeepMap) -> Result<Box<dyn Work>, Refusal> {
    if request.source.length_bytes == 0 {
        return Err(malformed("a piece of a map has no bytes"));
    }
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let from = link.id();
    core.node.store.begin_map(request.load, from)?;
    Ok(Box::new(Keep { request, state: State::Asked, begun: true }))
}

impl Keep {
    fn begin(&self, core: &mut Core, place: Place) -> State {
        match pull::begin(core, place, &self.request.source, WHAT) {
            Ok(Pulled::Here(bytes)) => State::Pulled(bytes),
            Ok(Pulled::UnderWay(slot)) => State::UnderWay(slot),
            Ok(Pulled::NoMemory) => State::Asked,
            Err(refusal) => State::Ended(Err(refusal)),
        }
    }

    fn take(&mut self, core: &mut Core, place: Place, bytes: &[u8]) -> State {
        let KeepMap { load, from_bytes, total_bytes, .. } = self.request;
        self.begun = false;
        match core.node.store.end_map_piece(load, from_bytes, total_bytes, bytes) {
            Ok(false) => State::Ended(Ok(())),
            Ok(true) => {
                let reply_to = ReplyTo::new(Arc::clone(&core.message_queue), place.task, Mail::Published);
                match core.publisher.submit(Change::KeepMap(load), reply_to) {
                    Ok(()) => State::Kept,
                    Err(refusal) => State::Ended(Err(refusal)),
                }
            }
            Err(refusal) => State::Ended(Err(refusal)),
        }
    }
}

impl Work for Keep {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if matches!(self.state, State::Asked) {
            self.state = self.begin(core, place);
        }
        if let State::Pulled(bytes) = &mut self.state {
            let bytes = std::mem::take(bytes);
            self.state = self.take(core, place, &bytes);
        }
        let State::Ended(outcome) = &mut self.state else {
            return if matches!(self.state, State::Asked) { Progress::Starved } else { Progress::Working };
        };
        let outcome = std::mem::replace(outcome, Ok(()));
        if self.begun {
            // The original refusal says more than a failure to end the append.
            let _ = core.node.store.end_append(self.request.load, None);
        }
        Progress::Finished(outcome.map(|()| Answer::Done))
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, _part: u32, outcome: Result<(), OperationError>) {
        if let State::UnderWay(slot) = std::mem::replace(&mut self.state, State::Kept) {
            let pulled = pull::end(core, place, &slot, (&self.request.source, WHAT), outcome);
            self.state = pulled.map_or_else(|refusal| State::Ended(Err(refusal)), State::Pulled);
        }
    }

    fn published(&mut self, outcome: Result<(), Refusal>) {
        self.state = State::Ended(outcome);
    }
}

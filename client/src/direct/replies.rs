//! Receives the replies of a node over a direct line (one connection, driven by one thread) and the
//! completions of one-sided reads, and ends all requests when the connection ends.
//!
//! Invariants
//! - Every outstanding request ends once: with its reply, with a page that was read one-sidedly
//!   from the node's cache, or with the error that ended the connection.

use std::time::Instant;

use rackscan_cache::View;
use rackscan_fabric::{Access, Event};
use rackscan_format::{
    ids::RequestId,
    message::{Answer, CacheRegion, Cost, ReplyMessage},
};

use super::{CACHE, DURING, DirectDone, DirectError, DirectLine, STATUS, USED, cached::Cached};
use crate::{ClientError, cache::Opened, message_names::unexpected_answer};

impl DirectLine {
    pub(super) fn poll(&mut self, done: &mut Vec<DirectDone>) -> Result<(), DirectError> {
        for id in std::mem::take(&mut self.ready) {
            self.part_taken(id, done);
        }
        if let Some(places) = self.cached.as_mut().and_then(Cached::take_due) {
            self.tell_used(places)?;
        }
        self.connection.poll(&mut self.events);
        self.take_events(done)
    }

    pub(super) fn take_events(&mut self, done: &mut Vec<DirectDone>) -> Result<(), DirectError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.events);
        let mut outcome = Ok(());
        for event in events.drain(..) {
            if outcome.is_ok() {
                outcome = self.take_event(event, done);
            }
        }
        self.events = events;
        outcome?;
        // Completions may have made room for queued requests.
        self.flush()
    }

    fn take_event(&mut self, event: Event, done: &mut Vec<DirectDone>) -> Result<(), DirectError> {
        match event {
            Event::Message { bytes } => self.replied(&bytes, done),
            Event::Closed(ending) => Err(self.lost(&ending.to_string())),
            Event::Completed { id: name, outcome } if name > 0 => {
                self.read_ended(name, outcome.is_ok(), done)
            }
            // If a message was not delivered, the end of the connection follows.
            Event::Completed { .. } | Event::Immediate { .. } => Ok(()),
        }
    }

    /// Handles the end of a read of the cache. A part that must not be used is requested.
    fn read_ended(
        &mut self,
        name: u64,
        is_done: bool,
        done: &mut Vec<DirectDone>,
    ) -> Result<(), DirectError> {
        let ended = self.cached.as_mut().and_then(|cached| cached.completed(name, is_done, &self.region));
        let Some((id, part, is_here)) = ended else { return Ok(()) };
        if is_here {
            self.part_taken(id, done);
            return Ok(());
        }
        self.outstanding.retain(|outstanding| *outstanding != id);
        self.asked.insert(id, part);
        self.ask_to_read(id, &[part])
    }

    /// Ends a request whose part was read out of the cache.
    fn part_taken(&mut self, id: u64, done: &mut Vec<DirectDone>) {
        self.outstanding.retain(|outstanding| *outstanding != id);
        self.heard = Instant::now();
        let cost = Cost { pages_cached: 1, ..Cost::default() };
        done.push(DirectDone { id, outcome: Ok(cost), load: self.load, is_one_sided: true });
    }

    /// Opens the cache that the node describes.
    fn opened(&mut self, region: Option<&CacheRegion>) -> Result<(), DirectError> {
        let Some(view) = region.and_then(View::new) else { return Ok(()) };
        let (memory, length) = (view.memory(), view.memory().length);
        let mapped = self.connection.map_remote(memory, 0, length, Access::Read);
        self.cached = Some(Cached::new(Opened { view, mapped })?);
        Ok(())
    }

    fn replied(&mut self, bytes: &[u8], done: &mut Vec<DirectDone>) -> Result<(), DirectError> {
        let ReplyMessage { id: RequestId(id), outcome, load } = match ReplyMessage::decode(bytes) {
            Ok(reply) => reply,
            Err(source) => {
                return Err(self.end(ClientError::Codec { node: self.node, during: DURING, source }));
            }
        };
        self.load = load;
        if id == USED {
            return Ok(());
        }
        let Some(place) = self.outstanding.iter().position(|outstanding| *outstanding == id) else {
            return Err(self.end(ClientError::BadAnswer {
                node: self.node,
                during: DURING,
                found: format!("a reply to request {id}"),
                expected: "one that is outstanding".to_owned(),
            }));
        };
        self.outstanding.swap_remove(place);
        self.heard = Instant::now();
        let part = self.asked.remove(&id);
        let outcome = match outcome {
            Ok(Answer::Transferred { cost, places }) => {
                if let (Some(part), Some(cached)) = (part, &mut self.cached) {
                    cached.learn(part, &places);
                }
                Ok(cost)
            }
            Ok(Answer::Cache(region)) if id == CACHE => {
                self.opened(region.as_ref())?;
                Ok(Cost::default())
            }
            Ok(Answer::Done) => Ok(Cost::default()),
            Ok(Answer::Status(status)) if id == STATUS => {
                self.fresh_status = Some(*status);
                Ok(Cost::default())
            }
            Ok(other) => {
                return Err(self.end(unexpected_answer(self.node, DURING, &other, "what was asked for")));
            }
            Err(refusal) => Err(Box::new(refusal)),
        };
        done.push(DirectDone { id, outcome, load, is_one_sided: false });
        Ok(())
    }

    pub(super) fn lost(&mut self, reason: &str) -> DirectError {
        let (node, address, during) = (self.node, self.address.clone(), DURING);
        self.end(ClientError::NodeLost { node, address, during, reason: reason.to_owned() })
    }

    pub(super) fn timed_out(&mut self) -> DirectError {
        let (node, address, waited) = (self.node, self.address.clone(), self.patience);
        self.end(ClientError::TimedOut { node, address, during: DURING, waited })
    }

    fn end(&mut self, error: ClientError) -> DirectError {
        self.ended = Some(error.clone());
        error.into()
    }
}

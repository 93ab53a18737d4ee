//! Gets the list of withheld rows, which a scan of a segment must leave out.
//!
//! A short list is in the request. A longer list is in the requester's memory, and is pulled for
//! every scan, because it may differ from scan to scan.
//!
//! Invariant: a scan begins only if its list parses, the checksum is right and the segment contains
//! the rows.

use std::sync::Arc;

use rackscan_fabric::OperationError;
use rackscan_format::{
    message::{Payload, Refusal, Target},
    withheld::WithheldRows,
};

use super::super::pull::{self, Pulled};
use crate::{
    bridge::Core,
    staging::Slot,
    task::{Place, malformed},
};

const WHAT: &str = "bytes of withheld rows";

/// The list of withheld rows of a request, for a segment of `segment_rows` rows.
pub(super) struct Withheld {
    segment_rows: u32,
    state: State,
}

enum State {
    Payload(Payload),
    UnderWay(Slot, Target),
    Here(Option<Arc<WithheldRows>>),
}

impl Withheld {
    /// Nothing was decoded or pulled yet.
    pub(super) fn new(payload: Option<Payload>, segment_rows: u32) -> Self {
        Self { segment_rows, state: payload.map_or(State::Here(None), State::Payload) }
    }

    /// Decodes or pulls the list. Returns true when it is here.
    pub(super) fn advance(&mut self, core: &mut Core, place: Place) -> Result<bool, Refusal> {
        let source = match &self.state {
            State::Here(_) => return Ok(true),
            State::UnderWay(..) => return Ok(false),
            State::Payload(Payload::Here(bytes)) => {
                self.state = self.open(bytes)?;
                return Ok(true);
            }
            State::Payload(Payload::Beside(source)) => *source,
        };
        let most = WithheldRows::bytes_max(self.segment_rows);
        if source.length_bytes > most as u64 {
            let text = format!(
                "{} {WHAT} of a segment of {} rows, expected at most {most}",
                source.length_bytes, self.segment_rows
            );
            return Err(malformed(text));
        }
        self.state = match pull::begin(core, place, &source, WHAT)? {
            Pulled::Here(bytes) => self.open(&bytes)?,
            Pulled::UnderWay(slot) => State::UnderWay(slot, source),
            Pulled::NoMemory => return Err(pull::bounced(&source, WHAT)),
        };
        Ok(matches!(self.state, State::Here(_)))
    }

    /// Handles the end of the transfer in flight.
    pub(super) fn arrived(
        &mut self,
        core: &mut Core,
        place: Place,
        outcome: Result<(), OperationError>,
    ) -> Result<(), Refusal> {
        let State::UnderWay(slot, source) = std::mem::replace(&mut self.state, State::Here(None)) else {
            return Ok(());
        };
        let bytes = pull::end(core, place, &slot, (&source, WHAT), outcome)?;
        self.state = self.open(&bytes)?;
        Ok(())
    }

    fn open(&self, bytes: &[u8]) -> Result<State, Refusal> {
        let rows = WithheldRows::from_bytes(bytes);
        let rows = rows.and_then(|rows| rows.verify(self.segment_rows).map(|()| rows));
        let rows = rows.map_err(|error| malformed(error.to_string()))?;
        Ok(State::Here(Some(Arc::new(rows))))
    }

    /// The list, once it is here.
    pub(super) fn rows(&self) -> Option<Arc<WithheldRows>> {
        match &self.state {
            State::Here(rows) => rows.clone(),
            State::Payload(_) | State::UnderWay(..) => None,
        }
    }
}

//! Lets a load reuse a segment of the table version that it replaces.
//!
//! No page is written: both table versions share the stored segment. Only the list of withheld rows
//! is new; the node pulls it from the requester's memory. The same request gives a new list to a
//! segment that the load itself has written, because its rows may have changed before the load is
//! published.
//!
//! Invariant: the load gets the list only if it parses, its checksum is right, the segment contains
//! its rows, and it includes all rows that the published table already withholds; otherwise nothing
//! changes.

use rackscan_fabric::OperationError;
use rackscan_format::{
    ids::{SegmentId, TableId},
    message::{Answer, Refusal, Target},
    withheld::WithheldRows,
};

use super::pull::{self, Pulled};
use crate::{
    bridge::Core,
    staging::Slot,
    store::{Arrived, TableSegment},
    task::{Place, Progress, Work, bad_memory, malformed},
};

const WHAT: &str = "bytes of withheld rows";

/// The parameters of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) load: TableId,
    pub(crate) of: TableId,
    pub(crate) segment: SegmentId,
    pub(crate) withheld_bytes: u32,
    pub(crate) source: Target,
}

enum State {
    Asked,
    UnderWay(Slot),
    /// The list was pulled.
    Pulled(Vec<u8>),
    Failed(Refusal),
}

struct Keep {
    load: TableId,
    of: TableId,
    segment: TableSegment,
    /// Exactly the bytes of the list.
    source: Target,
    state: State,
}

/// Begins to serve the request.
pub(crate) fn start(core: &mut Core, place: Place, wanted: &Wanted) -> Result<Box<dyn Work>, Refusal> {
    let &Wanted { load, of, segment, withheld_bytes, source } = wanted;
    let store = &core.node.store;
    let segment = if of == load {
        store.appended_segment(load, segment)
    } else {
        store.published_segment(of, segment)
    }?;
    let (bytes, rows) = (u64::from(withheld_bytes), segment.directory().rows);
    let most = WithheldRows::bytes_max(rows) as u64;
    if bytes > most || bytes > source.length_bytes {
        return Err(malformed(format!(
            "the request names {bytes} {WHAT} in a source of {} bytes; expected at most {most} for a segment of {rows} rows, within the source",
            source.length_bytes
        )));
    }
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let from = link.id();
    core.node.store.begin_append(load, from)?;
    let source = Target { length_bytes: bytes, ..source };
    let state = if bytes == 0 { State::Pulled(Vec::new()) } else { State::Asked };
    Ok(Box::new(Keep { load, of, segment, source, state }))
}

impl Keep {
    fn begin(&self, core: &mut Core, place: Place) -> State {
        match pull::begin(core, place, &self.source, WHAT) {
            Ok(Pulled::Here(bytes)) => State::Pulled(bytes),
            Ok(Pulled::UnderWay(slot)) => State::UnderWay(slot),
            Ok(Pulled::NoMemory) => State::Asked,
            Err(refusal) => State::Failed(refusal),
        }
    }

    fn end(&self, core: &Core, outcome: Result<Vec<u8>, Refusal>) -> Result<Answer, Refusal> {
        let store = &core.node.store;
        let kept = outcome.and_then(|bytes| {
            let rows = WithheldRows::from_bytes(&bytes).map_err(|error| malformed(error.to_string()))?;
            store.keep(self.of, &self.segment, rows)
        });
        match kept {
            Ok(segment) => {
                store.end_append(self.load, Some(Arrived::kept(segment, self.of)))?;
                Ok(Answer::Done)
            }
            Err(refusal) => {
                // The original refusal says more than a failure to end the append.
                let _ = store.end_append(self.load, None);
                Err(refusal)
            }
        }
    }
}

impl Work for Keep {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if matches!(self.state, State::Asked) {
            self.state = self.begin(core, place);
        }
        match std::mem::replace(&mut self.state, State::Asked) {
            // Waits as long as the connection exists: without it, the pull fails.
            State::Asked => Progress::Starved,
            State::UnderWay(slot) => {
                self.state = State::UnderWay(slot);
                Progress::Working
            }
            State::Pulled(bytes) => Progress::Finished(self.end(core, Ok(bytes))),
            State::Failed(refusal) => Progress::Finished(self.end(core, Err(refusal))),
        }
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, _part: u32, outcome: Result<(), OperationError>) {
        if let State::UnderWay(slot) = std::mem::replace(&mut self.state, State::Asked) {
            let pulled = pull::end(core, place, &slot, (&self.source, WHAT), outcome);
            self.state = pulled.map_or_else(State::Failed, State::Pulled);
        }
    }
}

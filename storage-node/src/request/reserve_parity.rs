//! Reserves extents for parity cells of a load. The nodes compute these cells later and write them
//! themselves, by relaying stripes to each other.
//!
//! The extents are allocated at once, as for appended cells, and nothing is written. A reserved
//! cell that is never written does not become part of a table.

use rackscan_format::{
    limits::{CELL_BYTES_MAX, CELL_BYTES_MIN},
    message::{Answer, Refusal, ReserveParity},
};

use crate::{
    bridge::Core,
    task::{Place, Progress, Work, bad_memory, malformed},
};

struct Reserved(Option<Answer>);

/// Begins to serve the request.
pub(crate) fn start(
    core: &mut Core,
    place: Place,
    request: &ReserveParity,
) -> Result<Box<dyn Work>, Refusal> {
    let bytes = request.cell_bytes;
    if !(CELL_BYTES_MIN..=CELL_BYTES_MAX).contains(&bytes) || !bytes.is_power_of_two() {
        return Err(malformed(format!(
            "parity cells cannot have {bytes} bytes, expected a power of two from {CELL_BYTES_MIN} to {CELL_BYTES_MAX}"
        )));
    }
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let from = link.id();
    let extents = core.node.store.reserve_parity(request, from)?;
    Ok(Box::new(Reserved(Some(Answer::ParityPlaced { extents }))))
}

impl Work for Reserved {
    fn advance(&mut self, _core: &mut Core, _place: Place) -> Progress {
        self.0.take().map_or(Progress::Working, |answer| Progress::Finished(Ok(answer)))
    }
}

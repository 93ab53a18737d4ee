//! Reserves extents for parity cells of a load. The nodes compute these cells later and write them
//! themselves, by relaying stripes to each other.
//!
//! The extents are allocated at once, as for appended cells, and nothing is written. A reserved
//! cell that is never written does not become part of a table.

use rackscan_format::{
    limits::{CELL_BYTES_MAX, CELL_BYTES_MIN},
    message::{Answer, Refusal, ReserveParity},
};

use super::answered;
use crate::{
    bridge::Core,
    task::{Place, Work, bad_memory, malformed},
};

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
    Ok(answered(Answer::ParityPlaced { extents }))
}

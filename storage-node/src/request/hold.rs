//! Begins and ends holds: a hold lets a reader read tables even after they were replaced or dropped
//! (`store/holds`).

use rackscan_format::message::{Answer, HoldTables, Refusal};

use super::answered;
use crate::{
    bridge::Core,
    task::{Place, Work, bad_memory},
};

/// Begins to hold tables.
pub(crate) fn hold(core: &mut Core, place: Place, request: &HoldTables) -> Result<Box<dyn Work>, Refusal> {
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let from = link.id();
    core.node.store.hold(request.hold, &request.tables, from)?;
    Ok(answered(Answer::Done))
}

/// Ends a hold.
#[expect(clippy::unnecessary_wraps, reason = "every kind of request begins alike")]
pub(crate) fn release(core: &Core, number: u64) -> Result<Box<dyn Work>, Refusal> {
    core.node.store.release(number);
    Ok(answered(Answer::Done))
}

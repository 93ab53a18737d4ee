//! Begins and ends holds: a hold lets a reader read tables even after they were replaced or dropped
//! (`store/holds`).

use rackscan_format::message::{Answer, HoldTables, Refusal};

use crate::{
    bridge::Core,
    task::{Place, Progress, Work, bad_memory},
};

struct Said;

/// Begins to hold tables.
pub(crate) fn hold(core: &mut Core, place: Place, request: &HoldTables) -> Result<Box<dyn Work>, Refusal> {
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let from = link.id();
    core.node.store.hold(request.hold, &request.tables, from)?;
    Ok(Box::new(Said))
}

/// Ends a hold.
#[expect(clippy::unnecessary_wraps, reason = "every kind of request begins alike")]
pub(crate) fn release(core: &Core, number: u64) -> Result<Box<dyn Work>, Refusal> {
    core.node.store.release(number);
    Ok(Box::new(Said))
}

impl Work for Said {
    fn advance(&mut self, _core: &mut Core, _place: Place) -> Progress {
        Progress::Finished(Ok(Answer::Done))
    }
}

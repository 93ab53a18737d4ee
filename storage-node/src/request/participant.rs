//! Grants a client one-sided reads of the participant's slots and feed (`participant/slots`). Also
//! forwards an operator's decision to continue a log that may lack acknowledged records.

use rackscan_format::message::{Answer, ParticipantRegion, Refusal, RefusalCode};

use super::answered;
use crate::{
    bridge::Core,
    task::{Place, Work, bad_memory},
};

/// Begins to serve a request for access to the participant's memory.
pub(crate) fn open(core: &mut Core, place: Place) -> Result<Box<dyn Work>, Refusal> {
    let Some(participant) = core.node.participant.clone() else {
        return Ok(answered(Answer::Participant(None)));
    };
    participant.check()?;
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let granted = link.grant_participant(&participant.slots, &participant.feed).map_err(|error| {
        Refusal::new(
            RefusalCode::Busy,
            format!("the memory of keys cannot be registered: {error}; ask again"),
        )
    })?;
    let region =
        ParticipantRegion { slots: Some(granted.slots), feed: Some(granted.feed), life: participant.life };
    Ok(answered(Answer::Participant(Some(region))))
}

/// Accepts, by decision of an operator, that the log continues without records that may be missing.
pub(crate) fn accept_loss(core: &Core) -> Result<Box<dyn Work>, Refusal> {
    let Some(participant) = core.node.participant.clone() else {
        let text = "this node keeps no keys: its configuration gives no memory for `transactions`";
        return Err(Refusal::new(RefusalCode::NotFound, text));
    };
    participant.accept_loss()?;
    tracing::warn!(
        "a client has accepted the loss: the log of transactions continues, though acknowledged records may be missing"
    );
    Ok(answered(Answer::Done))
}

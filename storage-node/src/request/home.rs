//! How does a client come to read the slots of the home, and its feed, by itself?

use rackscan_format::message::{Answer, HomeRegion, Refusal, RefusalCode};

use crate::{
    bridge::Core,
    task::{Place, Progress, Work, bad_memory},
};

struct Answered(Option<Answer>);

/// Begins to serve a request for the home's memory.
pub(crate) fn open(core: &mut Core, place: Place) -> Result<Box<dyn Work>, Refusal> {
    let Some(home) = core.node.home.clone() else {
        return Ok(Box::new(Answered(Some(Answer::Home(None)))));
    };
    home.check()?;
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let granted = link.grant_home(&home.slots, &home.feed).map_err(|error| {
        Refusal::new(
            RefusalCode::Busy,
            format!("the memory of keys cannot be registered: {error}; ask again"),
        )
    })?;
    let region = HomeRegion { slots: Some(granted.slots), feed: Some(granted.feed), life: home.life };
    Ok(Box::new(Answered(Some(Answer::Home(Some(region))))))
}

impl Work for Answered {
    fn advance(&mut self, _core: &mut Core, _place: Place) -> Progress {
        self.0.take().map_or(Progress::Working, |answer| Progress::Finished(Ok(answer)))
    }
}

//! How does a client come to read the page cache by itself, and how does the node learn that it
//! did?

use rackscan_format::message::{Answer, CachePlace, CacheRegion, Refusal, RefusalCode};

use crate::{
    bridge::Core,
    task::{Place, Progress, Work, bad_memory},
};

struct Answered(Option<Answer>);

/// Begins to serve a request for the cache's memory.
pub(crate) fn open(core: &mut Core, place: Place) -> Result<Box<dyn Work>, Refusal> {
    let Some(pages) = core.node.cache.as_ref().map(|cache| cache.pages()).cloned() else {
        return Ok(Box::new(Answered(Some(Answer::Cache(None)))));
    };
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let granted = link.grant_cache(pages.region());
    let memory = granted.map_err(|error| {
        Refusal::new(RefusalCode::Busy, format!("the page cache cannot be registered: {error}; ask again"))
    })?;
    let region = CacheRegion { memory, frames: pages.geometry().frames(), epoch: pages.epoch() };
    Ok(Box::new(Answered(Some(Answer::Cache(Some(region))))))
}

/// Begins to serve a client's word of what it has read.
#[expect(clippy::unnecessary_wraps, reason = "every kind of request begins alike")]
pub(crate) fn used(core: &Core, places: &[CachePlace]) -> Result<Box<dyn Work>, Refusal> {
    if let Some(cache) = &core.node.cache {
        // Pages that are not there any more were still read: they count, and change nothing.
        places.iter().for_each(|place| cache.pages().used(*place));
    }
    Ok(Box::new(Answered(Some(Answer::Done))))
}

impl Work for Answered {
    fn advance(&mut self, _core: &mut Core, _place: Place) -> Progress {
        self.0.take().map_or(Progress::Working, |answer| Progress::Finished(Ok(answer)))
    }
}

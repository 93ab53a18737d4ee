//! Grants a client one-sided reads of the page cache, and records which cached pages the client has
//! read.

use rackscan_format::message::{Answer, CachePlace, CacheRegion, Refusal, RefusalCode};

use super::answered;
use crate::{
    bridge::Core,
    task::{Place, Work, bad_memory},
};

/// Begins to serve a request for access to the cache's memory.
pub(crate) fn open(core: &mut Core, place: Place) -> Result<Box<dyn Work>, Refusal> {
    let Some(pages) = core.node.cache.as_ref().map(|cache| cache.pages()).cloned() else {
        return Ok(answered(Answer::Cache(None)));
    };
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let granted = link.grant_cache(pages.region());
    let memory = granted.map_err(|error| {
        Refusal::new(RefusalCode::Busy, format!("the page cache cannot be registered: {error}; ask again"))
    })?;
    let region = CacheRegion { memory, frames: pages.geometry().frames(), epoch: pages.epoch() };
    Ok(answered(Answer::Cache(Some(region))))
}

/// Begins to record what a client has read.
#[expect(clippy::unnecessary_wraps, reason = "every kind of request begins alike")]
pub(crate) fn used(core: &Core, places: &[CachePlace]) -> Result<Box<dyn Work>, Refusal> {
    if let Some(cache) = &core.node.cache {
        // A page that has left the cache since then counts as a hit, and changes nothing else.
        places.iter().for_each(|place| cache.pages().used(*place));
    }
    Ok(answered(Answer::Done))
}

//! Gives a client boxes: pieces of this node's memory, for one request each, into which the client
//! writes its requests one-sidedly.
//!
//! Invariants
//! - The number of boxes is bounded, and their memory counts as memory of the connection. A
//!   connection gets boxes at most once.

use az::SaturatingAs;
use rackscan_fabric::post::PostShape;
use rackscan_format::message::{Answer, Refusal, RefusalCode, Target};

use super::answered;
use crate::{
    bridge::Core,
    limits::{POST_BODY_BYTES_MAX, POSTS_BYTES, POSTS_MAX, POSTS_REGION_BYTES_MAX},
    link::Posts,
    metrics::add,
    task::{Place, Work, bad_memory, malformed},
};

/// Begins to serve a request for boxes.
pub(crate) fn open(
    core: &mut Core,
    place: Place,
    boxes: u16,
    body_bytes_max: u32,
    replies: &Target,
) -> Result<Box<dyn Work>, Refusal> {
    let shape = shape(boxes, body_bytes_max)?;
    let (found, most) = (core.node.metrics.counters().connections_with_boxes, core.node.plan.boxes);
    if found >= most {
        return Err(Refusal::new(
            RefusalCode::Busy,
            format!(
                "the node has no memory for boxes: {found} connections have boxes, at most {most} are possible; send messages, or give the node more memory"
            ),
        ));
    }
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    if link.has_posts() {
        return Err(malformed("the connection has boxes already: each has them once"));
    }
    let posts = Posts::new(shape, replies).map_err(|error| bad_memory(error.to_string()))?;
    let requests = link.open_posts(posts).map_err(|error| {
        Refusal::new(RefusalCode::Busy, format!("boxes cannot be registered: {error}; ask again"))
    })?;
    add(&core.node.metrics.connections_with_boxes, 1);
    core.node.metrics.memory_taken(POSTS_BYTES);
    Ok(answered(Answer::Posts { requests }))
}

fn shape(boxes: u16, body_bytes_max: u32) -> Result<PostShape, Refusal> {
    let (count, bytes) = (usize::from(boxes), body_bytes_max.saturating_as::<usize>());
    let shape = PostShape::new(count, bytes).map_err(|error| malformed(error.to_string()))?;
    if count > POSTS_MAX || bytes > POST_BODY_BYTES_MAX || shape.region_bytes() > POSTS_REGION_BYTES_MAX {
        return Err(malformed(format!(
            "{boxes} boxes for {body_bytes_max} bytes each need {} bytes of memory; expected at most {POSTS_MAX} boxes, \
             {POST_BODY_BYTES_MAX} bytes each, and {POSTS_REGION_BYTES_MAX} bytes of memory",
            shape.region_bytes()
        )));
    }
    Ok(shape)
}

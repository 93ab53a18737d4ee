//! Decides whether a request may begin, by the number of requests in progress.
//!
//! Invariants
//! - The number of requests in progress on one connection and on one reactor is bounded. A further
//!   request is refused, and the client may send it again.

use rackscan_format::message::{Refusal, RefusalCode};

use crate::{
    lifecycle::Lifecycle,
    limits::{REQUESTS_PER_CONNECTION_MAX, REQUESTS_PER_REACTOR_MAX},
};

/// The refusal of a request with this many in progress on its connection and its reactor; `None` if
/// it may begin.
pub(super) fn refusal(lifecycle: &Lifecycle, on_connection: usize, on_reactor: usize) -> Option<Refusal> {
    let busy = |found: usize, most: usize, whose: &str| {
        let text =
            format!("{found} requests of {whose} are in progress, at most {most} are possible; ask again");
        Some(Refusal::new(RefusalCode::Busy, text))
    };
    if lifecycle.is_stopping() {
        return Some(Refusal::new(RefusalCode::Stopping, "the node is stopping"));
    }
    if on_connection >= REQUESTS_PER_CONNECTION_MAX {
        return busy(on_connection, REQUESTS_PER_CONNECTION_MAX, "this connection");
    }
    if on_reactor >= REQUESTS_PER_REACTOR_MAX {
        return busy(on_reactor, REQUESTS_PER_REACTOR_MAX, "this reactor");
    }
    None
}

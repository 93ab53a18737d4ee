//! Is a request begun at all?
//!
//! Invariants
//! - What one connection and one reactor have in progress is bounded; who asks for more is told so
//!   and may ask again.

use rackscan_format::message::{Refusal, RefusalCode};

use crate::{
    lifecycle::Lifecycle,
    limits::{REQUESTS_PER_CONNECTION_MAX, REQUESTS_PER_REACTOR_MAX},
};

/// Why a request is not even begun, with so many in progress on its connection and its reactor.
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

//! Stops the node at a client's request. The reply is sent before the connection closes.

use rackscan_format::message::{Answer, Refusal};

use crate::{
    bridge::Core,
    task::{Place, Progress, Work},
};

struct Stop;

/// Begins to serve the request.
#[expect(clippy::unnecessary_wraps, reason = "every kind of request begins alike")]
pub(crate) fn start() -> Result<Box<dyn Work>, Refusal> {
    Ok(Box::new(Stop))
}

impl Work for Stop {
    fn advance(&mut self, core: &mut Core, _place: Place) -> Progress {
        tracing::info!("told to stop by a client");
        core.node.lifecycle.stop();
        Progress::Finished(Ok(Answer::Done))
    }
}

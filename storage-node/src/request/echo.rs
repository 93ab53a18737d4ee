//! Sends zeroes to a client without touching a device, to measure the wire alone.
//!
//! Invariants
//! - The bytes come from memory that never contained anything but zeroes.

use az::SaturatingAs;
use rackscan_fabric::OperationError;
use rackscan_format::message::{Answer, Refusal, Target};

use crate::{
    bridge::Core,
    limits::{ECHO_BYTES, ECHO_WRITES_MAX},
    task::{Place, Progress, Work, bad_memory, malformed},
};

struct Echo {
    target: Target,
    bytes: u64,
    sent_bytes: u64,
    writing: u32,
    failed: Option<Refusal>,
}

/// Begins to serve the request.
pub(crate) fn start(bytes: u64, target: Target) -> Result<Box<dyn Work>, Refusal> {
    if bytes > target.length_bytes {
        let text =
            format!("an echo of {bytes} bytes does not fit into a target of {} bytes", target.length_bytes);
        return Err(malformed(text));
    }
    Ok(Box::new(Echo { target, bytes, sent_bytes: 0, writing: 0, failed: None }))
}

impl Work for Echo {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        while self.failed.is_none() && self.sent_bytes < self.bytes && self.writing < ECHO_WRITES_MAX {
            let part = (self.bytes - self.sent_bytes).min(ECHO_BYTES as u64);
            let source = core.echo.slice(0, part.saturating_as::<usize>());
            let sent = source
                .map_err(|error| bad_memory(error.to_string()))
                .and_then(|source| core.send(place, 0, source, &self.target, self.sent_bytes));
            match sent {
                Ok(()) => {
                    self.writing += 1;
                    self.sent_bytes += part;
                }
                Err(refusal) => self.failed = Some(refusal),
            }
        }
        if self.writing > 0 {
            return Progress::Working;
        }
        Progress::Finished(self.failed.take().map_or(Ok(Answer::Done), Err))
    }

    fn wire_done(
        &mut self,
        _core: &mut Core,
        _place: Place,
        _part: u32,
        outcome: Result<(), OperationError>,
    ) {
        self.writing -= 1;
        if let Err(error) = outcome {
            self.failed.get_or_insert_with(|| bad_memory(format!("writing the target: {error}")));
        }
    }
}

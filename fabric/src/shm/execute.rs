//! Executes operations of a `shm` connection on the thread that posts them.
//!
//! Invariants
//! - Reads, writes and atomics are done when `execute` returns; only messages and immediates may
//!   have to wait for room.
//! - An operation that has waited continues where it stopped: no byte is sent twice.

use std::sync::atomic::Ordering;

use super::{
    ends::{Fault, Progress},
    queue::{Execution, ShmQueue},
};
use crate::{
    access::Access,
    completion::Done,
    error::OperationError,
    inbox::Sent,
    operation::{Operation, Report},
    region::Source,
};

impl ShmQueue {
    /// Wakes the receiver after a message, or notes that the batch must.
    fn announce(&mut self) {
        match &mut self.batch {
            Some(sent) => *sent = true,
            None => self.outgoing.wake_for_message(&self.peer_bell),
        }
    }

    pub(super) fn execute(
        &mut self,
        operation: &Operation<'_>,
        progress: &mut Progress,
    ) -> Result<Execution, Fault> {
        let moved = Done::Moved { bytes: operation.transfer_bytes() as u64 };
        let outcome = match operation {
            Operation::Send { bytes } => {
                return self.send(Source::Bytes(bytes), Report::PerMessage, progress);
            }
            Operation::SendRegion { source, report } => {
                return self.send(Source::Region(source), *report, progress);
            }
            Operation::WriteWithImmediate { source, immediate, .. } => {
                if !progress.written {
                    // Checked first: the bytes must not be written twice, nor long before the
                    // immediate.
                    match self.outgoing.has_room_for_immediate(progress)? {
                        Sent::All => {}
                        Sent::Stalled => return Ok(Execution::Stalled),
                        Sent::Refused => return Ok(refused(source.len())),
                    }
                    if let Err(error) = self.transfer(operation) {
                        return Ok(Execution::Finished(Err(error)));
                    }
                    progress.written = true;
                }
                let bytes = u32::try_from(source.len())
                    .expect("`Operation::check` limits transfers to TRANSFER_BYTES_MAX");
                if !self.outgoing.push_immediate(*immediate, bytes)? {
                    return Ok(Execution::Stalled);
                }
                self.announce();
                Ok(moved)
            }
            Operation::Write { .. } | Operation::WriteBytes { .. } | Operation::Read { .. } => {
                self.transfer(operation).map(|()| moved)
            }
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => {
                self.atomic(operation).map(|value| Done::Found { value })
            }
        };
        Ok(Execution::Finished(outcome))
    }

    fn send(
        &mut self,
        source: Source<'_>,
        report: Report,
        progress: &mut Progress,
    ) -> Result<Execution, Fault> {
        let sent = self.outgoing.send(source, report, progress)?;
        if sent != Sent::Refused {
            // A part of a stalled message may have been sent.
            self.announce();
        }
        Ok(match sent {
            Sent::All => Execution::Finished(Ok(Done::Moved { bytes: source.len() as u64 })),
            Sent::Stalled => Execution::Stalled,
            Sent::Refused => refused(source.len()),
        })
    }

    /// Copies the bytes of a read or write.
    fn transfer(&self, operation: &Operation<'_>) -> Result<(), OperationError> {
        let Some(span) = operation.remote_span().map_err(OperationError::OutOfBounds)? else { return Ok(()) };
        match operation {
            Operation::Write { source, .. } | Operation::WriteWithImmediate { source, .. } => {
                let (remote, offset) = self.peer_regions.find(span, Access::Write)?;
                source.region().mapping().copy_to(source.offset(), remote, offset, source.len())
            }
            Operation::WriteBytes { bytes, .. } => {
                let (remote, offset) = self.peer_regions.find(span, Access::Write)?;
                remote.copy_in(offset, bytes)
            }
            Operation::Read { target, .. } => {
                let (remote, offset) = self.peer_regions.find(span, Access::Read)?;
                remote.copy_to(offset, target.region().mapping(), target.offset(), target.len())
            }
            Operation::Send { .. }
            | Operation::SendRegion { .. }
            | Operation::FetchAdd { .. }
            | Operation::CompareSwap { .. } => Ok(()),
        }
        .map_err(OperationError::OutOfBounds)
    }

    /// Executes an atomic operation and returns the previous value.
    fn atomic(&self, operation: &Operation<'_>) -> Result<u64, OperationError> {
        let Some(span) = operation.remote_span().map_err(OperationError::OutOfBounds)? else { return Ok(0) };
        let (remote, offset) = self.peer_regions.find(span, Access::ReadWrite)?;
        let word = remote.word_to_store(offset).map_err(OperationError::OutOfBounds)?;
        let found = match *operation {
            Operation::FetchAdd { add, .. } => word.fetch_add(add, Ordering::SeqCst),
            Operation::CompareSwap { expected, replacement, .. } => word
                .compare_exchange(expected, replacement, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
            _ => 0,
        };
        Ok(found)
    }
}

fn refused(bytes: usize) -> Execution {
    Execution::Finished(Err(OperationError::InboxFull { bytes: bytes as u64 }))
}

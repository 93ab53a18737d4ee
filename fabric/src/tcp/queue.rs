//! What does the application's thread do for an operation over TCP?
//!
//! Life of an operation: `post` appends it to the outbox and sends what the socket takes at once, at most about
//! `TCP_INLINE_BYTES_MAX`; the responder sends the rest. The peer's responder executes it and answers, our responder takes the
//! answer in, and `poll` finds the completion.
//!
//! Invariants
//! - Nothing here waits for the socket, except `close` within its limit.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
};

use super::{
    frame::{Body, Frame},
    link::{Expected, Flight, Link},
    outbox::{Payload, Sent},
    responder,
};
use crate::{
    completion::Event,
    error::{OutOfBounds, PostError, RegisterError},
    limits::{TCP_INLINE_BYTES_MAX, TCP_SPIN_US},
    memory::RawSlice,
    operation::{Operation, RemoteSpan},
    region::{Access, Region, RegionSlice},
    wire::Queue,
};

/// The application's end of a `tcp` connection.
pub(super) struct TcpQueue {
    link: Arc<Link>,
    responder: Option<JoinHandle<()>>,
    next_sequence: u64,
    armed: bool,
}

impl TcpQueue {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let link = Arc::new(Link::new(socket)?);
        let shared = Arc::clone(&link);
        let thread = std::thread::Builder::new().name("fabric-tcp".to_owned()).stack_size(256 * 1024);
        let responder = thread.spawn(move || responder::run(&shared))?;
        Ok(Self { link, responder: Some(responder), next_sequence: 0, armed: false })
    }
}

/// A length that `Operation::check` has found to be at most `TRANSFER_BYTES_MAX`, which fits.
fn frame_length(bytes: usize) -> Result<u32, PostError> {
    let bytes_max = crate::limits::TRANSFER_BYTES_MAX;
    u32::try_from(bytes).map_err(|_| PostError::TransferTooLong { bytes, bytes_max })
}

fn shared(slice: &RegionSlice) -> Result<Payload, OutOfBounds> {
    Ok(Payload::Shared(slice.region().as_raw_slice(slice.offset(), slice.len())?))
}

/// The frame and payload of an operation, and what must come back.
fn request(operation: &Operation<'_>) -> Result<(Body, Payload, Expected), PostError> {
    let bytes = operation.transfer_bytes();
    let length = frame_length(bytes)?;
    let acknowledge = Expected::Acknowledge { bytes: bytes as u64 };
    let span = operation.remote_span()?;
    let RemoteSpan { key, address, .. } = span.unwrap_or(RemoteSpan { key: 0, address: 0, length: 0 });
    Ok(match operation {
        Operation::Write { source, .. } => {
            (Body::Write { key, address, length }, shared(source)?, acknowledge)
        }
        Operation::WriteBytes { bytes, .. } => {
            (Body::Write { key, address, length }, Payload::Private(bytes.to_vec()), acknowledge)
        }
        Operation::WriteWithImmediate { source, immediate, .. } => {
            let body = Body::WriteImmediate { key, address, length, immediate: *immediate };
            (body, shared(source)?, acknowledge)
        }
        Operation::Read { target, .. } => (
            Body::Read { key, address, length },
            Payload::None,
            Expected::ReadData { target: target.clone() },
        ),
        Operation::Send { bytes } => (Body::Send { length }, Payload::Private(bytes.to_vec()), acknowledge),
        Operation::FetchAdd { add, .. } => {
            (Body::FetchAdd { key, address, add: *add }, Payload::None, Expected::Found)
        }
        Operation::CompareSwap { expected, replacement, .. } => {
            let (expected, replacement) = (*expected, *replacement);
            (Body::CompareSwap { key, address, expected, replacement }, Payload::None, Expected::Found)
        }
    })
}

/// The access that an operation needs to the peer's memory.
fn needed(operation: &Operation<'_>) -> Access {
    match operation {
        Operation::Read { .. } => Access::Read,
        Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => Access::ReadWrite,
        _ => Access::Write,
    }
}

impl Queue for TcpQueue {
    fn grant(&mut self, key: u64, region: &Region, access: Access) -> Result<(), RegisterError> {
        if let Some(ending) = &self.link.flights.lock().ending {
            return Err(RegisterError::Closed(ending.clone()));
        }
        self.link.grants.grant(key, region, access);
        Ok(())
    }

    fn revoke(&mut self, key: u64) -> Result<(), RegisterError> {
        self.link.grants.revoke(key);
        Ok(())
    }

    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        let (body, payload, expected) = request(&operation)?;
        let touches = operation.remote_span()?.map(|span| (span, needed(&operation)));
        {
            let mut flights = self.link.flights.lock();
            if let Some(ending) = &flights.ending {
                return Err(PostError::Closed(ending.clone()));
            }
            flights.waiting.push_back(Flight { id, touches, expected });
        }
        let frame = Frame { sequence: self.next_sequence, body };
        self.next_sequence += 1;
        let must_wake = {
            let mut outbox = self.link.outbox.lock();
            outbox.push_request(frame, payload);
            // A broken stream is the responder's to judge: it knows whether the peer said goodbye.
            let sent = outbox.send(self.link.socket.as_fd(), TCP_INLINE_BYTES_MAX);
            sent != Ok(Sent::All) && !outbox.responder_watches
        };
        if must_wake {
            self.link.responder_bell.ring();
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        if self.armed {
            self.armed = false;
            self.link.wake_up();
        }
        self.link.take(events);
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.link.application_bell.as_fd()
    }

    fn arm(&mut self) -> bool {
        let sleep = self.link.fall_asleep();
        self.armed = sleep;
        if !sleep {
            self.link.wake_up();
        }
        sleep
    }

    fn map_remote(&mut self, _span: RemoteSpan, _access: Access) -> Option<RawSlice> {
        None
    }

    fn spin_us(&self) -> u64 {
        TCP_SPIN_US
    }

    fn close(&mut self) {
        self.link
            .outbox
            .lock()
            .push_request(Frame { sequence: self.next_sequence, body: Body::Goodbye }, Payload::None);
        self.link.closing.store(true, Ordering::SeqCst);
        self.link.responder_bell.ring();
        if let Some(responder) = self.responder.take() {
            // The responder ends within CLOSE_TIME_MAX by itself; there is nothing to learn from how.
            let _ = responder.join();
        }
    }
}

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

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        time::{Duration, Instant},
    };

    use proptest::prelude::*;

    use super::*;
    use crate::error::Ending;

    /// A queue, and the stream of a peer that is free to break every rule.
    fn hostile() -> (TcpQueue, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (TcpQueue::new(ours.into()).unwrap(), theirs)
    }

    fn ending(queue: &mut TcpQueue) -> Ending {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut events = Vec::new();
        while Instant::now() < deadline {
            queue.poll(&mut events);
            if let Some(Event::Closed(ending)) = events.last() {
                return ending.clone();
            }
            std::thread::yield_now();
        }
        panic!("no ending; events: {events:?}");
    }

    #[test]
    fn an_answer_to_what_was_not_asked_is_a_violation() {
        use crate::tcp::frame::Refusal;
        for body in [
            Body::Acknowledge,
            Body::Found { value: 1 },
            Body::ReadData { length: 8 },
            Body::Refused(Refusal::UnknownKey),
        ] {
            let (mut queue, mut peer) = hostile();
            peer.write_all(&Frame { sequence: 0, body }.encode()).unwrap();
            assert!(matches!(ending(&mut queue), Ending::Violation { .. }), "{body:?}");
        }
    }

    #[test]
    fn an_answer_of_the_wrong_kind_is_a_violation_and_fails_the_request() {
        let region = Region::allocate(4096).unwrap();
        let remote = crate::region::RemoteRegion { key: 1, address: 0, length: 4096 };
        for body in [Body::Acknowledge, Body::Found { value: 1 }, Body::ReadData { length: 4095 }] {
            let (mut queue, mut peer) = hostile();
            queue
                .post(7, Operation::Read { source: remote, source_offset: 0, target: region.whole() })
                .unwrap();
            peer.write_all(&Frame { sequence: 0, body }.encode()).unwrap();
            let mut events = Vec::new();
            while !matches!(events.last(), Some(Event::Closed(Ending::Violation { .. }))) {
                queue.poll(&mut events);
            }
            assert!(matches!(events[0], Event::Completed { id: 7, outcome: Err(_) }), "{body:?}: {events:?}");
        }
    }

    #[test]
    fn requests_out_of_order_are_a_violation() {
        let (mut queue, mut peer) = hostile();
        peer.write_all(&Frame { sequence: 1, body: Body::Send { length: 0 } }.encode()).unwrap();
        assert!(matches!(ending(&mut queue), Ending::Violation { reason } if reason.contains("expected 0")));
    }

    #[test]
    fn a_peer_that_asks_for_ever_and_never_listens_is_cut_off() {
        let (mut queue, mut peer) = hostile();
        let region = Region::allocate(1 << 20).unwrap();
        queue.grant(1, &region, Access::Read).unwrap();
        peer.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        for sequence in 0..10_000 {
            let body = Body::Read { key: 1, address: 0, length: 1 << 20 };
            if peer.write_all(&Frame { sequence, body }.encode()).is_err() {
                break;
            }
        }
        assert!(matches!(ending(&mut queue), Ending::Violation { reason } if reason.contains("unanswered")));
    }

    #[test]
    fn messages_that_nobody_polls_stop_the_stream_and_not_the_process() {
        let (mut queue, mut peer) = hostile();
        peer.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut written = 0;
        for sequence in 0..100_000 {
            let body = Body::Send { length: 1024 };
            let mut bytes = Frame { sequence, body }.encode().to_vec();
            bytes.resize(bytes.len() + 1024, 9);
            if peer.write_all(&bytes).is_err() {
                break;
            }
            written += 1;
        }
        assert!(written < 5000, "{written} messages of 1 KiB were taken in");
        let mut events = Vec::new();
        queue.poll(&mut events);
        assert_eq!(events.len(), crate::limits::TCP_MESSAGES_QUEUED_MAX);
    }

    /// Frames that an honest peer could send, in an order and with fields that it would not.
    fn any_frame() -> impl Strategy<Value = Vec<u8>> {
        let fields = (0_u8..34, 0_u8..7, 0_u32..300, 0_u64..4, 0_u64..3, 0_u64..5000, any::<u64>());
        fields.prop_map(|(kind, detail, length, sequence, key, address, first)| {
            let mut frame = vec![kind, detail * u8::from(kind == 19), 0, 0];
            frame.extend_from_slice(&length.to_le_bytes());
            for word in [sequence, key, address, first, 0] {
                frame.extend_from_slice(&word.to_le_bytes());
            }
            if matches!(kind, 1 | 2 | 4 | 17) {
                frame.resize(frame.len() + length as usize, 0xAB);
            }
            frame
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn no_stream_of_frames_touches_what_was_not_granted(
            frames in proptest::collection::vec(any_frame(), 1..20),
            cut in 0_usize..200,
        ) {
            let (mut queue, mut peer) = hostile();
            let (secret, readable) = (Region::allocate(4096).unwrap(), Region::allocate(4096).unwrap());
            queue.grant(1, &readable, Access::Read).unwrap();
            queue.grant(2, &Region::allocate(4096).unwrap(), Access::ReadWrite).unwrap();
            let mut bytes = frames.concat();
            bytes.truncate(bytes.len().saturating_sub(cut));
            // The queue may have hung up before all of it is written.
            let _ = peer.write_all(&bytes);
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = ending(&mut queue);
            let _ = peer.read_to_end(&mut Vec::new());
            for region in [secret, readable] {
                prop_assert!(region.to_vec(0, 4096).unwrap().iter().all(|byte| *byte == 0));
            }
        }
    }
}

//! Implements the application's side of a `tcp` connection.
//!
//! `post` appends an operation to the outbox and sends at once what the socket accepts, at most
//! about `TCP_INLINE_BYTES_MAX`. The thread that drives the connection (see `drive`), this one or
//! the responder, sends the remainder. The peer executes the operation and answers; the driving
//! thread receives the answer, and `poll` finds the completion. While reads are unanswered, `post`
//! holds back an operation that is not a read, and all after it; the thread that receives the last
//! of those answers appends them to the outbox.
//!
//! Invariants
//! - Nothing here waits for the socket, except `close`, which waits for a limited time.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, MutexGuard},
    thread::JoinHandle,
};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{
    outbox::{Outbox, Sent},
    owner::{Owner, WakeSource},
    receive::Receiver,
    request::Request,
    responder,
    shared::SharedState,
};
use crate::{
    access::Access,
    completion::Event,
    doorbell::Doorbell,
    error::{PostError, RegisterError},
    inbox::Membership,
    limits::{TCP_INLINE_BYTES_MAX, TCP_SPIN_US},
    memory::RawSlice,
    operation::{Operation, RemoteSpan},
    region::{Region, RemoteRegion},
    wire::Queue,
};

/// The application's end of a `tcp` connection.
pub(super) struct TcpQueue {
    shared: Arc<SharedState>,
    responder: Option<JoinHandle<()>>,
    armed: bool,
    /// Set between `begin_batch` and `end_batch`, while requests are collected in the outbox.
    batching: bool,
    owner: Owner,
    /// Readable when the application's bell is readable or, while `on_socket`, the socket.
    watch: OwnedFd,
    on_socket: bool,
}

impl TcpQueue {
    /// Messages of the peer go to the inbox of `member`, or without one to the application's
    /// `poll`.
    pub(super) fn new(
        socket: OwnedFd,
        responder_bell: Arc<Doorbell>,
        member: Option<Membership>,
    ) -> io::Result<Self> {
        let shared = Arc::new(SharedState::new(socket, responder_bell, Receiver::new(member))?);
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, &shared.application_bell, EventData::new_u64(0), EventFlags::IN)?;
        let for_responder = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("fabric-tcp".to_owned()).stack_size(256 * 1024);
        let responder = thread.spawn(move || responder::run(&for_responder))?;
        let owner = Owner::default();
        Ok(Self {
            shared,
            responder: Some(responder),
            armed: false,
            batching: false,
            owner,
            watch,
            on_socket: false,
        })
    }

    /// Sets whether the socket wakes an owner that sleeps on `wait_fd`. Returns false if that
    /// fails.
    fn wake_on_socket(&mut self, wake: bool) -> bool {
        if self.on_socket != wake {
            let socket = &self.shared.socket;
            let changed = if wake {
                epoll::add(&self.watch, socket, EventData::new_u64(1), EventFlags::IN)
            } else {
                // Removed, because a socket that is watched for nothing would still report a
                // hang-up again and again.
                epoll::delete(&self.watch, socket)
            };
            if changed.is_err() {
                return false;
            }
            self.on_socket = wake;
        }
        true
    }

    /// Sends what the socket takes at once. The responder sends the remainder.
    fn send(&self, mut outbox: MutexGuard<'_, Outbox>) {
        // The responder handles a broken stream: it knows whether the peer said goodbye.
        let sent = outbox.send(self.shared.socket.as_fd(), TCP_INLINE_BYTES_MAX);
        let must_wake =
            sent != Ok(Sent::All) && !outbox.responder_watches && !self.shared.drive.owner_drives();
        drop(outbox);
        if must_wake {
            self.shared.responder_bell.ring();
        }
    }
}

impl Queue for TcpQueue {
    fn grant(&mut self, key: u64, region: &Region, access: Access) -> Result<RemoteRegion, RegisterError> {
        if let Some(ending) = self.shared.flights.lock().ending() {
            return Err(RegisterError::Closed(ending.clone()));
        }
        self.shared.grants.grant(key, region, access);
        Ok(RemoteRegion { key, address: 0, length: region.bytes() as u64 })
    }

    fn revoke(&mut self, key: u64) -> Result<(), RegisterError> {
        self.shared.grants.revoke(key);
        Ok(())
    }

    fn wake_on_write(&mut self, key: u64) {
        self.shared.grants.wake_on_write(key);
    }

    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        if let Some(outbox) = self.shared.post(Request::new(id, &operation)?)?
            && !self.batching
        {
            self.send(outbox);
        }
        Ok(())
    }

    fn begin_batch(&mut self) {
        self.batching = true;
    }

    fn end_batch(&mut self) {
        self.batching = false;
        self.send(self.shared.outbox.lock());
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        if std::mem::take(&mut self.armed) {
            self.shared.wake_up();
            self.owner.woken();
        }
        let before = events.len();
        self.shared.take(events);
        let found = events.len() > before;
        if self.owner.poll_socket(&self.shared, found) && !found {
            self.shared.take(events);
        }
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn arm(&mut self) -> bool {
        // Announced first: from here on the responder does not take over because of missing polls.
        self.shared.drive.announce_owner_sleep();
        let wake_source = self.owner.prepare_sleep(&self.shared);
        let is_watched = self.wake_on_socket(wake_source == WakeSource::Socket);
        let sleep = wake_source != WakeSource::Nothing && is_watched && self.shared.fall_asleep();
        self.armed = sleep;
        if !sleep {
            self.shared.wake_up();
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
        self.shared.close();
        if let Some(responder) = self.responder.take() {
            // The responder ends by itself within CLOSE_TIME_MAX. How it ended does not matter.
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
    use crate::{
        error::Ending,
        operation::Report,
        tcp::frame::{Body, FRAME_BYTES, Frame},
    };

    /// A queue, and the stream of a peer that is free to break every rule.
    fn hostile() -> (TcpQueue, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let bell = Arc::new(Doorbell::new().unwrap());
        (TcpQueue::new(ours.into(), bell, None).unwrap(), theirs)
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
    fn a_batch_goes_out_at_its_end_in_one_piece() {
        let (mut queue, mut peer) = hostile();
        peer.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 16];
        queue.begin_batch();
        for id in 0..20 {
            queue.post(id, Operation::Send { bytes: &[1; 100] }).unwrap();
        }
        let early = peer.read(&mut bytes).map_err(|e| e.kind());
        assert_eq!(early, Err(std::io::ErrorKind::WouldBlock));
        queue.end_batch();
        assert_eq!(peer.read(&mut bytes).unwrap(), 20 * (100 + FRAME_BYTES));
    }

    fn next_frame(peer: &mut UnixStream) -> Frame {
        let mut bytes = [0; FRAME_BYTES];
        peer.read_exact(&mut bytes).unwrap();
        Frame::decode(&bytes).unwrap()
    }

    /// A read, and after it a message, a read, a write, and a read.
    fn post_behind_a_read(queue: &mut TcpQueue, region: &Region) {
        let remote = RemoteRegion { key: 1, address: 0, length: 4096 };
        let read =
            || Operation::Read { source: remote, source_offset: 0, target: region.slice(0, 8).unwrap() };
        queue.post(1, read()).unwrap();
        let mut bytes = *b"at post";
        queue.post(2, Operation::Send { bytes: &bytes }).unwrap();
        bytes.fill(0);
        queue.post(3, read()).unwrap();
        queue.post(4, Operation::WriteBytes { bytes: b"x", target: remote, target_offset: 0 }).unwrap();
        queue.post(5, read()).unwrap();
    }

    fn assert_silent(peer: &mut UnixStream) {
        let time = peer.read_timeout().unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let found = peer.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(found, Err(std::io::ErrorKind::WouldBlock));
        peer.set_read_timeout(time).unwrap();
    }

    fn answer_read(peer: &mut UnixStream, sequence: u64) {
        let mut bytes = Frame { sequence, body: Body::ReadData { length: 8 } }.encode().to_vec();
        bytes.extend_from_slice(&[7; 8]);
        peer.write_all(&bytes).unwrap();
    }

    #[test]
    fn operations_posted_behind_a_read_are_sent_in_order_when_the_read_is_answered_and_nobody_polls() {
        let (mut queue, mut peer) = hostile();
        let region = Region::allocate(4096).unwrap();
        post_behind_a_read(&mut queue, &region);
        assert!(matches!(next_frame(&mut peer), Frame { sequence: 0, body: Body::Read { .. } }));
        assert_silent(&mut peer);
        answer_read(&mut peer, 0);
        assert!(matches!(next_frame(&mut peer), Frame { sequence: 1, body: Body::Send { length: 7, .. } }));
        let mut bytes = [0; 7];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"at post");
        assert!(matches!(next_frame(&mut peer), Frame { sequence: 2, body: Body::Read { .. } }));
        assert_silent(&mut peer);
        // A refusal is an answer too.
        peer.write_all(&Frame { sequence: 1, body: Body::Acknowledge }.encode()).unwrap();
        let refusal = Body::Refused(crate::tcp::frame::Refusal::UnknownKey);
        peer.write_all(&Frame { sequence: 2, body: refusal }.encode()).unwrap();
        assert!(matches!(next_frame(&mut peer), Frame { sequence: 3, body: Body::Write { length: 1, .. } }));
        peer.read_exact(&mut [0]).unwrap();
        assert!(matches!(next_frame(&mut peer), Frame { sequence: 4, body: Body::Read { .. } }));
    }

    #[test]
    fn a_sleeper_whose_responder_drives_is_woken_by_a_write_that_it_waits_for_and_by_no_other() {
        use rustix::event::{PollFd, PollFlags, Timespec};
        let (mut queue, mut peer) = hostile();
        let region = Region::allocate(4096).unwrap();
        for key in [7, 8] {
            queue.grant(key, &region, Access::Write).unwrap();
        }
        queue.wake_on_write(7);
        let shared = Arc::clone(&queue.shared);
        let busy = shared.drive.receiver();
        assert!(queue.arm(), "the responder has the receiver, so it will drive");
        drop(busy);
        let mut woken = |sequence, key| {
            let body = Body::Write { key, address: 0, length: 1 };
            peer.write_all(&[&Frame { sequence, body }.encode()[..], b"x"].concat()).unwrap();
            let done = Frame { sequence, body: Body::Acknowledge };
            assert_eq!(next_frame(&mut peer), done);
            let mut bell = [PollFd::new(&shared.application_bell, PollFlags::IN)];
            rustix::event::poll(&mut bell, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        assert!(!woken(0, 8), "a write elsewhere");
        assert!(woken(1, 7));
    }

    #[test]
    fn a_word_that_comes_in_parts_is_stored_whole() {
        let (mut queue, mut peer) = hostile();
        let region = Region::allocate(4096).unwrap();
        queue.grant(7, &region, Access::Write).unwrap();
        let word = 0x0102_0304_0506_0708_u64.to_le_bytes();
        let bodies = [
            Body::Write { key: 7, address: 16, length: 8 },
            Body::WriteImmediate { key: 7, address: 24, length: 8, immediate: 1 },
        ];
        for (sequence, body) in (0..).zip(bodies) {
            peer.write_all(&[&Frame { sequence, body }.encode()[..], &word[..5]].concat()).unwrap();
            // Time for the first half to be received. That nothing is stored cannot be waited for.
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(region.load_u64(16 + 8 * usize::try_from(sequence).unwrap()).unwrap(), 0);
            peer.write_all(&word[5..]).unwrap();
            assert_eq!(next_frame(&mut peer), Frame { sequence, body: Body::Acknowledge });
        }
        assert_eq!(region.to_vec(8, 32).unwrap(), [&[0; 8][..], &word, &word, &[0; 8]].concat());
    }

    #[test]
    fn reads_do_not_wait_for_each_other_and_nothing_waits_for_atomics() {
        let (mut queue, mut peer) = hostile();
        let region = Region::allocate(4096).unwrap();
        let remote = RemoteRegion { key: 1, address: 0, length: 4096 };
        let word = region.slice(0, 8).unwrap();
        queue.post(0, Operation::FetchAdd { target: remote, target_offset: 0, add: 1 }).unwrap();
        queue.post(1, Operation::Send { bytes: b"" }).unwrap();
        for id in 2..4 {
            let read = Operation::Read { source: remote, source_offset: 0, target: word.clone() };
            queue.post(id, read).unwrap();
        }
        for sequence in 0..4 {
            assert_eq!(next_frame(&mut peer).sequence, sequence);
        }
        // Both reads must be answered, not only one.
        queue.post(4, Operation::FetchAdd { target: remote, target_offset: 0, add: 1 }).unwrap();
        peer.write_all(&Frame { sequence: 0, body: Body::Found { value: 0 } }.encode()).unwrap();
        peer.write_all(&Frame { sequence: 1, body: Body::Acknowledge }.encode()).unwrap();
        answer_read(&mut peer, 2);
        assert_silent(&mut peer);
        answer_read(&mut peer, 3);
        assert!(matches!(next_frame(&mut peer), Frame { sequence: 4, body: Body::FetchAdd { .. } }));
    }

    #[test]
    fn held_requests_fail_in_order_behind_those_in_flight() {
        let (mut queue, peer) = hostile();
        let region = Region::allocate(4096).unwrap();
        post_behind_a_read(&mut queue, &region);
        drop(peer);
        let mut events = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !matches!(events.last(), Some(Event::Closed(Ending::Lost { .. }))) {
            assert!(Instant::now() < deadline, "no ending; events: {events:?}");
            queue.poll(&mut events);
        }
        let failed = |event: &Event| match event {
            Event::Completed { id, outcome: Err(_) } => *id,
            other => panic!("{other:?}"),
        };
        assert_eq!(events[..5].iter().map(failed).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!((events.len(), region.holders()), (6, 1));
    }

    #[test]
    fn a_goodbye_is_sent_behind_held_requests() {
        let (mut queue, mut peer) = hostile();
        let region = Region::allocate(4096).unwrap();
        post_behind_a_read(&mut queue, &region);
        // Messages that nobody will poll must not block the answers.
        for sequence in 0..1 + crate::limits::TCP_MESSAGES_QUEUED_MAX as u64 {
            let body = Body::Send { length: 0, report: Report::PerMessage };
            peer.write_all(&Frame { sequence, body }.encode()).unwrap();
        }
        while queue.shared.has_room_for_message(0) {
            std::thread::yield_now();
        }
        let closer = std::thread::spawn(move || queue.close());
        let mut said = Vec::new();
        loop {
            let frame = next_frame(&mut peer);
            match frame.body {
                Body::Read { .. } => answer_read(&mut peer, frame.sequence),
                Body::Send { length, .. } | Body::Write { length, .. } => {
                    peer.read_exact(&mut vec![0; length as usize]).unwrap();
                    peer.write_all(&Frame { sequence: frame.sequence, body: Body::Acknowledge }.encode())
                        .unwrap();
                }
                Body::Goodbye => break said.push(frame.sequence),
                _ => continue,
            }
            said.push(frame.sequence);
        }
        // The last read is in flight when the goodbye is sent, as it would be without the others.
        assert_eq!(said, [0, 1, 2, 3, 4, 5]);
        drop(peer);
        closer.join().unwrap();
    }

    #[test]
    fn closing_with_a_read_that_is_never_answered_takes_a_limited_time() {
        let (mut queue, _peer) = hostile();
        let region = Region::allocate(4096).unwrap();
        post_behind_a_read(&mut queue, &region);
        let started = Instant::now();
        queue.close();
        let time = started.elapsed();
        assert!(time < 4 * crate::limits::CLOSE_TIME_MAX, "{time:?}");
    }

    #[test]
    fn requests_out_of_order_are_a_violation() {
        let (mut queue, mut peer) = hostile();
        peer.write_all(
            &Frame { sequence: 1, body: Body::Send { length: 0, report: Report::PerMessage } }.encode(),
        )
        .unwrap();
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
            let body = Body::Send { length: 1024, report: Report::PerMessage };
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

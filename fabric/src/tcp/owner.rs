//! Lets the connection's owner receive instead of the responder: polls the socket, and prepares to
//! sleep on it.

use std::sync::atomic::Ordering;

use super::{
    receive::{Pause, Receiver},
    shared::SharedState,
};
use crate::limits::TCP_OWNER_POLLS;

/// What will wake an owner that is about to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeSource {
    /// The socket: there is nothing to receive.
    Socket,
    /// The responder, which receives from now on.
    Responder,
    /// Nothing: there is more to receive, so it must not sleep.
    Nothing,
}

/// The owner's counters of polls in vain.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// Consecutive polls that found nothing while the responder drove.
    idle_polls: u32,
    /// Consecutive polls that found nothing while the owner drove.
    idle_socket_polls: u32,
}

/// After so many polls of the socket that found nothing, only one poll in
/// `POLLS_PER_RARE_SOCKET_POLL` makes a system call.
const SOCKET_POLLS_BEFORE_RARE: u32 = 64;
const POLLS_PER_RARE_SOCKET_POLL: u32 = 8;

/// After so many polls of the socket that found nothing, acknowledgements no longer wait for
/// another frame.
const SOCKET_POLLS_BEFORE_FLUSH: u32 = 8;

impl Owner {
    /// Receives from the socket, if the owner drives or should by now. `found`: this poll has
    /// already found something. Returns whether there may be something new.
    pub(super) fn poll_socket(&mut self, shared: &SharedState, found: bool) -> bool {
        if !shared.drive.owner_drives() {
            self.idle_polls = if found { 0 } else { self.idle_polls + 1 };
            if self.idle_polls < TCP_OWNER_POLLS {
                return false;
            }
            self.idle_polls = 0;
            self.take_over(shared);
        }
        // Counted before the lock is tried: if the responder holds it, the responder receives, and
        // the owner need not.
        shared.drive.owner_polls.fetch_add(1, Ordering::Relaxed);
        if self.idle_socket_polls >= SOCKET_POLLS_BEFORE_RARE
            && !self.idle_socket_polls.is_multiple_of(POLLS_PER_RARE_SOCKET_POLL)
        {
            // A system call for each of many silent connections would delay the others.
            self.idle_socket_polls = self.idle_socket_polls.wrapping_add(1).max(SOCKET_POLLS_BEFORE_RARE);
            return false;
        }
        let Some(mut receiver) = shared.drive.receiver.try_lock() else { return false };
        receiver.as_mut().is_some_and(|receiver| {
            self.receive(shared, receiver);
            self.idle_socket_polls == 0
        })
    }

    /// Notes that the owner was woken from a sleep on the connection's descriptor, so there may be
    /// something.
    pub(super) fn woken(&mut self) {
        self.idle_socket_polls = 0;
    }

    fn take_over(&self, shared: &SharedState) {
        if shared.drive.let_owner_drive() {
            shared.responder_bell.ring();
        }
    }

    /// Receives what there is. Answers are sent at once; acknowledgements are sent with what is
    /// posted next.
    fn receive(&mut self, shared: &SharedState, receiver: &mut Receiver) -> Option<Pause> {
        let pause =
            match receiver.receive(shared).and_then(|pause| receiver.acknowledge(shared).map(|()| pause)) {
                Ok(pause) => pause,
                Err(ending) => {
                    receiver.fail(ending);
                    shared.drive.let_responder_drive();
                    shared.responder_bell.ring();
                    return None;
                }
            };
        self.idle_socket_polls =
            if receiver.take_activity() { 0 } else { self.idle_socket_polls.wrapping_add(1) };
        let is_time =
            self.idle_socket_polls > 0 && self.idle_socket_polls.is_multiple_of(SOCKET_POLLS_BEFORE_FLUSH);
        if is_time || !shared.outbox.lock().holds_only_acknowledgements() {
            shared.flush();
        }
        Some(pause)
    }

    /// Before the owner sleeps: receives what there is, and returns what will wake it.
    pub(super) fn prepare_sleep(&mut self, shared: &SharedState) -> WakeSource {
        let wake_source = self.try_prepare_sleep(shared);
        if wake_source == WakeSource::Responder && shared.drive.owner_drives() {
            shared.drive.let_responder_drive();
            shared.responder_bell.ring();
        }
        wake_source
    }

    fn try_prepare_sleep(&mut self, shared: &SharedState) -> WakeSource {
        // The responder is receiving, or the connection has ended, which the responder reports.
        let Some(mut receiver) = shared.drive.receiver.try_lock() else { return WakeSource::Responder };
        let Some(receiver) = receiver.as_mut() else { return WakeSource::Responder };
        self.take_over(shared);
        shared.drive.owner_polls.fetch_add(1, Ordering::Relaxed);
        match self.receive(shared, receiver) {
            Some(Pause::TakeTurns) => WakeSource::Nothing,
            // Frames that cannot be sent now, or messages without room, need the responder to wait
            // for them.
            Some(Pause::Drained) if shared.flush() => WakeSource::Socket,
            Some(Pause::Drained | Pause::MessagesFull) | None => WakeSource::Responder,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        sync::Arc,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{
        access::Access,
        doorbell::Doorbell,
        limits::TCP_NAP_MAX,
        region::Region,
        tcp::{
            frame::{Body, FRAME_BYTES, Frame},
            queue::TcpQueue,
        },
        wire::Queue,
    };

    const KEY: u64 = 7;
    /// Far more than a nap.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A queue that lets its peer read a region, and the stream of that peer.
    fn connection() -> (TcpQueue, Region, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut queue = TcpQueue::new(ours.into(), Arc::new(Doorbell::new().unwrap()), None).unwrap();
        let region = Region::allocate(4096).unwrap();
        queue.grant(KEY, &region, Access::Read).unwrap();
        (queue, region, theirs)
    }

    /// The peer reads 8 bytes and waits for them.
    fn read_as_peer(peer: &mut UnixStream, sequence: u64) -> std::io::Result<()> {
        let body = Body::Read { key: KEY, address: 0, length: 8 };
        peer.write_all(&Frame { sequence, body }.encode())?;
        peer.read_exact(&mut [0; FRAME_BYTES + 8])
    }

    fn poll_in_vain(queue: &mut TcpQueue) {
        for _ in 0..10 * TCP_OWNER_POLLS {
            queue.poll(&mut Vec::new());
        }
    }

    #[test]
    fn a_peer_is_served_when_the_owner_polls_no_more() {
        let (mut queue, _region, mut peer) = connection();
        for sequence in 0..5 {
            poll_in_vain(&mut queue);
            read_as_peer(&mut peer, sequence).unwrap();
        }
    }

    #[test]
    fn a_peer_is_served_when_the_owner_wakes_from_a_long_sleep_and_does_something_else() {
        let (mut queue, _region, mut peer) = connection();
        assert!(queue.arm());
        // Until the responder sleeps as long as the owner does.
        std::thread::sleep(4 * TCP_NAP_MAX);
        queue.poll(&mut Vec::new());
        read_as_peer(&mut peer, 0).unwrap();
    }

    #[test]
    fn what_the_socket_did_not_take_goes_out_when_the_owner_polls_no_more() {
        let (mut queue, region, mut peer) = connection();
        poll_in_vain(&mut queue);
        let remote = crate::region::RemoteRegion { key: 1, address: 0, length: 4096 };
        let (each, count) = (FRAME_BYTES + 4096, 200);
        for id in 0..count {
            let write = crate::operation::Operation::Write {
                source: region.whole(),
                target: remote,
                target_offset: 0,
            };
            queue.post(id, write).unwrap();
        }
        let began = Instant::now();
        peer.read_exact(&mut vec![0; each * usize::try_from(count).unwrap()]).unwrap();
        assert!(began.elapsed() < PATIENCE);
    }
}

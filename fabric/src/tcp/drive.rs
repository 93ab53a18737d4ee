//! Who takes in what arrives: the responder's thread, or the connection's owner?
//!
//! An owner that polls, or that sleeps on the connection's descriptor, takes it in itself: nothing
//! is handed from thread to thread, and what it owes the peer goes out with what it posts next. The
//! responder takes over when the owner does neither.
//!
//! ```text
//! responder --- the owner has polled in vain OWNER_POLLS times, or arms ---> owner
//! owner ------- no poll for a nap of the responder, or something must be waited for that is not the socket ---> responder
//! ```
//!
//! Invariants
//! - Only who holds the receiver's lock takes anything in. The owner never waits for the lock, and
//!   nobody sleeps or yields with it.
//! - The owner drives only while it polls, or sleeps with the socket among what wakes it. Whoever
//!   finds that this is no longer so makes the responder drive and wakes it.
//! - How a connection ended is said by the responder; an owner that notices it leaves word in the
//!   receiver.

use std::{
    sync::{
        MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    link::Link,
    receive::{Pause, Receiver},
};
use crate::{
    guarded::Guarded,
    limits::{TCP_NAP_MAX, TCP_NAP_MIN, TCP_OWNER_POLLS},
};

/// See the file's head.
#[derive(Debug)]
pub(super) struct Drive {
    /// Until the connection has ended.
    receiver: Guarded<Option<Receiver>>,
    by_owner: AtomicBool,
    /// Looks of the owner at what arrives.
    looks: AtomicU32,
    /// The owner sleeps on the connection's descriptor.
    owner_sleeps: AtomicBool,
    /// The responder sleeps as long as the owner does.
    responder_sleeps: AtomicBool,
}

/// What became of an owner's wish to sleep until the socket has something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing is there: the socket will wake it.
    OnSocket,
    /// The responder takes in what comes, and will wake it.
    OnResponder,
    /// There is more to take in.
    Not,
}

impl Drive {
    pub(super) fn new(receiver: Receiver) -> Self {
        Self {
            receiver: Guarded::new(Some(receiver)),
            by_owner: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            owner_sleeps: AtomicBool::new(false),
            responder_sleeps: AtomicBool::new(false),
        }
    }

    /// Responder: the receiver, until the connection has ended.
    pub(super) fn receiver(&self) -> MutexGuard<'_, Option<Receiver>> {
        self.receiver.lock()
    }

    /// Whether the owner drives.
    pub(super) fn is_by_owner(&self) -> bool {
        self.by_owner.load(Ordering::SeqCst)
    }

    /// From now on the responder drives. Wake it if this is not the responder.
    pub(super) fn by_responder(&self) {
        self.by_owner.store(false, Ordering::SeqCst);
    }

    /// Owner: it is about to sleep on the connection's descriptor.
    pub(super) fn owner_sleeps(&self) {
        self.owner_sleeps.store(true, Ordering::SeqCst);
    }

    /// Owner: it is awake. True if the responder must be woken, to look after it again.
    pub(super) fn owner_is_awake(&self) -> bool {
        // Said first, looked after; the responder does the two in the other order.
        self.owner_sleeps.store(false, Ordering::SeqCst);
        self.responder_sleeps.swap(false, Ordering::SeqCst)
    }

    /// Owner: it drives from now on. True if the responder drove until now and must be told.
    fn by_owner(&self) -> bool {
        !self.is_by_owner() && !self.by_owner.swap(true, Ordering::SeqCst)
    }
}

/// How the responder watches over an owner that drives.
#[derive(Debug)]
pub(super) struct Watchman {
    looks_seen: u32,
    nap: Duration,
}

impl Watchman {
    pub(super) fn new() -> Self {
        Self { looks_seen: 0, nap: TCP_NAP_MIN }
    }

    /// How long the responder sleeps before it looks again; `None` if until it is woken.
    pub(super) fn nap(&self, drive: &Drive) -> Option<Duration> {
        if self.nap < TCP_NAP_MAX {
            return Some(self.nap);
        }
        drive.responder_sleeps.store(true, Ordering::SeqCst);
        if drive.owner_sleeps.load(Ordering::SeqCst) {
            return None;
        }
        drive.responder_sleeps.store(false, Ordering::SeqCst);
        Some(self.nap)
    }

    /// After a nap: is the owner still driving? If not, the responder drives from now on.
    pub(super) fn look(&mut self, drive: &Drive) {
        let looks = drive.looks.load(Ordering::SeqCst);
        if looks != self.looks_seen {
            self.looks_seen = looks;
            self.nap = TCP_NAP_MIN;
        } else if drive.owner_sleeps.load(Ordering::SeqCst) {
            self.nap = (2 * self.nap).min(TCP_NAP_MAX);
        } else {
            drive.by_responder();
        }
    }
}

/// The owner's part in driving.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// Polls that found nothing while the responder drove, since there was something.
    idle_polls: u32,
    /// Polls of an owner that drives that found nothing, since there was something.
    idle_looks: u32,
}

/// After so many looks that took in nothing, only every so many-th poll looks.
const LOOKS_BEFORE_RARE: u32 = 64;
const POLLS_PER_RARE_LOOK: u32 = 8;

/// Looks that take in nothing before acknowledgements no longer wait for something to travel with.
const LOOKS_BEFORE_FLUSH: u32 = 8;

impl Owner {
    /// Takes in what has arrived, if the owner drives or should by now. `found`: there was
    /// something to poll already. Returns whether there may be something now.
    pub(super) fn look(&mut self, link: &Link, found: bool) -> bool {
        if !link.drive.is_by_owner() {
            self.idle_polls = if found { 0 } else { self.idle_polls + 1 };
            if self.idle_polls < TCP_OWNER_POLLS {
                return false;
            }
            self.idle_polls = 0;
            self.take_over(link);
        }
        // Before the lock is tried: a responder that holds it has made the owner's look needless.
        link.drive.looks.fetch_add(1, Ordering::Relaxed);
        if self.idle_looks >= LOOKS_BEFORE_RARE && !self.idle_looks.is_multiple_of(POLLS_PER_RARE_LOOK) {
            // A system call for each of many silent connections would keep others waiting.
            self.idle_looks = self.idle_looks.wrapping_add(1).max(LOOKS_BEFORE_RARE);
            return false;
        }
        let Some(mut receiver) = link.drive.receiver.try_lock() else { return false };
        receiver.as_mut().is_some_and(|receiver| {
            self.take_in(link, receiver);
            self.idle_looks == 0
        })
    }

    /// Woken from a sleep on the connection's descriptor: there may be something.
    pub(super) fn woken(&mut self) {
        self.idle_looks = 0;
    }

    fn take_over(&self, link: &Link) {
        if link.drive.by_owner() {
            link.responder_bell.ring();
        }
    }

    /// Takes in what there is; what is owed to the peer goes out at once if somebody waits for it,
    /// or else with what is posted next.
    fn take_in(&mut self, link: &Link, receiver: &mut Receiver) -> Option<Pause> {
        let pause = match receiver.receive(link).and_then(|pause| receiver.acknowledge(link).map(|()| pause))
        {
            Ok(pause) => pause,
            Err(ending) => {
                receiver.fail(ending);
                link.drive.by_responder();
                link.responder_bell.ring();
                return None;
            }
        };
        self.idle_looks = if receiver.take_activity() { 0 } else { self.idle_looks.wrapping_add(1) };
        let is_time = self.idle_looks > 0 && self.idle_looks.is_multiple_of(LOOKS_BEFORE_FLUSH);
        if is_time || !link.outbox.lock().holds_only_acknowledgements() {
            link.flush();
        }
        Some(pause)
    }

    /// Before the owner sleeps: takes in what there is, and finds out what will wake it.
    pub(super) fn rest(&mut self, link: &Link) -> Rest {
        let rest = self.try_rest(link);
        if rest == Rest::OnResponder && link.drive.is_by_owner() {
            link.drive.by_responder();
            link.responder_bell.ring();
        }
        rest
    }

    fn try_rest(&mut self, link: &Link) -> Rest {
        // The responder is at work, or the connection has ended: it will say so.
        let Some(mut receiver) = link.drive.receiver.try_lock() else { return Rest::OnResponder };
        let Some(receiver) = receiver.as_mut() else { return Rest::OnResponder };
        self.take_over(link);
        link.drive.looks.fetch_add(1, Ordering::Relaxed);
        match self.take_in(link, receiver) {
            Some(Pause::TakeTurns) => Rest::Not,
            // What cannot be sent now, or has no room, needs somebody who waits for that.
            Some(Pause::Drained) if link.flush() => Rest::OnSocket,
            Some(Pause::Drained | Pause::MessagesFull) | None => Rest::OnResponder,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        sync::Arc,
        time::Instant,
    };

    use super::*;
    use crate::{
        doorbell::Doorbell,
        region::{Access, Region},
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

//! Accepts callers and runs their handshakes, so that no caller delays another.
//!
//! One thread accepts callers and reads from all of them, without waiting for any
//! (`handshake::Answering`). Another thread sets up the connection of a caller that has proved the
//! cluster key, because the set-up may take a while on some wires.
//!
//! Invariants
//! - `Strangers` bounds the cost of callers that have not proved the key: a descriptor and some
//!   hundred bytes each.
//! - If the process has no descriptor left, such a caller is dropped to free its descriptor. If
//!   there is none to drop, the thread pauses accepting.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use az::SaturatingAs;
use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    io::Errno,
    net::SocketFlags,
    process::Resource,
};

use super::{
    arrivals::Arrivals,
    strangers::{Origin, Strangers},
};
use crate::{
    address::Wire,
    error::ConnectError,
    handshake::Answering,
    limits::{
        ACCEPT_REST, ACCEPTS_PER_TURN_MAX, HANDSHAKE_TIME_MAX, STRANGERS_DESCRIPTOR_SHARE,
        STRANGERS_PER_CLASS_MAX, STRANGERS_PER_CLASS_MIN,
    },
    shm, tcp,
};

/// Names of the other watched descriptors; those of callers count up from 0.
const SOCKET: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

const EVENTS_PER_TURN: usize = 64;

/// A caller that has not proved the cluster key.
#[derive(Debug)]
struct Caller {
    socket: OwnedFd,
    answering: Answering,
}

/// The state of the accepting thread.
#[derive(Debug)]
pub(super) struct Acceptor {
    socket: OwnedFd,
    watch: OwnedFd,
    arrivals: Arc<Arrivals>,
    strangers: Strangers<Caller>,
    /// The time until which the socket is not watched, because the process has no descriptors.
    rests_until: Option<Instant>,
}

/// The maximum number of callers per class, which leaves most descriptors of the process to others.
fn class_max() -> usize {
    // No limit counts as the largest number; the result is clamped in any case.
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let share = (limit / STRANGERS_DESCRIPTOR_SHARE).saturating_as::<usize>();
    share.clamp(STRANGERS_PER_CLASS_MIN, STRANGERS_PER_CLASS_MAX)
}

impl Acceptor {
    pub(super) fn new(socket: OwnedFd, arrivals: Arc<Arrivals>) -> io::Result<Self> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, &socket, EventData::new_u64(SOCKET), EventFlags::IN)?;
        epoll::add(&watch, &arrivals.stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let strangers = Strangers::new(class_max(), HANDSHAKE_TIME_MAX);
        Ok(Self { socket, watch, arrivals, strangers, rests_until: None })
    }

    /// Accepts callers until the listener is dropped.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        loop {
            events.clear();
            let timeout = self.timeout();
            // However the wait ends, everything is checked.
            let _ = epoll::wait(&self.watch, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if self.arrivals.stopping.load(Ordering::SeqCst) {
                return;
            }
            let mut called = false;
            for event in &events {
                match event.data.u64() {
                    SOCKET => called = true,
                    STOP => {}
                    name => self.listen_to(name),
                }
            }
            if called {
                self.accept();
            }
            self.check_deadlines();
        }
    }

    /// How long there is nothing to do if no caller sends anything.
    fn timeout(&self) -> Option<Timespec> {
        let complaints = self.arrivals.complaints.lock().deadline();
        let next = [self.strangers.deadline(), self.rests_until, complaints].into_iter().flatten().min()?;
        // Rounded up, so that the deadline has passed when the wait ends.
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec::try_from(left).ok()
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        while let Some(caller) = self.strangers.expire(now) {
            let (peer, phase) = (caller.answering.peer().to_owned(), caller.answering.phase());
            self.arrivals.refuse(ConnectError::TimedOut { peer, phase });
        }
        if self.rests_until.is_some_and(|until| until <= now) {
            self.watch_socket(true);
        }
        self.arrivals.complaints.lock().end_period_if_over(now);
    }

    fn watch_socket(&mut self, watch: bool) {
        let flags = if watch { EventFlags::IN } else { EventFlags::empty() };
        self.rests_until = (!watch).then(|| Instant::now() + ACCEPT_REST);
        // If this fails, the socket stays watched or unwatched as before. Then the thread wakes too
        // often, or tries again when the time is over.
        let _ = epoll::modify(&self.watch, &self.socket, EventData::new_u64(SOCKET), flags);
    }

    /// Accepts some of the callers that wait. The others wait until those that were accepted have
    /// been read from.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::acceptfrom_with(&self.socket, flags) {
                Ok((socket, from)) => {
                    let identified = match self.arrivals.wire {
                        Wire::Shm => shm::identify(&socket),
                        wire => Ok(tcp::identify(from, wire)),
                    };
                    match identified {
                        Ok((origin, peer)) => self.admit(socket, origin, peer),
                        Err(error) => self.arrivals.refuse(error),
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return self.cannot_accept(error),
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd, origin: Origin, peer: String) {
        let name = self.strangers.next_name();
        if let Err(error) = epoll::add(&self.watch, &socket, EventData::new_u64(name), EventFlags::IN) {
            let source = io::Error::from(error);
            return self.arrivals.refuse(ConnectError::Os { action: "listen to a caller", peer, source });
        }
        let caller = Caller { socket, answering: Answering::new(self.arrivals.wire, peer) };
        let dropped = self.strangers.add(caller, origin, Instant::now());
        self.crowded_out(dropped);
        // Its first bytes are read at once, so that a caller that has sent a hello never counts as
        // silent.
        self.listen_to(name);
    }

    /// Handles a failure of accept, most likely a lack of descriptors.
    fn cannot_accept(&mut self, error: Errno) {
        let spared = self.strangers.remove_first();
        if spared.is_some() {
            return self.crowded_out(spared);
        }
        let peer = "a caller that waits".to_owned();
        let source = io::Error::from(error);
        self.arrivals.refuse(ConnectError::Os { action: "accept a connection", peer, source });
        self.watch_socket(false);
    }

    fn crowded_out(&self, dropped: Option<Caller>) {
        if let Some(dropped) = dropped {
            let (peer, waiting) = (dropped.answering.peer().to_owned(), self.strangers.len());
            self.arrivals.refuse(ConnectError::CrowdedOut { peer, waiting });
        }
    }

    /// Reads from a caller.
    fn listen_to(&mut self, name: u64) {
        let Some(caller) = self.strangers.get_mut(name) else { return };
        let heard = caller.answering.advance(caller.socket.as_fd(), &self.arrivals.key);
        match heard {
            Ok(false) if caller.answering.has_begun() => {
                let dropped = self.strangers.mark_speaking(name);
                self.crowded_out(dropped);
            }
            Ok(false) => {}
            Ok(true) => {
                let Some(caller) = self.strangers.remove(name) else { return };
                // From now on it is watched by its next owner.
                let _ = epoll::delete(&self.watch, &caller.socket);
                self.arrivals.set_up(caller.socket, caller.answering.peer().to_owned());
            }
            Err(error) => {
                self.strangers.remove(name);
                // A process that only checks whether anybody listens (as `shm::bind` does) hangs up
                // at once. That is not reported.
                if !matches!(error, ConnectError::HungUp { phase: "hello", .. }) {
                    self.arrivals.refuse(error);
                }
            }
        }
    }
}

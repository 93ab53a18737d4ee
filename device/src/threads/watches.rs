//! The descriptors that a thread watches while it waits for its workers.
//!
//! One epoll instance contains them, together with the event descriptor of
//! [`super::completion_queue`] (the bell).
//!
//! Invariants
//! - A watch has its own duplicate of the descriptor, so one file can be watched several times, and
//!   the caller may close its descriptor.
//! - A watch that has ended or was removed delivers nothing; the generation in its [`WatchId`]
//!   shows that the id is old.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::error::SubmitError;
use crate::limits::WATCHES_PER_RING_MAX;
use crate::request::{Completion, Interest, Readiness, Repeat, Token, Watch, WatchId};

/// The bell's identifier in the epoll.
const BELL: u64 = u64::MAX;
/// Maximum number of events that one system call returns.
const EVENTS: usize = 64;

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    armed: Option<Armed>,
}

#[derive(Debug)]
struct Armed {
    fd: OwnedFd,
    token: Token,
    repeat: Repeat,
}

/// All watches of one thread.
pub(super) struct Watches {
    epoll: OwnedFd,
    entries: Vec<Entry>,
    free: Vec<u32>,
    armed: u32,
    events: Vec<epoll::Event>,
}

impl Watches {
    /// A table without watches; its epoll has the bell.
    pub(super) fn new(bell: BorrowedFd<'_>) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let events = Vec::with_capacity(EVENTS);
        Ok(Self { epoll, entries: Vec::new(), free: Vec::new(), armed: 0, events })
    }

    pub(super) fn armed(&self) -> u32 {
        self.armed
    }

    pub(super) fn arm(&mut self, watch: &Watch<'_>) -> Result<WatchId, SubmitError> {
        let Watch { fd, interest, repeat, token } = *watch;
        let refused = |source| SubmitError::Enter { source };
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(refused)?;
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let generation = self.entries[index as usize].generation;
        let name = epoll::EventData::new_u64(u64::from(generation) << 32 | u64::from(index));
        if let Err(source) = epoll::add(&self.epoll, fd.as_fd(), name, flags_of(interest, repeat)) {
            self.free.push(index);
            return Err(refused(source));
        }
        self.entries[index as usize].armed = Some(Armed { fd, token, repeat });
        self.armed += 1;
        Ok(WatchId { index, generation })
    }

    fn grow(&mut self) -> Result<u32, SubmitError> {
        let index = u32::try_from(self.entries.len()).ok().filter(|index| *index < WATCHES_PER_RING_MAX);
        let index = index.ok_or(SubmitError::WatchesFull { watches_max: WATCHES_PER_RING_MAX })?;
        self.entries.push(Entry::default());
        Ok(index)
    }

    /// Ends a watch; does nothing if it has ended already.
    pub(super) fn leave(&mut self, watch: WatchId) -> Result<(), Errno> {
        let Some(entry) = self.entries.get_mut(watch.index as usize) else { return Ok(()) };
        if entry.generation != watch.generation {
            return Ok(());
        }
        let Some(armed) = entry.armed.take() else { return Ok(()) };
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(watch.index);
        self.armed -= 1;
        // Closing the duplicate is not enough: the file itself may stay open, and the epoll would
        // continue to report it.
        epoll::delete(&self.epoll, &armed.fd)
    }

    /// Waits for the bell or a watch, for at most `wait_max` (`None`: without limit), and reports
    /// the watches. Returns whether the bell has rung.
    pub(super) fn wait(
        &mut self,
        wait_max: Option<Duration>,
        report: &mut dyn FnMut(Completion),
    ) -> Result<bool, Errno> {
        // A longer wait is cut to an hour: the caller waits again.
        let timeout = wait_max.map(|wait_max| {
            Timespec::try_from(wait_max.min(Duration::from_secs(3600))).expect("an hour fits a timespec")
        });
        let mut events = std::mem::take(&mut self.events);
        let spare = rustix::buffer::spare_capacity(&mut events);
        let waited = epoll::wait(&self.epoll, spare, timeout.as_ref());
        let mut is_rung = false;
        for event in events.drain(..) {
            is_rung |= event.data.u64() == BELL;
            if let Some(completion) = self.fired(event) {
                report(completion);
            }
        }
        self.events = events;
        match waited {
            // A signal: the caller checks for completions and calls again.
            Ok(_) | Err(Errno::INTR) => Ok(is_rung),
            Err(errno) => Err(errno),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves of a name apart")]
    fn fired(&mut self, event: epoll::Event) -> Option<Completion> {
        let name = event.data.u64();
        let watch = WatchId { index: name as u32, generation: (name >> 32) as u32 };
        let entry = self.entries.get(watch.index as usize)?;
        let armed = entry.armed.as_ref().filter(|_| entry.generation == watch.generation)?;
        let (token, repeat) = (armed.token, armed.repeat);
        let mut readiness = readiness_of(event.flags);
        if repeat == Repeat::Once && self.leave(watch).is_err() {
            readiness.failed = true;
        }
        Some(Completion::Ready { token, readiness })
    }
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Watches").field("armed", &self.armed).finish_non_exhaustive()
    }
}

fn flags_of(interest: Interest, repeat: Repeat) -> epoll::EventFlags {
    let interest = match interest {
        Interest::Readable => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        Interest::Writable => epoll::EventFlags::OUT,
    };
    interest
        | match repeat {
            Repeat::Once => epoll::EventFlags::ONESHOT,
            Repeat::EveryChange => epoll::EventFlags::ET,
        }
}

fn readiness_of(flags: epoll::EventFlags) -> Readiness {
    Readiness {
        readable: flags.contains(epoll::EventFlags::IN),
        writable: flags.contains(epoll::EventFlags::OUT),
        hung_up: flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::RDHUP),
        failed: flags.contains(epoll::EventFlags::ERR),
    }
}

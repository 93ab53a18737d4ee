//! Implements the receiving half of a `tcp` connection: reads bytes from the socket to where they
//! belong.
//!
//! Invariants
//! - Bytes whose meaning is not known yet are read into a staging buffer of fixed size. The payload
//!   of a write or an answer goes from the socket straight into registered memory, except for bytes
//!   that were read into the staging buffer with its frame.

use std::os::fd::BorrowedFd;

use rustix::{io::Errno, net::RecvFlags};

use super::{
    frame::Refusal,
    inbox::{Filled, InboxEnd, Message, fault},
    sys,
};
use crate::{
    error::Ending,
    inbox::Membership,
    limits::TCP_STAGING_BYTES,
    memory::{RawSlice, WORD_BYTES},
};

/// Why receiving stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The socket has no more bytes.
    Drained,
    /// There is no room for the next message until the application polls its connection or its
    /// inbox.
    MessagesFull,
    /// There may be more bytes, but it is time to send what waits in the outbox.
    TakeTurns,
}

/// The destination of a payload.
#[derive(Debug)]
pub(super) enum Sink {
    Shared(RawSlice),
    /// One aligned word of a write: collected here, and stored when it is complete.
    Word(RawSlice, [u8; WORD_BYTES]),
    Message(Vec<u8>),
    Inbox(Message),
    Nowhere,
}

/// What is done when a payload is complete.
#[derive(Debug, Clone, Copy)]
pub(super) enum Finish {
    /// A write of the peer is done. If it `wakes`, the application is woken.
    Written { wakes: bool },
    /// A write of the peer is done, and the immediate is reported to the application.
    WrittenWithImmediate { immediate: u32 },
    /// A request of the peer was refused.
    Refuse(Refusal),
    /// A message is complete, here or in the inbox.
    Message,
    /// The answer to a read of ours is complete.
    ReadData,
}

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) sink: Sink,
    pub(super) filled: usize,
    pub(super) length: usize,
    pub(super) finish: Finish,
}

/// The receiving half of a responder.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The inbox that messages go to, or `None` if they go to the application's `poll`.
    pub(super) inbox: Option<InboxEnd>,
    pub(super) staging: Box<[u8; TCP_STAGING_BYTES]>,
    pub(super) staged: std::ops::Range<usize>,
    pub(super) incoming: Option<Incoming>,
    /// The sequence number that the peer's next request must have.
    pub(super) next_request: u64,
    /// The first request that was not acknowledged. Those up to `next_request` are done.
    pub(super) acknowledged: u64,
    /// Whether a frame was received since the last `take_activity`.
    pub(super) active: bool,
    /// The ending of the connection, if it was noticed outside of the responder's thread.
    pub(super) failed: Option<Ending>,
    /// Bytes that this round may still read.
    pub(super) budget: usize,
}

impl Receiver {
    pub(super) fn new(member: Option<Membership>) -> Self {
        let staging = Box::new([0; TCP_STAGING_BYTES]);
        Self {
            inbox: member.map(InboxEnd::new),
            staging,
            staged: 0..0,
            incoming: None,
            next_request: 0,
            acknowledged: 0,
            active: false,
            failed: None,
            budget: 0,
        }
    }

    /// Whether a frame was received since the last call.
    pub(super) fn take_activity(&mut self) -> bool {
        std::mem::take(&mut self.active)
    }

    /// Makes the next `receive` fail with `ending`.
    pub(super) fn fail(&mut self, ending: Ending) {
        self.failed = Some(ending);
    }

    /// Whether messages wait for room in an inbox.
    pub(super) fn waits_for_inbox(&self) -> bool {
        self.inbox.is_some()
    }

    /// Whether the responder, after `MessagesFull`, may sleep until it is rung.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.inbox.as_mut().is_none_or(InboxEnd::fall_asleep)
    }

    /// Why nothing more was read.
    pub(super) fn pause(&self) -> Pause {
        if self.budget == 0 { Pause::TakeTurns } else { Pause::Drained }
    }

    /// Reads into the staging buffer. Returns false if the socket has nothing or the round is over.
    pub(super) fn stage(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Ending> {
        if self.budget == 0 {
            return Ok(false);
        }
        self.staging.copy_within(self.staged.clone(), 0);
        self.staged = 0..self.staged.len();
        let free = &mut self.staging[self.staged.end..];
        let count = received(rustix::io::retry_on_intr(|| {
            rustix::net::recv(socket, &mut *free, RecvFlags::DONTWAIT).map(|(count, _)| count)
        }))?;
        let Some(count) = count else { return Ok(false) };
        self.staged.end += count;
        self.budget = self.budget.saturating_sub(count);
        Ok(true)
    }

    /// Moves the available bytes of a message into the inbox.
    fn fill_inbox(&mut self, message: &mut Message, socket: BorrowedFd<'_>) -> Result<Filled, Ending> {
        loop {
            let Some(inbox) = &mut self.inbox else { return Ok(Filled::Complete) };
            match inbox.advance(message).map_err(fault)? {
                Filled::Hungry => {}
                other => return Ok(other),
            }
            let staged = message.fill_staged(&self.staging[self.staged.clone()])?;
            self.staged.start += staged;
            if staged > 0 {
                continue;
            }
            if !message.takes_from_socket() {
                if self.stage(socket)? {
                    continue;
                }
                return Ok(Filled::Hungry);
            }
            if self.budget == 0 {
                return Ok(Filled::Hungry);
            }
            match received(message.fill_from_socket(socket))? {
                Some(count) => self.budget = self.budget.saturating_sub(count),
                None => return Ok(Filled::Hungry),
            }
        }
    }

    /// Moves the available bytes of a payload to its destination.
    pub(super) fn fill(&mut self, incoming: &mut Incoming, socket: BorrowedFd<'_>) -> Result<Filled, Ending> {
        if let Sink::Inbox(message) = &mut incoming.sink {
            return self.fill_inbox(message, socket);
        }
        while incoming.filled < incoming.length {
            let left = incoming.length - incoming.filled;
            let staged = &self.staging[self.staged.clone()];
            let staged = &staged[..staged.len().min(left)];
            if staged.is_empty() {
                if self.budget == 0 {
                    return Ok(Filled::Hungry);
                }
                let count = match &mut incoming.sink {
                    Sink::Shared(slice) => sys::receive(socket, slice, incoming.filled),
                    Sink::Message(bytes) => rustix::io::retry_on_intr(|| {
                        let rest = &mut bytes[incoming.filled..];
                        rustix::net::recv(socket, rest, RecvFlags::DONTWAIT).map(|(count, _)| count)
                    }),
                    Sink::Nowhere | Sink::Word(..) if self.stage(socket)? => continue,
                    Sink::Nowhere | Sink::Word(..) | Sink::Inbox(_) => return Ok(Filled::Hungry),
                };
                match received(count)? {
                    Some(count) => {
                        incoming.filled += count;
                        self.budget = self.budget.saturating_sub(count);
                    }
                    None => return Ok(Filled::Hungry),
                }
                continue;
            }
            match &mut incoming.sink {
                Sink::Shared(slice) => slice.copy_in(incoming.filled, staged).map_err(Ending::violation)?,
                Sink::Word(slice, word) => {
                    word[incoming.filled..incoming.filled + staged.len()].copy_from_slice(staged);
                    if staged.len() == left {
                        slice.copy_in(0, word).map_err(Ending::violation)?;
                    }
                }
                Sink::Message(bytes) => {
                    bytes[incoming.filled..incoming.filled + staged.len()].copy_from_slice(staged);
                }
                Sink::Nowhere | Sink::Inbox(_) => {}
            }
            incoming.filled += staged.len();
            self.staged.start += staged.len();
        }
        Ok(Filled::Complete)
    }
}

/// The result of a receiving call: a number of bytes, `None` if there are none for now, or the
/// ending of the stream.
fn received(result: Result<usize, Errno>) -> Result<Option<usize>, Ending> {
    match result {
        Ok(0) => Err(Ending::Lost { reason: "the stream ended without a goodbye".to_owned() }),
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(Ending::Lost { reason: std::io::Error::from(error).to_string() }),
    }
}

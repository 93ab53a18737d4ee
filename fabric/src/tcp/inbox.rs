//! How do messages get from the stream into an inbox?
//!
//! The responder plays the network controller of the paper (section 4.3): it looks up the sender's
//! ring, claims space, lets the socket fill that space, and reports each packet in the status ring.
//! When there is no room it reads no more, so that the stream itself stalls the sender; or, if the
//! inbox refuses, it throws the message away and says so.
//!
//! Invariants
//! - A payload goes from the socket straight into claimed space, but for what was staged with its
//!   frame; a message of more than half a ring that is reported whole goes into a buffer that the
//!   receiver is then handed.
//! - A message of which a packet is reported is never refused.

use std::os::fd::AsFd;

use rustix::{io::Errno, net::RecvFlags};

use super::{link::Link, sys};
use crate::{
    error::Ending,
    inbox::{self, Entry, INLINE_BYTES_MAX, InboxFault, InboxSender, Line, Membership, Sent, Space},
    memory::RawSlice,
    operation::Report,
    region::Source,
};

/// The responder's way into the inbox.
#[derive(Debug)]
pub(super) struct InboxEnd {
    sender: InboxSender,
    member: Membership,
    /// What there was no room for, when there was none.
    wanted: Option<Wanted>,
}

#[derive(Debug, Clone, Copy)]
enum Wanted {
    Entry,
    /// That the message before is taken.
    Handover,
    /// In the ring where the message began, or else in the one that the table names.
    Space {
        ring: Option<usize>,
        length: usize,
    },
}

/// A message on its way from the stream into the inbox.
#[derive(Debug)]
pub(super) struct Message {
    report: Report,
    message_bytes: usize,
    /// Bytes that were taken from the stream.
    filled: usize,
    target: Target,
    /// What is complete and has no entry yet.
    unreported: Option<Entry>,
}

#[derive(Debug)]
enum Target {
    /// A message that will travel in its entry.
    Inline([u8; INLINE_BYTES_MAX]),
    /// A packet that begins at `start` of the message.
    Space { space: Space, memory: RawSlice, start: usize },
    /// A message that will be handed over.
    Private(Vec<u8>),
    /// Space for the next packet must be claimed in this ring.
    Next { ring: usize },
    /// Everything is taken from the stream.
    Done,
}

/// What became of bytes that were looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    Complete,
    /// More bytes are needed: the socket has none for now, or the round is over.
    Hungry,
    /// There is no room.
    Full,
}

pub(super) fn fault(fault: InboxFault) -> Ending {
    Ending::Violation { reason: fault.to_string() }
}

impl InboxEnd {
    pub(super) fn new(member: Membership) -> Self {
        Self { sender: member.sender(), member, wanted: None }
    }

    /// Why the connection must end, if the inbox says so.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.member.fault().map(|reason| Ending::Violation { reason: reason.to_owned() })
    }

    /// Finds room for a message, or says what becomes of it.
    pub(super) fn begin(
        &mut self,
        message_bytes: usize,
        report: Report,
    ) -> Result<Result<Message, Sent>, InboxFault> {
        if report == Report::PerMessage && !self.member.admits(message_bytes) {
            // The connection ends before it is asked for this message again.
            return Ok(Err(Sent::Stalled));
        }
        if !self.sender.has_status_room()? {
            return Ok(Err(self.no_room(Wanted::Entry)));
        }
        let target = if message_bytes <= INLINE_BYTES_MAX {
            Target::Inline([0; INLINE_BYTES_MAX])
        } else if report == Report::PerMessage && message_bytes > self.sender.pipelined_bytes_max() {
            match self.member.begin_handover(message_bytes) {
                Some(buffer) => Target::Private(buffer),
                None => return Ok(Err(self.no_room(Wanted::Handover))),
            }
        } else {
            Target::Next { ring: self.sender.current_ring()? }
        };
        let mut message = Message { report, message_bytes, filled: 0, target, unreported: None };
        if let Target::Next { ring } = message.target
            && let Some(wanted) = self.claim(&mut message, ring)?
        {
            return Ok(Err(self.no_room(wanted)));
        }
        self.wanted = None;
        Ok(Ok(message))
    }

    /// Whether a write that announces itself has room for that, or what becomes of it.
    pub(super) fn room_for_immediate(&mut self) -> Result<Sent, InboxFault> {
        if self.sender.has_status_room()? {
            self.wanted = None;
            return Ok(Sent::All);
        }
        Ok(self.no_room(Wanted::Entry))
    }

    /// Reports a write; `Some` is what must wait for room.
    pub(super) fn announce(&mut self, immediate: u32, bytes: u64) -> Result<Option<Message>, InboxFault> {
        let entry = inbox::immediate(immediate, bytes);
        if self.publish(&entry)? {
            return Ok(None);
        }
        let (report, target) = (Report::PerMessage, Target::Done);
        Ok(Some(Message { report, message_bytes: 0, filled: 0, target, unreported: Some(entry) }))
    }

    /// What becomes of a message that finds no room at its beginning.
    fn no_room(&mut self, wanted: Wanted) -> Sent {
        if self.sender.refuses() {
            self.sender.count(Line::Refusals);
            return Sent::Refused;
        }
        self.stall(wanted);
        Sent::Stalled
    }

    fn stall(&mut self, wanted: Wanted) {
        if self.wanted.is_none() {
            self.sender.count(Line::Stalls);
        }
        self.wanted = Some(wanted);
    }

    /// Claims space for the next packet; `Some` is what there is no room for.
    fn claim(&mut self, message: &mut Message, ring: usize) -> Result<Option<Wanted>, InboxFault> {
        let length = (message.message_bytes - message.filled).min(self.sender.packet_bytes());
        let Some(space) = self.sender.claim_space(ring, length)? else {
            let ring = (message.filled > 0).then_some(ring);
            return Ok(Some(Wanted::Space { ring, length }));
        };
        let memory = self.sender.space_memory(&space, length)?;
        message.target = Target::Space { space, memory, start: message.filled };
        Ok(None)
    }

    fn publish(&mut self, entry: &Entry) -> Result<bool, InboxFault> {
        if !self.sender.publish(entry)? {
            self.stall(Wanted::Entry);
            return Ok(false);
        }
        self.wanted = None;
        self.sender.wake_receiver();
        Ok(true)
    }

    /// Reports what is complete of a message and finds room for the next part. `Hungry` asks for
    /// `fill_staged` or `fill_from_socket`.
    pub(super) fn go_on(&mut self, message: &mut Message) -> Result<Filled, InboxFault> {
        loop {
            if let Some(entry) = &message.unreported {
                if !self.publish(entry)? {
                    return Ok(Filled::Full);
                }
                message.unreported = None;
            }
            match message.target {
                Target::Done => return Ok(Filled::Complete),
                Target::Next { ring } => {
                    if let Some(wanted) = self.claim(message, ring)? {
                        self.stall(wanted);
                        return Ok(Filled::Full);
                    }
                    self.wanted = None;
                }
                _ => {}
            }
            if !message.complete_part(&self.member)? {
                return Ok(Filled::Hungry);
            }
        }
    }

    /// Says that the responder is about to sleep until there is room; false if there is some
    /// already.
    pub(super) fn fall_asleep(&mut self) -> bool {
        let Some(wanted) = self.wanted else { return true };
        if self.sender.say_stalled().is_err() {
            return false;
        }
        let room = match wanted {
            Wanted::Entry => self.sender.has_status_room(),
            Wanted::Handover => Ok(self.member.can_hand_over()),
            Wanted::Space { ring, length } => match ring.map_or_else(|| self.sender.current_ring(), Ok) {
                Ok(ring) => self.sender.has_space(ring, length),
                Err(fault) => Err(fault),
            },
        };
        matches!(room, Ok(false))
    }
}

impl Message {
    /// If a part is complete: makes its entry and looks to the next.
    fn complete_part(&mut self, member: &Membership) -> Result<bool, InboxFault> {
        let all = self.filled == self.message_bytes;
        let entry = match &mut self.target {
            Target::Private(bytes) if all => {
                member.hand_over(std::mem::take(bytes));
                inbox::handed()
            }
            Target::Inline(bytes) if all => {
                inbox::inline(Source::Bytes(&bytes[..self.message_bytes]), self.report)?
            }
            Target::Space { space, memory, start } if self.filled == *start + memory.len() => {
                inbox::packet(space, self.report, memory.len(), *start, self.message_bytes)
            }
            _ => return Ok(false),
        };
        self.unreported = Some(entry);
        self.target = match &self.target {
            Target::Space { space, .. } if !all => Target::Next { ring: space.ring() },
            _ => Target::Done,
        };
        Ok(true)
    }

    /// Takes staged bytes, as many as there is place for, and says how many.
    pub(super) fn fill_staged(&mut self, staged: &[u8]) -> Result<usize, Ending> {
        let count = match &mut self.target {
            Target::Inline(bytes) => {
                let rest = &mut bytes[self.filled..self.message_bytes];
                let count = staged.len().min(rest.len());
                rest[..count].copy_from_slice(&staged[..count]);
                count
            }
            Target::Space { memory, start, .. } => {
                let at = self.filled - *start;
                let count = staged.len().min(memory.len() - at);
                memory.copy_in(at, &staged[..count]).map_err(|e| fault(e.into()))?;
                count
            }
            Target::Private(bytes) => {
                let rest = &mut bytes[self.filled..];
                let count = staged.len().min(rest.len());
                rest[..count].copy_from_slice(&staged[..count]);
                count
            }
            Target::Next { .. } | Target::Done => 0,
        };
        self.filled += count;
        Ok(count)
    }

    /// Whether the socket may fill the rest itself. What travels in an entry is staged first.
    pub(super) fn takes_from_socket(&self) -> bool {
        matches!(self.target, Target::Space { .. } | Target::Private(_))
    }

    /// Receives into claimed space, or into the buffer that will be handed over.
    pub(super) fn fill_from_socket(&mut self, link: &Link) -> Result<usize, Errno> {
        let count = match &mut self.target {
            Target::Space { memory, start, .. } => {
                sys::receive(link.socket.as_fd(), memory, self.filled - *start)?
            }
            Target::Private(bytes) => {
                let rest = &mut bytes[self.filled..];
                rustix::io::retry_on_intr(|| {
                    rustix::net::recv(&link.socket, &mut *rest, RecvFlags::DONTWAIT).map(|(count, _)| count)
                })?
            }
            Target::Inline(_) | Target::Next { .. } | Target::Done => return Err(Errno::INVAL),
        };
        self.filled += count;
        Ok(count)
    }
}

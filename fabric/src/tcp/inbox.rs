//! Moves messages from the stream into an inbox.
//!
//! The responder does the work of the paper's network controller (section 4.3): it looks up the
//! sender's ring, claims space, receives from the socket into that space, and reports each packet
//! in the status ring. When there is no room it stops reading, so that the stream itself stalls the
//! sender. If the inbox is configured to refuse, it discards the message instead and answers with a
//! refusal.
//!
//! Invariants
//! - A payload goes from the socket straight into claimed space, except for bytes that were read
//!   into the staging buffer together with its frame. A message of more than half a ring that is
//!   reported whole goes into a buffer that is then handed to the receiver.
//! - A message is never refused once one of its packets was reported.

use std::os::fd::BorrowedFd;

use rustix::{io::Errno, net::RecvFlags};

use super::sys;
use crate::{
    error::Ending,
    inbox::{self, Entry, INLINE_BYTES_MAX, InboxFault, InboxSender, Membership, SenderWord, Sent, Space},
    memory::RawSlice,
    operation::Report,
    region::Source,
};

/// The responder's side of the inbox.
#[derive(Debug)]
pub(super) struct InboxEnd {
    sender: InboxSender,
    member: Membership,
    /// What the responder waits for, if there was no room.
    awaited: Option<AwaitedRoom>,
}

#[derive(Debug, Clone, Copy)]
enum AwaitedRoom {
    Entry,
    /// That the previous message was taken.
    Handover,
    /// Space for a packet, in the ring where the message began, or without one in the ring that the
    /// table assigns.
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
    /// Bytes that were received from the stream.
    filled: usize,
    target: Target,
    /// The entry of a complete part, which is not published yet.
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
    /// Everything was received from the stream.
    Done,
}

/// The result of filling a message or payload.
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
        Self { sender: member.sender(), member, awaited: None }
    }

    /// Why the inbox demands that the connection ends, if it does.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.member.fault().map(|reason| Ending::Violation { reason: reason.to_owned() })
    }

    /// Finds room for a message, or returns whether it waits or is refused.
    pub(super) fn begin(
        &mut self,
        message_bytes: usize,
        report: Report,
    ) -> Result<Result<Message, Sent>, InboxFault> {
        if report == Report::PerMessage && !self.member.admits(message_bytes) {
            // The connection ends before this message is tried again.
            return Ok(Err(Sent::Stalled));
        }
        if !self.sender.has_status_room()? {
            return Ok(Err(self.no_room(AwaitedRoom::Entry)));
        }
        let target = if message_bytes <= INLINE_BYTES_MAX {
            Target::Inline([0; INLINE_BYTES_MAX])
        } else if report == Report::PerMessage && message_bytes > self.sender.pipelined_bytes_max() {
            match self.member.begin_handover(message_bytes) {
                Some(buffer) => Target::Private(buffer),
                None => return Ok(Err(self.no_room(AwaitedRoom::Handover))),
            }
        } else {
            Target::Next { ring: self.sender.current_ring()? }
        };
        let mut message = Message { report, message_bytes, filled: 0, target, unreported: None };
        if let Target::Next { ring } = message.target
            && let Some(awaited) = self.claim(&mut message, ring)?
        {
            return Ok(Err(self.no_room(awaited)));
        }
        self.awaited = None;
        Ok(Ok(message))
    }

    /// Whether the immediate of a write has room; if not, whether it waits or is refused.
    pub(super) fn room_for_immediate(&mut self) -> Result<Sent, InboxFault> {
        if self.sender.has_status_room()? {
            self.awaited = None;
            return Ok(Sent::All);
        }
        Ok(self.no_room(AwaitedRoom::Entry))
    }

    /// Publishes the immediate of a write. Returns it as a message if it must wait for room.
    pub(super) fn announce(&mut self, immediate: u32, bytes: u64) -> Result<Option<Message>, InboxFault> {
        let entry = inbox::immediate_entry(immediate, bytes);
        if self.publish(&entry)? {
            return Ok(None);
        }
        let (report, target) = (Report::PerMessage, Target::Done);
        Ok(Some(Message { report, message_bytes: 0, filled: 0, target, unreported: Some(entry) }))
    }

    /// Decides what happens to a message that finds no room at its beginning.
    fn no_room(&mut self, awaited: AwaitedRoom) -> Sent {
        if self.sender.refuses() {
            self.sender.count(SenderWord::Refusals);
            return Sent::Refused;
        }
        self.stall(awaited);
        Sent::Stalled
    }

    fn stall(&mut self, awaited: AwaitedRoom) {
        if self.awaited.is_none() {
            self.sender.count(SenderWord::Stalls);
        }
        self.awaited = Some(awaited);
    }

    /// Claims space for the next packet. If there is none, returns what to wait for.
    fn claim(&mut self, message: &mut Message, ring: usize) -> Result<Option<AwaitedRoom>, InboxFault> {
        let length = (message.message_bytes - message.filled).min(self.sender.packet_bytes());
        let Some(space) = self.sender.claim_space(ring, length)? else {
            let ring = (message.filled > 0).then_some(ring);
            return Ok(Some(AwaitedRoom::Space { ring, length }));
        };
        let memory = self.sender.space_memory(&space, length)?;
        message.target = Target::Space { space, memory, start: message.filled };
        Ok(None)
    }

    fn publish(&mut self, entry: &Entry) -> Result<bool, InboxFault> {
        if !self.sender.publish(entry)? {
            self.stall(AwaitedRoom::Entry);
            return Ok(false);
        }
        self.awaited = None;
        self.sender.wake_receiver();
        Ok(true)
    }

    /// Publishes the complete parts of a message and finds room for the next part. After `Hungry`
    /// the caller calls `fill_staged` or `fill_from_socket`.
    pub(super) fn advance(&mut self, message: &mut Message) -> Result<Filled, InboxFault> {
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
                    if let Some(awaited) = self.claim(message, ring)? {
                        self.stall(awaited);
                        return Ok(Filled::Full);
                    }
                    self.awaited = None;
                }
                _ => {}
            }
            if !message.complete_part(&self.member)? {
                return Ok(Filled::Hungry);
            }
        }
    }

    /// Announces that the responder is about to sleep until there is room. Returns false if there
    /// is room already.
    pub(super) fn fall_asleep(&mut self) -> bool {
        let Some(awaited) = self.awaited else { return true };
        if self.sender.announce_stall().is_err() {
            return false;
        }
        let room = match awaited {
            AwaitedRoom::Entry => self.sender.has_status_room(),
            AwaitedRoom::Handover => Ok(self.member.can_hand_over()),
            AwaitedRoom::Space { ring, length } => {
                match ring.map_or_else(|| self.sender.current_ring(), Ok) {
                    Ok(ring) => self.sender.has_space(ring, length),
                    Err(fault) => Err(fault),
                }
            }
        };
        matches!(room, Ok(false))
    }
}

impl Message {
    /// If the current part is complete, makes its entry and moves on to the next part. Returns
    /// whether it did.
    fn complete_part(&mut self, member: &Membership) -> Result<bool, InboxFault> {
        let all = self.filled == self.message_bytes;
        let entry = match &mut self.target {
            Target::Private(bytes) if all => {
                member.hand_over(std::mem::take(bytes));
                inbox::handover_entry()
            }
            Target::Inline(bytes) if all => {
                inbox::inline_entry(Source::Bytes(&bytes[..self.message_bytes]), self.report)?
            }
            Target::Space { space, memory, start } if self.filled == *start + memory.len() => {
                inbox::packet_entry(space, self.report, memory.len(), *start, self.message_bytes)
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

    /// Takes as many staged bytes as fit, and returns their number.
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

    /// Whether the remainder may be received directly from the socket. A message that travels in an
    /// entry is staged first.
    pub(super) fn takes_from_socket(&self) -> bool {
        matches!(self.target, Target::Space { .. } | Target::Private(_))
    }

    /// Receives into claimed space, or into the buffer that will be handed over.
    pub(super) fn fill_from_socket(&mut self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let count = match &mut self.target {
            Target::Space { memory, start, .. } => sys::receive(socket, memory, self.filled - *start)?,
            Target::Private(bytes) => {
                let rest = &mut bytes[self.filled..];
                rustix::io::retry_on_intr(|| {
                    rustix::net::recv(socket, &mut *rest, RecvFlags::DONTWAIT).map(|(count, _)| count)
                })?
            }
            Target::Inline(_) | Target::Next { .. } | Target::Done => return Err(Errno::INVAL),
        };
        self.filled += count;
        Ok(count)
    }
}

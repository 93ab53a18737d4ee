//! Where do a connection's messages come from, and where do they go?
//!
//! Each side says at set-up what its peer shall fill: a ring of its own (PUSH), or the inbox that
//! it receives through (IPUSH). The queue is the same for both; what differs is here.
//!
//! Invariants
//! - What the two sides tell each other beside messages (sleep, controls) lies in the receiving
//!   side's memory: in the ring's header, or in the sender's line of the inbox's table.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::ring::{Consumer, Producer, Record, RingFault};
use crate::{
    doorbell::Doorbell,
    error::OutOfBounds,
    inbox::{self, InboxFault, InboxSender, Line, Membership, Sent},
    operation::Report,
    region::Source,
};

/// What no honest peer puts into memory that both map.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Ring(#[from] RingFault),
    #[error(transparent)]
    Inbox(#[from] InboxFault),
    #[error(transparent)]
    Memory(#[from] OutOfBounds),
}

/// Where the peer's messages come from.
#[derive(Debug)]
pub(super) enum Incoming {
    Ring(Consumer),
    /// The inbox hands them out.
    Inbox(Membership),
}

impl Incoming {
    /// Whether `pop` has something.
    pub(super) fn has_records(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.has_records(),
            Self::Inbox(_) => false,
        }
    }

    /// Takes a record; `None` may also mean that it was a part of a message.
    pub(super) fn pop(&mut self) -> Result<Option<Record>, RingFault> {
        match self {
            Self::Ring(ring) => ring.pop(),
            Self::Inbox(_) => Ok(None),
        }
    }

    pub(super) fn owes_space(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.owes_space(),
            Self::Inbox(_) => false,
        }
    }

    /// Gives the space of taken records back; true when the peer waits for it.
    pub(super) fn release(&mut self) -> Result<bool, OutOfBounds> {
        match self {
            Self::Ring(ring) => ring.release(),
            Self::Inbox(_) => Ok(false),
        }
    }

    /// How often the peer has said something over the control socket.
    pub(super) fn controls(&self) -> u64 {
        match self {
            Self::Ring(ring) => ring.controls(),
            Self::Inbox(member) => member.line(Line::Controls).map_or(0, |word| word.load(Ordering::Acquire)),
        }
    }

    /// Says that our side is about to sleep, or is awake.
    pub(super) fn set_sleeping(&self, sleeping: bool) {
        match self {
            Self::Ring(ring) => ring.set_sleeping(sleeping),
            Self::Inbox(member) => {
                if let Some(word) = member.line(Line::ConnectionSleeps) {
                    word.store(u64::from(sleeping), Ordering::SeqCst);
                    fence(Ordering::SeqCst);
                }
            }
        }
    }

    /// Why the connection must end, if the inbox says so.
    pub(super) fn fault(&self) -> Option<&str> {
        match self {
            Self::Ring(_) => None,
            Self::Inbox(member) => member.fault(),
        }
    }
}

/// Where our messages go.
#[derive(Debug)]
pub(super) enum Outgoing {
    Ring(Producer),
    Inbox(InboxSender),
}

/// How far an operation came that waits for room.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of the message that are in the ring.
    sent: usize,
    inbox: inbox::Progress,
    /// The bytes of a write are written, and only its immediate waits.
    pub(super) written: bool,
}

impl Outgoing {
    /// Sends a message from where `progress` says.
    pub(super) fn send(
        &mut self,
        source: Source<'_>,
        report: Report,
        progress: &mut Progress,
    ) -> Result<Sent, Fault> {
        match self {
            Self::Ring(ring) => {
                let all = ring.push_message(source, &mut progress.sent)?;
                Ok(if all { Sent::All } else { Sent::Stalled })
            }
            Self::Inbox(sender) => Ok(sender.send(source, report, &mut progress.inbox)?),
        }
    }

    /// Whether an immediate has room now.
    pub(super) fn has_room_for_immediate(&mut self, progress: &mut Progress) -> Result<Sent, Fault> {
        match self {
            Self::Ring(ring) => Ok(if ring.has_room(0)? { Sent::All } else { Sent::Stalled }),
            Self::Inbox(sender) => Ok(sender.room_for_immediate(&mut progress.inbox)?),
        }
    }

    /// Sends an immediate; false when others have taken the room meanwhile.
    pub(super) fn push_immediate(&mut self, immediate: u32, bytes: u32) -> Result<bool, Fault> {
        match self {
            Self::Ring(ring) => {
                ring.push_immediate(immediate, bytes)?;
                Ok(true)
            }
            Self::Inbox(sender) => Ok(sender.publish(&inbox::immediate(immediate, u64::from(bytes)))?),
        }
    }

    /// Whether a message (or an immediate, with no bytes) that has stalled could go on. If not, the
    /// peer will wake us.
    pub(super) fn can_go_on(&mut self, message_bytes: usize, progress: &Progress) -> Result<bool, Fault> {
        match self {
            Self::Ring(ring) => Ok(ring.can_go_on(message_bytes, progress.sent)?),
            Self::Inbox(sender) => {
                sender.say_stalled()?;
                Ok(sender.can_go_on(message_bytes, &progress.inbox)?)
            }
        }
    }

    /// Tells the peer how often we have said something over the control socket.
    pub(super) fn set_controls(&self, controls: u64) {
        match self {
            Self::Ring(ring) => ring.set_controls(controls),
            Self::Inbox(sender) => {
                if let Ok(word) = sender.line(Line::Controls) {
                    word.store(controls, Ordering::Release);
                }
            }
        }
    }

    /// Wakes whoever receives our messages, if it sleeps.
    pub(super) fn wake_for_message(&self, peer_bell: &Doorbell) {
        match self {
            Self::Ring(ring) if ring.must_wake() => peer_bell.ring(),
            Self::Ring(_) => {}
            Self::Inbox(sender) => sender.wake_receiver(),
        }
    }

    /// Wakes the peer's connection, if it sleeps, because there is room in our ring, or a message
    /// in a box of its own.
    pub(super) fn wake_connection(&self, peer_bell: &Doorbell) {
        let sleeps =
            |word: &AtomicU64| word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::SeqCst) != 0;
        let must_wake = match self {
            Self::Ring(ring) => ring.must_wake(),
            Self::Inbox(sender) => {
                fence(Ordering::SeqCst);
                sender.line(Line::ConnectionSleeps).is_ok_and(sleeps)
            }
        };
        if must_wake {
            peer_bell.ring();
        }
    }
}

//! Defines the path of messages in each direction of a `shm` connection: a ring for this
//! connection, or an inbox.
//!
//! Each side says at set-up where its peer writes messages: into a ring for this peer alone (PUSH),
//! or into the inbox that receives them together with those of other peers (IPUSH). `queue` treats
//! both alike; the differences are here.
//!
//! Invariants
//! - The two sides also exchange words beside messages: whether one sleeps, and how many control
//!   messages it has sent. They lie in the receiving side's memory: in the ring's header, or in the
//!   sender's cache line of the inbox's table.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::ring::{Consumer, Producer, Record, RingFault};
use crate::{
    doorbell::Doorbell,
    error::OutOfBounds,
    inbox::{self, InboxFault, InboxSender, Membership, SenderWord, Sent},
    operation::Report,
    region::Source,
};

/// Contents of shared memory that no honest peer writes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Ring(#[from] RingFault),
    #[error(transparent)]
    Inbox(#[from] InboxFault),
    #[error(transparent)]
    Memory(#[from] OutOfBounds),
}

/// The path of the peer's messages to us.
#[derive(Debug)]
pub(super) enum Incoming {
    Ring(Consumer),
    /// They arrive through the inbox.
    Inbox(Membership),
}

impl Incoming {
    /// Whether `pop` will return something.
    pub(super) fn has_records(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.has_records(),
            Self::Inbox(_) => false,
        }
    }

    /// Takes a record. `None` may also mean that it was a part of a message.
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

    /// Gives the space of taken records back. Returns true if the peer waits for it.
    pub(super) fn release(&mut self) -> Result<bool, OutOfBounds> {
        match self {
            Self::Ring(ring) => ring.release(),
            Self::Inbox(_) => Ok(false),
        }
    }

    /// Number of controls that the peer has sent over the socket.
    pub(super) fn controls(&self) -> u64 {
        match self {
            Self::Ring(ring) => ring.controls(),
            Self::Inbox(member) => {
                member.line(SenderWord::Controls).map_or(0, |word| word.load(Ordering::Acquire))
            }
        }
    }

    /// Announces that our side is about to sleep, or is awake.
    pub(super) fn set_sleeping(&self, sleeping: bool) {
        match self {
            Self::Ring(ring) => ring.set_sleeping(sleeping),
            Self::Inbox(member) => {
                if let Some(word) = member.line(SenderWord::ConnectionSleeps) {
                    word.store(u64::from(sleeping), Ordering::SeqCst);
                    fence(Ordering::SeqCst);
                }
            }
        }
    }

    /// Why the inbox demands that the connection ends, if it does.
    pub(super) fn fault(&self) -> Option<&str> {
        match self {
            Self::Ring(_) => None,
            Self::Inbox(member) => member.fault(),
        }
    }
}

/// The path of our messages to the peer.
#[derive(Debug)]
pub(super) enum Outgoing {
    Ring(Producer),
    Inbox(InboxSender),
}

/// The progress of an operation that waits for room.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of the message that are in the ring.
    sent: usize,
    inbox: inbox::Progress,
    /// The bytes of a write with immediate are written; only the immediate waits.
    pub(super) written: bool,
}

impl Outgoing {
    /// Sends a message, continuing at `progress`.
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

    /// Sends an immediate. Returns false if other senders have used the room meanwhile.
    pub(super) fn push_immediate(&mut self, immediate: u32, bytes: u32) -> Result<bool, Fault> {
        match self {
            Self::Ring(ring) => {
                ring.push_immediate(immediate, bytes)?;
                Ok(true)
            }
            Self::Inbox(sender) => Ok(sender.publish(&inbox::immediate_entry(immediate, u64::from(bytes)))?),
        }
    }

    /// Whether a stalled message (or an immediate, with 0 bytes) could continue. If not, the peer
    /// will wake us.
    pub(super) fn can_continue(&mut self, message_bytes: usize, progress: &Progress) -> Result<bool, Fault> {
        match self {
            Self::Ring(ring) => Ok(ring.can_continue(message_bytes, progress.sent)?),
            Self::Inbox(sender) => {
                sender.announce_stall()?;
                Ok(sender.can_continue(message_bytes, &progress.inbox)?)
            }
        }
    }

    /// Tells the peer how many controls we have sent over the socket.
    pub(super) fn set_controls(&self, controls: u64) {
        match self {
            Self::Ring(ring) => ring.set_controls(controls),
            Self::Inbox(sender) => {
                if let Ok(word) = sender.line(SenderWord::Controls) {
                    word.store(controls, Ordering::Release);
                }
            }
        }
    }

    /// Wakes the receiver of our messages, if it sleeps.
    pub(super) fn wake_for_message(&self, peer_bell: &Doorbell) {
        match self {
            Self::Ring(ring) if ring.must_wake() => peer_bell.ring(),
            Self::Ring(_) => {}
            Self::Inbox(sender) => sender.wake_receiver(),
        }
    }

    /// Wakes the owner of the peer's connection, if it sleeps: there is room in our ring, or a
    /// message in one of its boxes.
    pub(super) fn wake_connection(&self, peer_bell: &Doorbell) {
        let sleeps =
            |word: &AtomicU64| word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::SeqCst) != 0;
        let must_wake = match self {
            Self::Ring(ring) => ring.must_wake(),
            Self::Inbox(sender) => {
                fence(Ordering::SeqCst);
                sender.line(SenderWord::ConnectionSleeps).is_ok_and(sleeps)
            }
        };
        if must_wake {
            peer_bell.ring();
        }
    }
}

//! Decides which thread receives from the socket: the responder, or the connection's owner.
//!
//! The thread that receives is said to *drive* the connection. While the owner polls, or sleeps on
//! the connection's descriptor, it drives itself: nothing is passed from thread to thread, and its
//! answers to the peer are sent together with its next operations. The responder takes over when
//! the owner does neither.
//!
//! ```text
//! responder -> owner   the owner has polled TCP_OWNER_POLLS times in vain, or arms
//! owner -> responder   the owner has not polled during a nap of the responder, or must wait for
//!                      something other than the socket
//! ```
//!
//! Invariants
//! - Only the thread that has the receiver's lock receives. The owner never waits for the lock, and
//!   no thread sleeps or yields while it has the lock.
//! - The owner drives only while it polls, or sleeps on a descriptor that the socket makes
//!   readable. The thread that finds that this has ended lets the responder drive and wakes it.
//! - The responder reports how a connection ended. An owner that notices the end stores it in the
//!   receiver.

use std::{
    sync::{
        MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use super::receive::Receiver;
use crate::{
    guarded::Guarded,
    limits::{TCP_NAP_MAX, TCP_NAP_MIN},
};

/// The state of driving; see the head of this file.
#[derive(Debug)]
pub(super) struct Drive {
    /// `None` once the connection has ended.
    pub(super) receiver: Guarded<Option<Receiver>>,
    owner_drives: AtomicBool,
    /// Number of polls of the socket by the owner.
    pub(super) owner_polls: AtomicU32,
    /// Whether the owner sleeps on the connection's descriptor.
    owner_sleeps: AtomicBool,
    /// Whether the responder sleeps until the owner wakes.
    responder_sleeps: AtomicBool,
}

impl Drive {
    pub(super) fn new(receiver: Receiver) -> Self {
        Self {
            receiver: Guarded::new(Some(receiver)),
            owner_drives: AtomicBool::new(false),
            owner_polls: AtomicU32::new(0),
            owner_sleeps: AtomicBool::new(false),
            responder_sleeps: AtomicBool::new(false),
        }
    }

    /// Responder: locks the receiver.
    pub(super) fn receiver(&self) -> MutexGuard<'_, Option<Receiver>> {
        self.receiver.lock()
    }

    /// Whether the owner drives.
    pub(super) fn owner_drives(&self) -> bool {
        self.owner_drives.load(Ordering::SeqCst)
    }

    /// Makes the responder drive from now on. Another thread must then wake it.
    pub(super) fn let_responder_drive(&self) {
        self.owner_drives.store(false, Ordering::SeqCst);
    }

    /// Owner: announces that it is about to sleep on the connection's descriptor.
    pub(super) fn announce_owner_sleep(&self) {
        self.owner_sleeps.store(true, Ordering::SeqCst);
    }

    /// Owner: announces that it is awake. Returns true if the responder must be woken, to watch it
    /// again.
    pub(super) fn announce_owner_awake(&self) -> bool {
        // Announced first, checked afterwards; the responder does the two in the other order.
        self.owner_sleeps.store(false, Ordering::SeqCst);
        self.responder_sleeps.swap(false, Ordering::SeqCst)
    }

    /// Owner: drives from now on. Returns true if the responder drove until now and must be woken.
    pub(super) fn let_owner_drive(&self) -> bool {
        !self.owner_drives() && !self.owner_drives.swap(true, Ordering::SeqCst)
    }
}

/// The responder's watch over an owner that drives.
#[derive(Debug)]
pub(super) struct Watchman {
    polls_seen: u32,
    nap: Duration,
}

impl Watchman {
    pub(super) fn new() -> Self {
        Self { polls_seen: 0, nap: TCP_NAP_MIN }
    }

    /// How long the responder sleeps before it checks again; `None` if until it is woken.
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

    /// After a nap: if the owner has not polled since the last check and does not sleep, the
    /// responder drives from now on.
    pub(super) fn check_owner(&mut self, drive: &Drive) {
        let polls = drive.owner_polls.load(Ordering::SeqCst);
        if polls != self.polls_seen {
            self.polls_seen = polls;
            self.nap = TCP_NAP_MIN;
        } else if drive.owner_sleeps.load(Ordering::SeqCst) {
            self.nap = (2 * self.nap).min(TCP_NAP_MAX);
        } else {
            drive.let_responder_drive();
        }
    }
}

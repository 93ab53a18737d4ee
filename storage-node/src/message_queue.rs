//! How does another thread hand something to a reactor?
//!
//! Invariants
//! - Senders never wait; what is sent is bounded: outcomes by the reactor's own requests, messages
//!   for the home by those of all reactors, replies of other nodes by what may be outstanding
//!   there, new connections by `MESSAGE_QUEUE_MAX`.
//! - Ringing after sending wakes a reactor that sleeps, however the two interleave: the bell stays
//!   rung until drained.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use rackscan_fabric::Connection;
use rackscan_format::message::Refusal;
use rackscan_ramp::message::Reply;
use rustix::event::EventfdFlags;

use crate::{
    copies::Kept,
    home::{Asked, Caller, Report},
    limits::MESSAGE_QUEUE_MAX,
    peers::PeerReport,
    scan_pool::ScanResult,
    store::ConnectionId,
};

/// A request in progress: its place in the reactor's table, its own until it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskIndex(pub(crate) u32);

/// What arrives.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A peer that has proved itself.
    Connected(Box<Connection>),
    /// A catalog change has ended.
    Published(TaskIndex, Result<(), Refusal>),
    /// A connection that the node hung up on is closed; these transfers will not be reported.
    HungUp(Vec<u64>),
    /// A scan has ended.
    Scanned(TaskIndex, Box<ScanResult>),
    /// The thread of copies of logs has done something for one of this reactor's requests.
    Kept(TaskIndex, Result<Kept, Refusal>),
    /// To the first reactor: messages for the home.
    Transact(Asked),
    /// The home has answered one of this reactor's requests.
    Answered(Caller, Vec<Reply>),
    /// To the first reactor: a connection over which the home was asked has gone.
    Left(ConnectionId),
    /// To the first reactor: the thread of the log.
    Log(Report),
    /// To the first reactor: the thread that talks to other nodes.
    Peers(PeerReport),
    /// To the first reactor: the home, which was fetched from other nodes, is there.
    Arrived,
}

/// The mail of one reactor, and the bell by which it wakes.
#[derive(Debug)]
pub(crate) struct MessageQueue {
    mail: Mutex<VecDeque<Mail>>,
    bell: OwnedFd,
}

impl MessageQueue {
    pub(crate) fn new() -> std::io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { mail: Mutex::default(), bell })
    }

    /// Leaves something and wakes the reactor.
    pub(crate) fn send(&self, mail: Mail) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push_back(mail);
        self.ring();
    }

    /// Hands a new connection over and wakes the reactor; gives it back if the reactor has not
    /// taken in earlier mail.
    pub(crate) fn hand_over(&self, connection: Box<Connection>) -> Result<(), Box<Connection>> {
        {
            let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            if mail.len() >= MESSAGE_QUEUE_MAX {
                return Err(connection);
            }
            mail.push_back(Mail::Connected(connection));
        }
        self.ring();
        Ok(())
    }

    /// Wakes the reactor.
    pub(crate) fn ring(&self) {
        // The only failure is a counter that is full, and then the bell is rung already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_le_bytes());
    }

    /// Takes everything. The bell is silenced first, so that what comes meanwhile rings it again.
    pub(crate) fn take(&self) -> VecDeque<Mail> {
        // Nothing to read means nothing to silence.
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there is something.
    pub(crate) fn has_mail(&self) -> bool {
        !self.mail.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl AsFd for MessageQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Where the outcome of work on another thread goes.
#[derive(Debug)]
pub(crate) struct ReplyTo<T> {
    message_queue: Arc<MessageQueue>,
    task: TaskIndex,
    wrap: fn(TaskIndex, T) -> Mail,
}

impl<T> ReplyTo<T> {
    pub(crate) fn new(
        message_queue: Arc<MessageQueue>,
        task: TaskIndex,
        wrap: fn(TaskIndex, T) -> Mail,
    ) -> Self {
        Self { message_queue, task, wrap }
    }

    pub(crate) fn send(self, outcome: T) {
        self.message_queue.send((self.wrap)(self.task, outcome));
    }
}

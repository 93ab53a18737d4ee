//! Passes messages ("mail") from other threads of the node to a reactor, in a bounded queue.
//!
//! Invariants
//! - Senders never wait. Each kind of message is bounded: outcomes by the reactor's own requests,
//!   messages for the participant by the requests of all reactors, replies of other nodes by the
//!   requests outstanding there, new connections by `MESSAGE_QUEUE_MAX`.
//! - Ringing the bell after sending wakes a reactor that sleeps or is falling asleep: the bell
//!   stays rung until the reactor drains it.

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
    ids::{ConnectionId, TaskIndex},
    limits::MESSAGE_QUEUE_MAX,
    participant::{Caller, ParticipantRequest, Report},
    peers::PeerReport,
    scan_pool::ScanResult,
};

/// A message to a reactor.
#[derive(Debug)]
pub(crate) enum Mail {
    /// An authenticated peer has connected.
    Connected(Box<Connection>),
    /// A catalog change has ended.
    Published(TaskIndex, Result<(), Refusal>),
    /// A connection that the node hung up on is closed; these transfers will not complete.
    HungUp(Vec<u64>),
    /// A scan has ended.
    Scanned(TaskIndex, Box<ScanResult>),
    /// The thread of log replicas has served a request of this reactor.
    Kept(TaskIndex, Result<Kept, Refusal>),
    /// To the first reactor: messages for the participant.
    Transact(ParticipantRequest),
    /// The participant has answered one of this reactor's requests.
    Answered(Caller, Vec<Reply>),
    /// To the first reactor: a connection over which the participant got requests is closed.
    ConnectionClosed(ConnectionId),
    /// To the first reactor: a report of the log's thread.
    Log(Report),
    /// To the first reactor: a report of the thread that talks to other nodes.
    Peers(PeerReport),
    /// To the first reactor: the participant was recovered from other nodes, and can be taken.
    ParticipantRecovered,
}

/// The messages of one reactor, and the eventfd that wakes it.
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

    /// Queues a message and wakes the reactor.
    pub(crate) fn send(&self, mail: Mail) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push_back(mail);
        self.ring();
    }

    /// Queues a new connection and wakes the reactor. Returns the connection if the queue is full.
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
        // The only failure is a full counter, and then the bell is rung already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_le_bytes());
    }

    /// Takes all messages. Drains the bell first, so that later messages ring it again.
    pub(crate) fn take(&self) -> VecDeque<Mail> {
        // Nothing to read: the bell was not rung.
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are messages.
    pub(crate) fn has_mail(&self) -> bool {
        !self.mail.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl AsFd for MessageQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The request to which another thread sends the outcome of its work.
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

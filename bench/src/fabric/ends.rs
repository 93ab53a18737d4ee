//! Sends and receives the messages of a wire measurement in each way that is compared. PUSH sends
//! into a private ring (receive memory for one sender) whose address the sender knows. IPUSH sends
//! into an inbox, whose owner decides where a message goes.
//!
//! Invariants
//! - In both ways, the sender does the same operation over a connection that carries messages in
//!   one direction only. Only what the receiver has set up differs.
//! - Both sides poll and never sleep, as in the paper's ping-pong (5.2).

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Connection, Event, Operation, PostError, Region, Report,
    inbox::{ArrivalKind, Inbox},
    limits::SEND_BYTES_MAX,
};
use serde::{Deserialize, Serialize};

use super::error::{FabricBenchError, unexpected};

/// Maximum duration of a single step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The ways to send a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// One connection for requests and replies, with a private ring on each side.
    Both,
    /// A private ring for each sender, whose address the sender keeps.
    Push,
    /// An inbox of the receiver.
    Inbox,
}

/// The ends of one of the two processes.
#[derive(Debug)]
pub struct Ends {
    /// A plain connection, for both directions.
    pub both: Connection,
    /// The connection whose private ring the other's messages arrive in.
    pub push_in: Connection,
    /// The connection into the other's private ring.
    pub push_out: Connection,
    /// Receives the other process's messages.
    pub inbox: Inbox,
    /// The connection behind that inbox.
    pub from_partner: Connection,
    /// The connection into the other's inbox.
    pub to_partner: Connection,
    /// Lengths of messages that arrived over the plain connection while the process waited for
    /// something else.
    pub(crate) early: VecDeque<usize>,
}

/// A message that is sent many times.
#[derive(Debug)]
pub struct Outgoing {
    memory: Region,
    small: Vec<u8>,
    bytes: usize,
}

impl Outgoing {
    /// A message of this many bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(bytes: usize) -> Result<Self, FabricBenchError> {
        let memory = Region::allocate(bytes.next_multiple_of(4096).max(4096))?;
        let small = vec![0x5A; bytes.min(SEND_BYTES_MAX)];
        memory.copy_in(0, &vec![0x5A; bytes])?;
        Ok(Self { memory, small, bytes })
    }

    fn operation(&self) -> Result<Operation<'_>, FabricBenchError> {
        if self.bytes <= SEND_BYTES_MAX {
            return Ok(Operation::Send { bytes: &self.small });
        }
        let source = self.memory.slice(0, self.bytes)?;
        Ok(Operation::SendRegion { source, report: Report::PerMessage })
    }
}

/// Number of empty polls before a poller begins to yield its core between polls: a few
/// microseconds.
const POLLS_BEFORE_YIELD: u32 = 128;

/// Number of empty polls of a ring or an inbox between two polls of the connections next to it.
/// Those bring completions and free space, and over `tcp` also the inbox's messages.
const POLLS_PER_TENDING: u32 = 4;

/// A deadline that is checked rarely, because a poll may take less time than reading the clock.
struct Patience {
    polls: u32,
    deadline: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { polls: 0, deadline: Instant::now() + PATIENCE }
    }

    fn check(&mut self) -> Result<(), FabricBenchError> {
        self.polls = self.polls.wrapping_add(1);
        // Anything slower than shared memory needs other threads to run, on few cores on this one.
        if self.polls < POLLS_BEFORE_YIELD {
            std::hint::spin_loop()
        } else {
            std::thread::yield_now()
        }
        if self.polls.is_multiple_of(1 << 12) && Instant::now() > self.deadline {
            let found = "nothing within the time limit".to_owned();
            return Err(FabricBenchError::Partner { found, expected: "a message or a completion" });
        }
        Ok(())
    }
}

impl Ends {
    fn sending(&mut self, through: Through) -> &mut Connection {
        match through {
            Through::Both => &mut self.both,
            Through::Push => &mut self.push_out,
            Through::Inbox => &mut self.to_partner,
        }
    }

    /// Posts a message; polls while the queue is full.
    ///
    /// # Errors
    /// The other process has ended, or an operation failed.
    pub fn send(&mut self, through: Through, message: &Outgoing) -> Result<(), FabricBenchError> {
        let operation = message.operation()?;
        let mut patience = Patience::new();
        loop {
            match self.sending(through).post(0, operation.clone()) {
                Ok(()) => return Ok(()),
                Err(PostError::QueueFull { .. }) => self.complete_some(through)?,
                Err(error) => return Err(error.into()),
            }
            patience.check()?;
        }
    }

    /// Takes completions, and keeps messages that arrive meanwhile: the other process may be ahead.
    fn complete_some(&mut self, through: Through) -> Result<(), FabricBenchError> {
        let mut events = Vec::new();
        self.sending(through).poll(&mut events);
        for event in events {
            match event {
                Event::Completed { outcome, .. } => drop(outcome?),
                Event::Message { bytes } => self.early.push_back(bytes.len()),
                other => return Err(unexpected(&other, "a completion or a message")),
            }
        }
        Ok(())
    }

    /// Polls until a message arrives, and returns its length.
    ///
    /// # Errors
    /// The other process has ended, or nothing arrives in time.
    pub fn receive(
        &mut self,
        through: Through,
        events: &mut Vec<Event>,
        bytes: &mut Vec<u8>,
    ) -> Result<usize, FabricBenchError> {
        let mut patience = Patience::new();
        loop {
            let found = match through {
                Through::Both | Through::Push => self.poll_ring(through, events)?,
                Through::Inbox => self.poll_inbox(bytes)?,
            };
            if let Some(length) = found {
                return Ok(length);
            }
            // A plain connection reports both; in the other ways, completions need a poll only now
            // and then.
            if through != Through::Both && patience.polls % POLLS_PER_TENDING == POLLS_PER_TENDING - 1 {
                self.complete_some(through)?;
                if through == Through::Inbox {
                    self.tend()?;
                }
            }
            patience.check()?;
        }
    }

    /// Polls the connection behind the inbox, as its owner must: on some wires this sends out the
    /// news of free space.
    fn tend(&mut self) -> Result<(), FabricBenchError> {
        let mut events = Vec::new();
        self.from_partner.poll(&mut events);
        events.first().map_or(Ok(()), |event| Err(unexpected(event, "nothing beside the inbox")))
    }

    fn poll_ring(
        &mut self,
        through: Through,
        events: &mut Vec<Event>,
    ) -> Result<Option<usize>, FabricBenchError> {
        if self.early.is_empty() {
            let ring = if through == Through::Both { &mut self.both } else { &mut self.push_in };
            ring.poll(events);
            for event in events.drain(..) {
                match event {
                    Event::Message { bytes } => self.early.push_back(bytes.len()),
                    Event::Completed { outcome, .. } => drop(outcome?),
                    other => return Err(unexpected(&other, "a message")),
                }
            }
        }
        Ok(self.early.pop_front())
    }

    fn poll_inbox(&mut self, bytes: &mut Vec<u8>) -> Result<Option<usize>, FabricBenchError> {
        match self.inbox.next(bytes) {
            None => Ok(None),
            Some(arrival) if arrival.kind == ArrivalKind::Message => Ok(Some(bytes.len())),
            Some(arrival) => Err(FabricBenchError::Partner {
                found: format!("{arrival:?}"),
                expected: "a message in the inbox",
            }),
        }
    }

    /// Receives one message, with its bytes, over the connection for both directions.
    ///
    /// # Errors
    /// The other process has ended, or nothing arrives in time.
    pub fn message(&mut self) -> Result<Vec<u8>, FabricBenchError> {
        let (mut events, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while self.both.wait(&mut events, deadline) > 0 {
            for event in events.drain(..) {
                match event {
                    Event::Message { bytes } => return Ok(bytes),
                    Event::Completed { outcome, .. } => drop(outcome?),
                    other => return Err(unexpected(&other, "a message")),
                }
            }
        }
        Err(FabricBenchError::Partner {
            found: "no message within the time limit".into(),
            expected: "a message",
        })
    }

    /// Sends a message and waits for its echo, `count` times; returns microseconds per direction.
    ///
    /// # Errors
    /// The other process has ended, or an answer has another length.
    pub fn ping_pong(
        &mut self,
        through: Through,
        message: &Outgoing,
        count: u32,
    ) -> Result<f64, FabricBenchError> {
        let (mut events, mut bytes) = (Vec::new(), Vec::new());
        let started = Instant::now();
        for _ in 0..count {
            self.send(through, message)?;
            check_length(self.receive(through, &mut events, &mut bytes)?, message.bytes)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        self.settle(through)?;
        Ok(seconds / f64::from(count) / 2.0 * 1e6)
    }

    /// Sends `count` messages one after the other and waits until the last has been taken; returns
    /// gigabytes per second.
    ///
    /// # Errors
    /// The other process has ended, or did not take them.
    pub fn stream(
        &mut self,
        through: Through,
        message: &Outgoing,
        count: u32,
    ) -> Result<f64, FabricBenchError> {
        let started = Instant::now();
        for _ in 0..count {
            self.send(through, message)?;
        }
        let (mut events, mut bytes) = (Vec::new(), Vec::new());
        self.receive(through, &mut events, &mut bytes)?;
        let seconds = started.elapsed().as_secs_f64();
        self.settle(through)?;
        #[expect(clippy::cast_precision_loss, reason = "a message has at most 1 MiB")]
        let all_bytes = message.bytes as f64 * f64::from(count);
        Ok(all_bytes / seconds / 1e9)
    }

    /// Waits until nothing that was posted is in flight.
    pub(crate) fn settle(&mut self, through: Through) -> Result<(), FabricBenchError> {
        let mut patience = Patience::new();
        while self.sending(through).in_flight() > 0 {
            self.complete_some(through)?;
            patience.check()?;
        }
        Ok(())
    }
}

/// Checks that a message has the expected length.
pub(crate) fn check_length(found: usize, expected: usize) -> Result<(), FabricBenchError> {
    if found == expected {
        return Ok(());
    }
    Err(FabricBenchError::Partner {
        found: format!("a message of {found} bytes where {expected} were sent"),
        expected: "the bytes that were sent",
    })
}

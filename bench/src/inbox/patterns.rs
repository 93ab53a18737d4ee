//! Measures the receive memory of 64 or 1,000 senders if frequent senders have private rings and
//! all others share one.
//!
//! The patterns are those of the paper's table 1: six programs of the NAS Parallel Benchmarks, with
//! the number of partners that the busiest process receives from. Here the receiver does not know
//! its partners: [`Assignment`] finds them by their traffic.
//!
//! Invariants
//! - Every message is checked against what its sender sent, and the messages of each sender arrive
//!   in order.
//! - The memory of private rings for all senders is computed as the number of senders times the
//!   size of the inbox's rings.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use az::SaturatingAs;
use rackscan_fabric::{
    Address, ClusterKey, Connection, Event, Listener, Operation, PostError, connect,
    inbox::{ArrivalKind, Assignment, AssignmentConfig, Inbox, InboxConfig, Move, Ring, SenderId},
};
use serde::Serialize;

use crate::{
    Provenance,
    fabric::{FabricBenchError, Shape, distinct},
};

/// A program's communication, as the busiest process receives it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pattern {
    /// The program.
    pub name: &'static str,
    /// Number of partners that send to it often.
    pub partners: u16,
    /// The saving in percent that the paper's table 1 prints for 64 processes.
    pub paper_percent: f64,
}

/// Table 1.
pub const PATTERNS: [Pattern; 6] = [
    Pattern { name: "MG", partners: 9, paper_percent: 76.6 },
    Pattern { name: "CG", partners: 4, paper_percent: 92.2 },
    Pattern { name: "IS", partners: 1, paper_percent: 98.4 },
    Pattern { name: "LU", partners: 4, paper_percent: 92.2 },
    Pattern { name: "SP", partners: 6, paper_percent: 89.1 },
    Pattern { name: "BT", partners: 6, paper_percent: 89.1 },
];

/// Rounds of one pattern: a partner sends in each, any other process in one of [`RARELY`].
const ROUNDS: u32 = 200;
const RARELY: u32 = 50;
/// Rounds between two evaluations of the traffic.
const LOOK_EVERY: u32 = 10;
/// Bytes of a message: a header with sender and number, and a body made of them.
const MESSAGE_BYTES: usize = 1024;

const PATIENCE: Duration = Duration::from_secs(30);

/// One pattern with one number of senders, as one JSON line.
#[derive(Clone, Debug, Serialize)]
pub struct PatternLine {
    /// Source of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The pattern.
    pub pattern: Pattern,
    /// Number of processes that send.
    pub senders: u16,
    /// Bytes of one ring.
    pub ring_bytes: usize,
    /// Bytes of as many private rings as there are senders.
    pub push_bytes: u64,
    /// Bytes of the inbox's rings.
    pub inbox_bytes: u64,
    /// Bytes of its status ring, its table and its assembly buffers.
    pub inbox_overhead_bytes: u64,
    /// The saving in percent, rings against rings as in the paper.
    pub saving_percent: f64,
    /// The saving in percent with everything that the inbox allocates.
    pub saving_with_overhead_percent: f64,
    /// Messages sent and received.
    pub messages: u64,
    /// Number of moves of a sender to another ring while it was sending.
    pub moves: u64,
    /// Partners that had a private ring at the end.
    pub partners_private: u16,
    /// Other senders that had a private ring at the end.
    pub others_private: u16,
}

/// Runs all patterns with `senders` senders over `place`.
///
/// # Errors
/// The first failure; a message that is lost, duplicated or changed is an error, too.
pub fn patterns(
    place: &Address,
    senders: u16,
    shape: Shape,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PatternLine>, FabricBenchError> {
    let mut lines = Vec::new();
    for pattern in PATTERNS {
        progress(&format!("{}: {senders} senders, {} partners", pattern.name, pattern.partners));
        lines.push(run(place, senders, shape, pattern)?);
    }
    Ok(lines)
}

/// A sender and what it has sent.
struct Sender {
    connection: Connection,
    number: u16,
    sent: u32,
}

/// The receiver's knowledge of the senders.
#[derive(Default)]
struct Received {
    /// Inbox id of each sender number, learned from its first message.
    numbers: BTreeMap<u16, SenderId>,
    /// Number of messages by sender.
    counts: BTreeMap<u16, u32>,
}

/// Whether a sender is one of the partners. They are spread over the numbers, so that nothing
/// depends on the order of connecting.
fn is_partner(number: u16, senders: u16, pattern: Pattern) -> bool {
    let apart = senders / pattern.partners;
    number.is_multiple_of(apart) && number / apart < pattern.partners
}

/// The receiver with all of its senders.
struct Play {
    inbox: Inbox,
    sending: Vec<Sender>,
    /// The receiver's ends of the connections.
    _accepted: Vec<Connection>,
    received: Received,
    bytes: Vec<u8>,
}

fn run(
    place: &Address,
    senders: u16,
    shape: Shape,
    pattern: Pattern,
) -> Result<PatternLine, FabricBenchError> {
    let mut play = Play::new(place, senders, shape, pattern)?;
    let partner = |number: u16| is_partner(number, senders, pattern);
    play.perform(pattern.partners, &partner)?;
    let messages = play.finish()?;
    let Play { inbox, received, .. } = play;
    let private = |partners: bool| {
        let theirs = received.numbers.iter().filter(|(number, _)| partner(**number) == partners);
        let count =
            theirs.filter(|(_, sender)| matches!(inbox.ring_of(**sender), Some(Ring::Private(_)))).count();
        count.saturating_as::<u16>()
    };
    let memory = inbox.memory();
    let push_bytes = u64::from(senders) * shape.ring_bytes as u64;
    let inbox_bytes = memory.ring_bytes as u64;
    let overhead = (memory.status_bytes + memory.table_bytes + memory.assembly_bytes) as u64;
    Ok(PatternLine {
        provenance: Provenance::now("inbox-memory", 0.0),
        pattern,
        senders,
        ring_bytes: shape.ring_bytes,
        push_bytes,
        inbox_bytes,
        inbox_overhead_bytes: overhead,
        saving_percent: percent(push_bytes, inbox_bytes),
        saving_with_overhead_percent: percent(push_bytes, inbox_bytes + overhead),
        messages,
        moves: inbox.counters().moves,
        partners_private: private(true),
        others_private: private(false),
    })
}

impl Play {
    fn new(place: &Address, senders: u16, shape: Shape, pattern: Pattern) -> Result<Self, FabricBenchError> {
        let config = InboxConfig {
            private_rings: pattern.partners,
            shared_rings: 1,
            senders_max: senders,
            ..shape.config()
        };
        let inbox = Inbox::new(config)?;
        let key = ClusterKey::from_bytes([3; 32]);
        let address = distinct(place, &format!("{}-{senders}", pattern.name));
        let mut listener = Listener::bind_inboxes(&address, &key, vec![inbox.handle()])?;
        let (mut sending, mut accepted) = (Vec::new(), Vec::new());
        for number in 0..senders {
            let deadline = Instant::now() + PATIENCE;
            let connection = connect(listener.address(), &key, deadline)?;
            sending.push(Sender { connection, number, sent: 0 });
            accepted.push(crate::fabric::accept(&mut listener, deadline)?);
        }
        Ok(Self { inbox, sending, _accepted: accepted, received: Received::default(), bytes: Vec::new() })
    }

    /// Runs all rounds, and evaluates the traffic between them.
    fn perform(&mut self, rings: u16, partner: &dyn Fn(u16) -> bool) -> Result<(), FabricBenchError> {
        let mut assignment = Assignment::new(AssignmentConfig::new(rings));
        let Self { inbox, sending, received, bytes, .. } = self;
        for round in 0..ROUNDS {
            for sender in &mut *sending {
                if partner(sender.number) || round % RARELY == u32::from(sender.number) % RARELY {
                    send(sender, inbox, received, bytes)?;
                }
            }
            let sent = sending.iter().map(|sender| u64::from(sender.sent)).sum();
            take_until(sent, (inbox, sending, received, bytes))?;
            if round % LOOK_EVERY == LOOK_EVERY - 1 {
                for step in assignment.decide(&inbox.traffic()) {
                    let _ = match step {
                        Move::ToPrivate(sender) => inbox.make_private(sender)?,
                        Move::ToShared(sender) => inbox.make_shared(sender)?,
                    };
                }
            }
        }
        Ok(())
    }

    /// Receives messages that are still in flight; returns the number of all messages.
    fn finish(&mut self) -> Result<u64, FabricBenchError> {
        let messages: u64 = self.sending.iter().map(|sender| u64::from(sender.sent)).sum();
        let Self { inbox, sending, received, bytes, .. } = self;
        take_until(messages, (inbox, sending, received, bytes))?;
        Ok(messages)
    }
}

/// Receives until as many messages have arrived as were sent.
fn take_until(
    sent: u64,
    (inbox, sending, received, bytes): (&mut Inbox, &mut [Sender], &mut Received, &mut Vec<u8>),
) -> Result<(), FabricBenchError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        take_all(inbox, received, bytes)?;
        let came: u64 = received.counts.values().map(|count| u64::from(*count)).sum();
        if came == sent {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(wrong(format!("{came} messages of {sent}"), "every message"));
        }
        // A message that waits for free space is sent on when its sender polls.
        for sender in &mut *sending {
            drop_completions(&mut sender.connection)?;
        }
        std::thread::yield_now();
    }
}

fn percent(all: u64, used: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share of a few megabytes")]
    let share = used as f64 / all as f64;
    (1.0 - share) * 100.0
}

fn wrong(found: String, expected: &'static str) -> FabricBenchError {
    FabricBenchError::Partner { found, expected }
}

/// The message `count` of sender `number`.
fn message(number: u16, count: u32) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    bytes[2..6].copy_from_slice(&count.to_le_bytes());
    let seed = u32::from(number).wrapping_mul(0x9E37).wrapping_add(count);
    for (at, byte) in (0_u32..).zip(&mut bytes[6..]) {
        *byte = seed.wrapping_add(at).wrapping_mul(0x85EB_CA6B).to_be_bytes()[0];
    }
    bytes
}

/// Sends the next message; while the ring is full, the receiver takes messages out of it.
fn send(
    sender: &mut Sender,
    inbox: &mut Inbox,
    received: &mut Received,
    bytes: &mut Vec<u8>,
) -> Result<(), FabricBenchError> {
    let body = message(sender.number, sender.sent);
    sender.sent += 1;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match sender.connection.post(0, Operation::Send { bytes: &body }) {
            Ok(()) => break,
            Err(PostError::QueueFull { .. }) if Instant::now() < deadline => {
                take_all(inbox, received, bytes)?;
            }
            Err(error) => return Err(error.into()),
        }
        drop_completions(&mut sender.connection)?;
    }
    drop_completions(&mut sender.connection)
}

fn drop_completions(connection: &mut Connection) -> Result<(), FabricBenchError> {
    let mut events = Vec::new();
    connection.poll(&mut events);
    for event in events {
        match event {
            Event::Completed { outcome, .. } => drop(outcome?),
            other => return Err(wrong(format!("{other:?}"), "a completion")),
        }
    }
    Ok(())
}

/// Takes all messages that have arrived, and checks them.
fn take_all(inbox: &mut Inbox, received: &mut Received, bytes: &mut Vec<u8>) -> Result<(), FabricBenchError> {
    while let Some(arrival) = inbox.next(bytes) {
        if arrival.kind != ArrivalKind::Message {
            return Err(wrong(format!("{arrival:?}"), "a message"));
        }
        let Some(&[low, high]) = bytes.first_chunk::<2>() else {
            return Err(wrong(format!("a message of {} bytes", bytes.len()), "a whole message"));
        };
        let number = u16::from_le_bytes([low, high]);
        let count = received.counts.entry(number).or_default();
        if **bytes != message(number, *count) {
            return Err(wrong(
                format!("another message {count} of sender {number}"),
                "the message that was sent",
            ));
        }
        *count += 1;
        let known = *received.numbers.entry(number).or_insert(arrival.sender);
        if known != arrival.sender {
            return Err(wrong(format!("sender {number} under two names"), "one name"));
        }
    }
    Ok(())
}

//! Sets up an inbox with its listener and callers, and makes messages that contain their sender and
//! number.

use std::{
    collections::HashMap,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::atomic::{AtomicU32, Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Address, ClusterKey, ConnectError, Connection, Event, Listener, Operation, OperationError, PostError,
    Region, Report, connect,
    inbox::{Arrival, ArrivalKind, Inbox, InboxConfig, SenderId, WhenFull},
    limits::{MESSAGE_BYTES_MAX, SEND_BYTES_MAX},
};
use rustix::event::{PollFd, PollFlags};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestWire {
    Shm,
    Tcp,
    #[cfg(feature = "verbs")]
    Verbs,
}

impl TestWire {
    /// Whether senders write into the memory of the inbox themselves. Otherwise packets come
    /// through an adapter: a sender reports its waits and refusals with its next packet, and learns
    /// of room through the accepted connection.
    pub(crate) fn fills_rings(self) -> bool {
        matches!(self, Self::Shm | Self::Tcp)
    }
}

/// No step of any promise takes as long, on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn key() -> ClusterKey {
    ClusterKey::from_bytes([9; 32])
}

fn fresh_address(wire: TestWire) -> Address {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    match wire {
        TestWire::Shm => {
            let name =
                format!("rs-inbox-{}-{}.sock", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            Address::Shm { path: std::env::temp_dir().join(name) }
        }
        TestWire::Tcp => Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        #[cfg(feature = "verbs")]
        TestWire::Verbs => {
            let place =
                std::env::var("RACKSCAN_VERBS_LISTEN").expect("RACKSCAN_VERBS_LISTEN: device@address");
            format!("verbs:{place}:0").parse().expect("an address")
        }
    }
}

/// The address that a caller uses for a listener: on `verbs`, with the caller's own device.
pub(crate) fn seen_by_caller(listener: &Listener) -> Address {
    match listener.address() {
        Address::Verbs { host, port, .. } => {
            let (device, host) = (std::env::var("RACKSCAN_VERBS_CALL").ok(), host.clone());
            Address::Verbs { device, host, port: *port }
        }
        other => other.clone(),
    }
}

pub(crate) fn call(listener: &Listener) -> Result<Connection, ConnectError> {
    connect(&seen_by_caller(listener), &key(), soon())
}

/// Serves accepted connections as their owner must: polls when they have events, sleeps otherwise.
#[derive(Debug)]
pub(crate) struct Attendant {
    stop: UnixStream,
    thread: Option<JoinHandle<Connection>>,
}

impl Attendant {
    pub(crate) fn new(mut connection: Connection) -> Self {
        let (stop, stopped) = UnixStream::pair().expect("a pair of sockets");
        let attend = move || {
            let mut events = Vec::new();
            loop {
                connection.poll(&mut events);
                if !connection.arm() {
                    continue;
                }
                let mut fds = vec![PollFd::new(&stopped, PollFlags::IN)];
                if connection.ended().is_none() {
                    fds.push(PollFd::new(&connection, PollFlags::IN));
                }
                rustix::event::poll(&mut fds, None).expect("poll");
                if !fds[0].revents().is_empty() {
                    return connection;
                }
            }
        };
        Self { stop, thread: Some(std::thread::spawn(attend)) }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.stop.shutdown(Shutdown::Both).expect("tell the attendant");
        let attended = self.thread.take().expect("a thread").join();
        assert!(std::thread::panicking() || attended.is_ok(), "the attendant has panicked");
    }
}

/// Small enough that every edge is met often.
pub(crate) fn small() -> InboxConfig {
    InboxConfig {
        ring_bytes: 32 * 1024,
        private_rings: 2,
        shared_rings: 1,
        packet_bytes: 4096,
        message_bytes_max: MESSAGE_BYTES_MAX,
        senders_max: 16,
        when_full: WhenFull::Stall,
    }
}

pub(crate) fn listen(wire: TestWire, inboxes: &[&Inbox]) -> Listener {
    let handles = inboxes.iter().map(|inbox| inbox.handle()).collect();
    Listener::bind_inboxes(&fresh_address(wire), &key(), handles).expect("bind")
}

pub(crate) fn stage(wire: TestWire, config: InboxConfig) -> (Inbox, Listener) {
    let inbox = Inbox::new(config).expect("an inbox");
    let listener = listen(wire, &[&inbox]);
    (inbox, listener)
}

pub(crate) fn accept(listener: &mut Listener) -> Connection {
    listener.accept_until(soon()).expect("accept").expect("a caller in time")
}

/// A further caller, the accepted end, and the caller's name.
pub(crate) fn meet(listener: &mut Listener) -> (Connection, Connection, SenderId) {
    let caller = call(listener).expect("connect");
    let accepted = accept(listener);
    let (_, sender) = accepted.inbox().expect("a name in the inbox");
    (caller, accepted, sender)
}

/// A small generator: the same numbers for the same seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    /// Lengths at and around every edge, and some between.
    pub(crate) fn length(&mut self, packet: usize) -> usize {
        match self.roll(8) {
            0 => self.roll(4),
            1 => 54 + self.roll(6),
            2 => 510 + self.roll(5),
            3 => packet - 2 + self.roll(5),
            4 => 2 * packet - 2 + self.roll(5),
            5 => self.roll(8 * packet),
            _ => self.roll(2000),
        }
    }
}

/// Message `number` of a sender: its length, report, and bytes that differ at every offset.
pub(crate) fn script(sender: u64, number: u64, packet: usize) -> (Report, Vec<u8>) {
    let mut dice = Dice(sender << 40 ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    dice.roll(2);
    let length = dice.length(packet);
    let report = if dice.roll(2) == 0 { Report::PerMessage } else { Report::PerPacket };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        let word = (bytes.len() as u64 ^ sender << 48 ^ number << 24).wrapping_mul(0x85EB_CA6B_9E37_79B9);
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(length);
    (report, bytes)
}

/// Sends the messages `range` of the script. Retries those that are refused.
pub(crate) fn play(connection: &mut Connection, sender: u64, range: std::ops::Range<u64>, packet: usize) {
    let region = Region::allocate(MESSAGE_BYTES_MAX).expect("allocate");
    for number in range {
        let (report, bytes) = script(sender, number, packet);
        region.copy_in(0, &bytes).expect("copy in");
        loop {
            // Sometimes sent from plain memory; such messages are always reported whole.
            let operation =
                if report == Report::PerMessage && number % 2 == 0 && bytes.len() <= SEND_BYTES_MAX {
                    Operation::Send { bytes: &bytes }
                } else {
                    Operation::SendRegion { source: region.slice(0, bytes.len()).expect("a slice"), report }
                };
            connection.post(number, operation).expect("post");
            let mut events = Vec::new();
            assert!(connection.wait(&mut events, soon()) > 0, "message {number} of {sender} is stuck");
            match events.as_slice() {
                [Event::Completed { outcome: Ok(_), .. }] => break,
                [Event::Completed { outcome: Err(OperationError::InboxFull { .. }), .. }] => {
                    std::thread::yield_now();
                }
                other => panic!("message {number} of {sender}: {other:?}"),
            }
        }
    }
}

/// Posts without waiting for the completion. Returns false when the queue is full.
pub(crate) fn try_post(connection: &mut Connection, bytes: &[u8]) -> bool {
    match connection.post(0, Operation::Send { bytes }) {
        Ok(()) => true,
        Err(PostError::QueueFull { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Checks arrivals against the script, sender by sender.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    senders: HashMap<SenderId, Heard>,
    packet: usize,
}

#[derive(Debug, Default)]
struct Heard {
    script: u64,
    next: u64,
    part: Vec<u8>,
    left: bool,
}

impl Audience {
    pub(crate) fn new(packet: usize) -> Self {
        Self { senders: HashMap::new(), packet }
    }

    pub(crate) fn expect(&mut self, sender: SenderId, script: u64) {
        let fresh = self.senders.insert(sender, Heard { script, ..Heard::default() });
        assert!(fresh.is_none(), "the name {sender} was given twice");
    }

    pub(crate) fn heard(&self, sender: SenderId) -> u64 {
        self.senders[&sender].next
    }

    pub(crate) fn has_left(&self, sender: SenderId) -> bool {
        self.senders[&sender].left
    }

    pub(crate) fn total(&self) -> u64 {
        self.senders.values().map(|heard| heard.next).sum()
    }

    pub(crate) fn check(&mut self, arrival: Arrival, bytes: &[u8]) {
        let heard = self.senders.get_mut(&arrival.sender).expect("a sender that was expected");
        assert!(!heard.left, "{arrival:?} after it left");
        assert_eq!(arrival.message, heard.next, "{arrival:?}");
        let (report, expected) = script(heard.script, heard.next, self.packet);
        match arrival.kind {
            ArrivalKind::Message => {
                assert_eq!(report, Report::PerMessage);
                assert!(bytes == expected, "{arrival:?}: {} bytes, expected {}", bytes.len(), expected.len());
                heard.next += 1;
            }
            ArrivalKind::Packet { offset, message_bytes, last } => {
                assert_eq!(report, Report::PerPacket);
                assert_eq!((offset, message_bytes), (heard.part.len() as u64, expected.len() as u64));
                heard.part.extend_from_slice(bytes);
                assert_eq!(last, heard.part.len() == expected.len());
                if last {
                    assert!(heard.part == expected, "{arrival:?}");
                    heard.part.clear();
                    heard.next += 1;
                }
            }
            ArrivalKind::Left => heard.left = true,
            ArrivalKind::Immediate { .. } => panic!("{arrival:?}"),
        }
    }

    /// Waits for the next arrival and checks it.
    pub(crate) fn hear(&mut self, inbox: &mut Inbox, bytes: &mut Vec<u8>) -> Arrival {
        let arrival = inbox.wait(bytes, soon()).unwrap_or_else(|| panic!("nothing arrives: {self:?}"));
        self.check(arrival, bytes);
        arrival
    }
}

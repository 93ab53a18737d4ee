//! Measures a round trip through post boxes and one by messages, between two threads.
//!
//! Run: `cargo run --release -p rackscan-fabric --example postbench [-- ROUNDS]`. The transports
//! alternate in short turns on one pair of connections each, so that other load of the machine
//! affects all of them alike. Figures are medians over turns, and ratios are medians of the ratios
//! of consecutive turns.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Address, ClusterKey, Connection, Event, Listener, Operation, RemoteRegion, connect,
    inbox::{ArrivalKind, Inbox, InboxConfig},
    post::{PostBoxes, PostSender, PostShape},
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TURNS: usize = 41;
const LENGTHS: [usize; 2] = [100, 1024];
const BOXES: usize = 4;
const BODY_BYTES_MAX: usize = 2048;
/// Completions of writes are polled when so many wait.
const UNPOLLED_MAX: usize = 32;

#[derive(Clone, Copy)]
enum Transport {
    Message,
    Box,
}

/// One end, which waits as a client does (polls, then sleeps) or polls only.
struct End {
    connection: Connection,
    /// Where messages arrive, if not at the connection.
    inbox: Option<Inbox>,
    boxes: PostBoxes,
    sender: PostSender,
    events: Vec<Event>,
    body: Vec<u8>,
    sleeps: bool,
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn message(connection: &mut Connection, inbox: Option<&mut Inbox>) -> Outcome<Vec<u8>> {
    let mut events = Vec::new();
    if let Some(inbox) = inbox {
        let mut bytes = Vec::new();
        return inbox.wait(&mut bytes, late()).map(|_| bytes).ok_or_else(|| "no message in time".into());
    }
    loop {
        if connection.wait(&mut events, late()) == 0 {
            return Err("no message in time".into());
        }
        for event in events.drain(..) {
            match event {
                Event::Message { bytes } => return Ok(bytes),
                Event::Closed(ending) => return Err(ending.to_string().into()),
                Event::Completed { .. } | Event::Immediate { .. } => {}
            }
        }
    }
}

impl End {
    fn new(mut connection: Connection, mut inbox: Option<Inbox>, sleeps: bool) -> Outcome<Self> {
        let shape = PostShape::new(BOXES, BODY_BYTES_MAX)?;
        let boxes = PostBoxes::new(shape)?;
        let name = boxes.register(&mut connection)?.to_bytes();
        connection.post(0, Operation::Send { bytes: &name })?;
        let peer = message(&mut connection, inbox.as_mut())?;
        let peer = RemoteRegion::from_bytes(peer.as_slice().try_into()?);
        let sender = PostSender::new(peer, shape)?;
        Ok(Self { connection, inbox, boxes, sender, events: Vec::new(), body: Vec::new(), sleeps })
    }

    fn send(&mut self, transport: Transport, body: &[u8]) -> Outcome<()> {
        match transport {
            Transport::Message => self.connection.post(1, Operation::Send { bytes: body })?,
            Transport::Box => self.sender.send(&mut self.connection, 1, 0, body)?,
        }
        Ok(())
    }

    /// Receives the next message, over either transport, into `body`; `None` when the connection
    /// has ended.
    fn next(&mut self) -> Outcome<Option<Transport>> {
        loop {
            if let Some(transport) = self.look()? {
                return Ok(Some(transport));
            }
            if self.connection.ended().is_some() {
                return Ok(None);
            }
            if self.sleeps {
                self.connection.wait_or(&mut self.events, late(), || self.boxes.look());
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Polls the box and the connection once.
    fn look(&mut self) -> Outcome<Option<Transport>> {
        if self.connection.in_flight() < UNPOLLED_MAX
            && let Some(body) = self.boxes.poll(0)
        {
            self.body.clear();
            self.body.extend_from_slice(body);
            return Ok(Some(Transport::Box));
        }
        if self.events.is_empty() {
            self.connection.poll(&mut self.events);
        }
        let mut found = None;
        if let Some(inbox) = &mut self.inbox
            && inbox.next(&mut self.body).is_some_and(|arrival| arrival.kind == ArrivalKind::Message)
        {
            found = Some(Transport::Message);
        }
        for event in self.events.drain(..) {
            match event {
                Event::Message { bytes } => {
                    self.body = bytes;
                    found = Some(Transport::Message);
                }
                Event::Completed { outcome: Err(error), .. } => return Err(error.into()),
                Event::Completed { .. } | Event::Immediate { .. } | Event::Closed(_) => {}
            }
        }
        Ok(found)
    }
}

/// Answers every message over the same transport with as many bytes.
fn answer(mut end: End) -> Outcome<()> {
    while let Some(transport) = end.next()? {
        let body = std::mem::take(&mut end.body);
        end.send(transport, &body)?;
        end.body = body;
    }
    Ok(())
}

/// The thread that answers.
enum Peer {
    Thread(std::thread::JoinHandle<Outcome<()>>),
    /// This thread, in turn with asking: the cost of the two ends without scheduling.
    Here(Box<End>),
}

/// Microseconds of a round trip, over a turn of `rounds`.
fn turn(end: &mut End, peer: &mut Peer, transport: Transport, length: usize, rounds: u32) -> Outcome<f64> {
    let body = vec![7; length];
    let start = Instant::now();
    for _ in 0..rounds {
        end.send(transport, &body)?;
        if let Peer::Here(peer) = peer {
            while peer.look()?.is_none() {}
            peer.send(transport, &body)?;
            while end.look()?.is_none() {}
        } else {
            end.next()?.ok_or("the peer has gone")?;
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How the ends wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    OneThread,
    Polls,
    Sleeps,
}

fn measure(address: &Address, waits: Waits, through_inbox: bool, rounds: u32) -> Outcome<()> {
    let key = ClusterKey::generate()?;
    let inbox = if through_inbox { Some(Inbox::new(InboxConfig::default())?) } else { None };
    let handles = inbox.iter().map(Inbox::handle).collect();
    let mut listener = Listener::bind_inboxes(address, &key, handles)?;
    let caller = connect(listener.address(), &key, late())?;
    let accepted = listener.accept_until(late())?.ok_or("nobody called")?;
    let sleeps = waits == Waits::Sleeps;
    let opened = std::thread::spawn(move || End::new(accepted, inbox, sleeps));
    let mut end = End::new(caller, None, sleeps)?;
    let answerer = opened.join().map_err(|_| "the answerer panicked")??;
    let mut peer = match waits {
        Waits::OneThread => Peer::Here(Box::new(answerer)),
        Waits::Polls | Waits::Sleeps => Peer::Thread(std::thread::spawn(move || answer(answerer))),
    };
    for length in LENGTHS {
        let (mut messages, mut boxes, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..TURNS {
            let mut microseconds = |transport| turn(&mut end, &mut peer, transport, length, rounds);
            let (message, through_box) = if number % 2 == 0 {
                let message = microseconds(Transport::Message)?;
                (message, microseconds(Transport::Box)?)
            } else {
                let through_box = microseconds(Transport::Box)?;
                (microseconds(Transport::Message)?, through_box)
            };
            messages.push(message);
            boxes.push(through_box);
            ratios.push(message / through_box);
        }
        println!(
            "{:?} {waits:?}{} {length} bytes: message {:.2} us, box {:.2} us, message/box {:.2}",
            end.connection.wire(),
            if through_inbox { " inbox" } else { "" },
            median(messages),
            median(boxes),
            median(ratios)
        );
    }
    drop(end);
    if let Peer::Thread(thread) = peer {
        thread.join().map_err(|_| "the answerer panicked")??;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(2000), |rounds| rounds.parse())?;
    let path = std::env::temp_dir().join(format!("postbench-{}.sock", std::process::id()));
    // Requests arrive in an inbox, as at a node; sleeping on it would need a reactor.
    let cases = [
        (Waits::OneThread, false),
        (Waits::OneThread, true),
        (Waits::Polls, false),
        (Waits::Polls, true),
        (Waits::Sleeps, false),
    ];
    for (waits, through_inbox) in cases {
        measure(&Address::Shm { path: path.clone() }, waits, through_inbox, rounds)?;
        measure(&"tcp:127.0.0.1:0".parse()?, waits, through_inbox, rounds)?;
    }
    Ok(())
}

//! Who posts requests, polls connections and wakes the callers?
//!
//! One thread owns all connections of a cluster. Callers hand it [`Job`]s and await their answers;
//! bulk data never passes through it, because nodes write that into the target memory themselves.
//!
//! Invariants
//! - Every job is answered exactly once: by its reply, the loss of its node, or its deadline.
//! - The queue of jobs is never full: a caller holds one of its node's [`REQUESTS_PER_NODE_MAX`]
//!   permits until the answer.
//! - The thread sleeps in the kernel when there is nothing to do.

mod link;
mod reads;

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_fabric::Event;
use rackscan_format::message::{LoadReport, ReplyMessage, Request};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::{
    ClientError,
    away::Away,
    dial::{Dial, Line},
    doorbell::Doorbell,
    limits::{CLOSE_TIME_MAX, DRIVER_SPIN, EXPIRY_PERIOD, REQUESTS_PER_NODE_MAX},
    pulse::Lateness,
    race::{Answered, Answers, Race},
    reach::{Dialled, Reached},
    target::Span,
};
use link::{Begin, Link};
pub(crate) use reads::ReadJob;

/// A request on its way to a node.
#[derive(Debug)]
pub(crate) struct Job {
    /// Position of the node.
    pub(crate) node: usize,
    /// The request; the key in its target is filled in by the driver, which knows the connection.
    pub(crate) request: Request,
    /// The kind of the request, for messages.
    pub(crate) during: &'static str,
    /// Memory that the node may use until it has answered.
    pub(crate) span: Option<Span>,
    /// One of the node's requests; others may have it once nobody waits for this one any more.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// Whether others make up for the node if it is unresponsive.
    pub(crate) goes_without: bool,
    /// Whether the caller is told that others have answered the like far sooner.
    pub(crate) race: Option<Race>,
    /// When the answer must be there.
    pub(crate) deadline: Instant,
    /// Where the answer goes; absent when nobody waits for it, and then closing waits for it
    /// instead.
    pub(crate) answer: Option<oneshot::Sender<Result<Reply, ClientError>>>,
}

/// A node's answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) message: ReplyMessage,
    /// The memory again, which now nobody else uses.
    pub(crate) span: Option<Span>,
    /// Bytes of the request's and the reply's messages.
    pub(crate) message_bytes: u64,
}

#[derive(Debug)]
enum Command {
    Run(Box<Job>),
    Read(Box<ReadJob>),
    Dialled {
        node: usize,
        line: Result<Box<Line>, ClientError>,
    },
    /// It was found elsewhere that the node does not answer.
    Suspect {
        node: usize,
    },
    Close,
}

/// The handle of the driver's thread. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct Driver {
    commands: mpsc::Sender<Command>,
    bell: Arc<Doorbell>,
    loads: Arc<Loads>,
    thread: Option<JoinHandle<()>>,
}

/// How busy each node said it was, last.
#[derive(Debug)]
struct Loads(Vec<Mutex<LoadReport>>);

impl Loads {
    fn of(&self, node: usize) -> Option<LoadReport> {
        self.0.get(node).map(|load| *load.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, node: usize, report: LoadReport) {
        if let Some(load) = self.0.get(node) {
            *load.lock().unwrap_or_else(PoisonError::into_inner) = report;
        }
    }
}

impl Driver {
    /// Starts the thread over connections that have been made, and some to nodes that are away. If
    /// it `keeps_trying`, a node that does not answer is dialled again and again.
    pub(crate) fn start(
        lines: Vec<(Reached, Arc<Away>)>,
        (request_timeout, keeps_trying): (Duration, bool),
    ) -> Result<Self, ClientError> {
        // Room for every permitted job, one dial result and one suspicion for each node, and the
        // end.
        let (commands, received) = mpsc::channel(lines.len() * (REQUESTS_PER_NODE_MAX + 2) + 1);
        let bell = Arc::new(Doorbell::new()?);
        let loads = Arc::new(Loads(lines.iter().map(|_| Mutex::default()).collect()));
        let mut links = Vec::with_capacity(lines.len());
        for (node, (Reached { dial, line }, away)) in lines.into_iter().enumerate() {
            let begin = match line {
                Dialled::Connected(line) => Begin::Connected(line),
                Dialled::Failed => Begin::Down,
                Dialled::Later { since, line } => {
                    let (commands, bell) = (commands.clone(), Arc::clone(&bell));
                    apart(move || {
                        // A thread that has vanished has not connected.
                        let line = line.blocking_recv().unwrap_or(Err(ClientError::Closed)).map(Box::new);
                        let _ = commands.try_send(Command::Dialled { node, line });
                        bell.ring();
                    })?;
                    Begin::Dialled(since)
                }
            };
            links.push(Link::new(dial, begin, (away, keeps_trying), request_timeout));
        }
        let mut run = Run {
            links,
            lateness: Lateness::new(Instant::now()),
            answers: Answers::default(),
            received,
            commands: commands.clone(),
            bell: Arc::clone(&bell),
            loads: Arc::clone(&loads),
            events: Vec::new(),
            closing: None,
        };
        let thread = std::thread::Builder::new().name("rackscan-client".to_owned()).spawn(move || run.run());
        let thread = thread.map_err(|error| ClientError::Os {
            action: "start the client's thread",
            source: Arc::new(error),
        })?;
        Ok(Self { commands, bell, loads, thread: Some(thread) })
    }

    /// Hands a job over. False if the thread has ended.
    pub(crate) fn submit(&self, job: Job) -> bool {
        let accepted = self.commands.try_send(Command::Run(Box::new(job))).is_ok();
        self.bell.ring();
        accepted
    }

    /// Hands reads over. False if the thread has ended.
    pub(crate) fn submit_read(&self, job: ReadJob) -> bool {
        let accepted = self.commands.try_send(Command::Read(Box::new(job))).is_ok();
        self.bell.ring();
        accepted
    }

    /// A node was found not to answer. If there is no room for the news, it is found out here, too.
    pub(crate) fn suspect(&self, node: usize) {
        let _ = self.commands.try_send(Command::Suspect { node });
        self.bell.ring();
    }

    /// How busy a node said it was, last.
    pub(crate) fn load(&self, node: usize) -> Option<LoadReport> {
        self.loads.of(node)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The queue has room kept for this; if the thread is gone there is nothing to close.
        let _ = self.commands.try_send(Command::Close);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported on standard error by then.
            let _ = thread.join();
        }
    }
}

/// The thread's state.
struct Run {
    links: Vec<Link>,
    received: mpsc::Receiver<Command>,
    commands: mpsc::Sender<Command>,
    bell: Arc<Doorbell>,
    loads: Arc<Loads>,
    events: Vec<Event>,
    lateness: Lateness,
    /// Of requests that are compared.
    answers: Answers,
    /// Since when the cluster is being closed.
    closing: Option<Instant>,
}

impl Run {
    fn run(&mut self) {
        let mut busy_at = Instant::now();
        let mut expired_at = busy_at;
        while !self.is_closed() {
            let polled_at = Instant::now();
            let busy = self.take_commands() | self.poll();
            let now = Instant::now();
            // Of a turn of this loop nothing waits; what it takes longer than that, others had the
            // processor.
            self.lateness.note(now.saturating_duration_since(polled_at).saturating_sub(EXPIRY_PERIOD), now);
            if now >= expired_at + EXPIRY_PERIOD {
                expired_at = now;
                for link in &mut self.links {
                    link.expire(now);
                    link.see_to(polled_at, &self.lateness);
                }
                for (node, link) in self.links.iter_mut().enumerate() {
                    link.see_to_races(node, polled_at, &self.answers);
                }
            }
            if busy {
                busy_at = now;
            } else if now < busy_at + DRIVER_SPIN {
                std::hint::spin_loop();
            } else {
                self.sleep();
            }
        }
    }

    fn is_closed(&self) -> bool {
        let Some(since) = self.closing else { return false };
        since.elapsed() >= CLOSE_TIME_MAX || self.links.iter().all(|link| !link.has_detached())
    }

    fn take_commands(&mut self) -> bool {
        let mut any = false;
        while let Ok(command) = self.received.try_recv() {
            any = true;
            match command {
                Command::Run(job) => self.begin(*job),
                Command::Read(job) => {
                    if let Some(link) = self.links.get_mut(job.node) {
                        link.read(*job);
                    }
                }
                Command::Dialled { node, line } => {
                    let again =
                        self.links.get_mut(node).and_then(|link| link.dialled(line.map(|line| *line)));
                    if let Some(dial) = again.filter(|_| self.closing.is_none()) {
                        self.dial(node, dial);
                    }
                }
                Command::Suspect { node } => {
                    if let Some(dial) = self.links.get_mut(node).and_then(Link::is_suspect) {
                        self.dial(node, dial);
                    }
                }
                Command::Close => self.closing = Some(Instant::now()),
            }
        }
        any
    }

    fn begin(&mut self, job: Job) {
        let node = job.node;
        let Some(link) = self.links.get_mut(node) else { return };
        if let Some(dial) = link.begin(job) {
            self.dial(node, dial);
        }
    }

    /// Connects to a lost node again, on a thread of its own because that takes time.
    fn dial(&self, node: usize, dial: Dial) {
        let (commands, bell) = (self.commands.clone(), Arc::clone(&self.bell));
        let dialling = move || {
            let line = dial.dial().map(Box::new);
            // The driver may have been closed meanwhile; then the connection is dropped here.
            let _ = commands.try_send(Command::Dialled { node, line });
            bell.ring();
        };
        if let Err(error) = apart(dialling) {
            let _ = self.commands.try_send(Command::Dialled { node, line: Err(error) });
        }
    }

    fn poll(&mut self) -> bool {
        let mut any = false;
        for (node, link) in self.links.iter_mut().enumerate() {
            any |= link.poll(&mut self.events, |load, answered| {
                self.loads.set(node, load);
                if let Some(answered) = answered {
                    self.answers.note(Answered { node, ..answered });
                }
            });
        }
        any
    }

    fn sleep(&mut self) {
        self.bell.fall_asleep();
        // Work that was handed over before that did not ring; see the doorbell's invariants.
        let is_idle = self.received.is_empty() && self.links.iter_mut().all(Link::arm);
        if is_idle {
            let from = Instant::now();
            let deadlines = self.links.iter().filter_map(|link| link.next_deadline(from, &self.lateness));
            let deadline = deadlines.min();
            let closing = self.closing.map(|since| since + CLOSE_TIME_MAX);
            let until = deadline.into_iter().chain(closing).min();
            let timeout = until.map(|until| timespec(until.saturating_duration_since(from)));
            let mut fds = vec![PollFd::new(&*self.bell, PollFlags::IN)];
            fds.extend(
                self.links
                    .iter()
                    .filter_map(Link::wait_fd)
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            // Whatever poll answers, the loop looks at everything next.
            let slept = rustix::event::poll(&mut fds, timeout.as_ref());
            if let (Ok(0), Some(until)) = (slept, until) {
                let now = Instant::now();
                self.lateness.note(now.saturating_duration_since(until), now);
            }
        }
        self.bell.wake_up();
    }
}

/// Runs what connects, or waits for that, on a thread of its own.
pub(crate) fn apart(dialling: impl FnOnce() + Send + 'static) -> Result<(), ClientError> {
    let spawned = std::thread::Builder::new().name("rackscan-dial".to_owned()).spawn(dialling);
    spawned
        .map(drop)
        .map_err(|error| ClientError::Os { action: "start a thread to connect", source: Arc::new(error) })
}

/// Rounded up, so that a deadline has passed when the sleep ends.
fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time + Duration::from_millis(1)).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
}

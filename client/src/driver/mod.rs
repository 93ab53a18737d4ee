//! Who posts requests, polls connections and wakes the callers?
//!
//! One thread owns all connections of a cluster. Callers hand it [`Job`]s and await their answers; bulk data never
//! passes through it, because nodes write that into the target memory themselves.
//!
//! Invariants
//! - Every job is answered exactly once: by its reply, the loss of its node, or its deadline.
//! - The queue of jobs is never full: a caller holds one of its node's [`REQUESTS_PER_NODE_MAX`] permits until the answer.
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
    dial::{Dial, Line},
    doorbell::Doorbell,
    limits::{CLOSE_TIME_MAX, DRIVER_SPIN, EXPIRY_PERIOD, REQUESTS_PER_NODE_MAX},
    target::Span,
};
use link::Link;
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
    /// One of the node's requests.
    pub(crate) permit: OwnedSemaphorePermit,
    /// When the answer must be there.
    pub(crate) deadline: Instant,
    /// Where the answer goes; absent when nobody waits for it, and then closing waits for it instead.
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
    Dialled { node: usize, line: Result<Box<Line>, ClientError> },
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
    /// Starts the thread over connections that have been made, and some to nodes that are away.
    pub(crate) fn start(
        lines: Vec<(Dial, Option<Line>)>,
        request_timeout: Duration,
    ) -> Result<Self, ClientError> {
        // Room for every permitted job, one dial result for each node, and the end.
        let (commands, received) = mpsc::channel(lines.len() * (REQUESTS_PER_NODE_MAX + 1) + 1);
        let bell = Arc::new(Doorbell::new()?);
        let loads = Arc::new(Loads(lines.iter().map(|_| Mutex::default()).collect()));
        let mut run = Run {
            links: lines.into_iter().map(|(dial, line)| Link::new(dial, line, request_timeout)).collect(),
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
    /// Since when the cluster is being closed.
    closing: Option<Instant>,
}

impl Run {
    fn run(&mut self) {
        let mut busy_at = Instant::now();
        let mut expired_at = busy_at;
        while !self.is_closed() {
            let busy = self.take_commands() | self.poll();
            let now = Instant::now();
            if now >= expired_at + EXPIRY_PERIOD {
                expired_at = now;
                self.links.iter_mut().for_each(|link| link.expire(now));
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
                    if let Some(link) = self.links.get_mut(node) {
                        link.dialled(line.map(|line| *line));
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
        let spawned = std::thread::Builder::new().name("rackscan-dial".to_owned()).spawn(dialling);
        if let Err(error) = spawned {
            let line = Err(ClientError::Os { action: "start a thread to connect", source: Arc::new(error) });
            let _ = self.commands.try_send(Command::Dialled { node, line });
        }
    }

    fn poll(&mut self) -> bool {
        let mut any = false;
        for (node, link) in self.links.iter_mut().enumerate() {
            any |= link.poll(&mut self.events, |load| self.loads.set(node, load));
        }
        any
    }

    fn sleep(&mut self) {
        self.bell.fall_asleep();
        // Work that was handed over before that did not ring; see the doorbell's invariants.
        let is_idle = self.received.is_empty() && self.links.iter_mut().all(Link::arm);
        if is_idle {
            let deadline = self.links.iter().filter_map(Link::next_deadline).min();
            let closing = self.closing.map(|since| since + CLOSE_TIME_MAX);
            let until = deadline.into_iter().chain(closing).min();
            let timeout = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
            let mut fds = vec![PollFd::new(&*self.bell, PollFlags::IN)];
            fds.extend(
                self.links
                    .iter()
                    .filter_map(Link::wait_fd)
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            // Whatever poll answers, the loop looks at everything next.
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        }
        self.bell.wake_up();
    }
}

/// Rounded up, so that a deadline has passed when the sleep ends.
fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time + Duration::from_millis(1)).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
}

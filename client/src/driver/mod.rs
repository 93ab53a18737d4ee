//! Runs the driver: one thread that owns all connections of a cluster, posts requests, polls for
//! replies and wakes the callers.
//!
//! Callers queue a [`Job`] and await its answer. Bulk data does not pass through this thread: nodes
//! write it into the target memory themselves.
//!
//! Invariants
//! - Every job is answered exactly once: by its reply, by the loss of its node, or at its deadline.
//! - The queue of jobs is never full: a caller holds one of its node's [`REQUESTS_PER_NODE_MAX`]
//!   permits until the answer.
//! - The thread sleeps in the kernel when there is nothing to do.

mod job;
mod node_connection;
mod reads;

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_fabric::{Event, poll_timeout};
use rackscan_format::message::LoadReport;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::sync::mpsc;

use crate::{
    ClientError,
    dial::{Dial, VerifiedConnection, spawn_dial_thread},
    doorbell::Doorbell,
    hedge::{AnswerTime, AnswerTimes},
    limits::{CLOSE_TIME_MAX, DRIVER_SPIN, EXPIRY_PERIOD, REQUESTS_PER_NODE_MAX},
    node_state::NodeState,
    pulse::Lateness,
    reach::{DialOutcome, DialledNode},
};
pub(crate) use job::{Job, Reply};
use node_connection::{InitialState, NodeConnection};
pub(crate) use reads::ReadJob;

#[derive(Debug)]
enum Command {
    Run(Box<Job>),
    Read(Box<ReadJob>),
    Dialled {
        node: usize,
        result: Result<Box<VerifiedConnection>, ClientError>,
    },
    /// The node did not answer over another connection.
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

/// The load that each node reported last.
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
    /// Starts the thread with the dialled nodes, of which some may be unavailable. If it
    /// `keeps_trying`, a node that does not answer is dialled again and again.
    pub(crate) fn start(
        nodes: Vec<(DialledNode, Arc<NodeState>)>,
        (request_timeout, keeps_trying): (Duration, bool),
    ) -> Result<Self, ClientError> {
        // Room for every permitted job, one dial result and one suspicion for each node, and the
        // end.
        let (commands, received) = mpsc::channel(nodes.len() * (REQUESTS_PER_NODE_MAX + 2) + 1);
        let bell = Arc::new(Doorbell::new()?);
        let loads = Arc::new(Loads(nodes.iter().map(|_| Mutex::default()).collect()));
        let mut connections = Vec::with_capacity(nodes.len());
        for (node, (DialledNode { dial, outcome }, state)) in nodes.into_iter().enumerate() {
            let begin = match outcome {
                DialOutcome::Connected(connection) => InitialState::Connected(connection),
                DialOutcome::Failed => InitialState::Down,
                DialOutcome::Later { since, dialling } => {
                    let (commands, bell) = (commands.clone(), Arc::clone(&bell));
                    spawn_dial_thread(move || {
                        // A thread that has ended without a result has not connected.
                        let result =
                            dialling.blocking_recv().unwrap_or(Err(ClientError::Closed)).map(Box::new);
                        let _ = commands.try_send(Command::Dialled { node, result });
                        bell.ring();
                    })?;
                    InitialState::Dialled(since)
                }
            };
            connections.push(NodeConnection::new(dial, begin, (state, keeps_trying), request_timeout));
        }
        let mut run = DriverThread {
            connections,
            lateness: Lateness::new(Instant::now()),
            answers: AnswerTimes::default(),
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

    /// Hands a job over. Returns false if the thread has ended.
    pub(crate) fn submit(&self, job: Job) -> bool {
        let accepted = self.commands.try_send(Command::Run(Box::new(job))).is_ok();
        self.bell.ring();
        accepted
    }

    /// Hands reads over. Returns false if the thread has ended.
    pub(crate) fn submit_read(&self, job: ReadJob) -> bool {
        let accepted = self.commands.try_send(Command::Read(Box::new(job))).is_ok();
        self.bell.ring();
        accepted
    }

    /// Reports that a node did not answer over another connection. If the queue is full, the driver
    /// finds out itself.
    pub(crate) fn suspect(&self, node: usize) {
        let _ = self.commands.try_send(Command::Suspect { node });
        self.bell.ring();
    }

    /// The load that a node reported last.
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
struct DriverThread {
    connections: Vec<NodeConnection>,
    received: mpsc::Receiver<Command>,
    commands: mpsc::Sender<Command>,
    bell: Arc<Doorbell>,
    loads: Arc<Loads>,
    events: Vec<Event>,
    lateness: Lateness,
    /// Answer times of hedged requests.
    answers: AnswerTimes,
    /// Since when the cluster is being closed.
    closing: Option<Instant>,
}

impl DriverThread {
    fn run(&mut self) {
        let mut busy_at = Instant::now();
        let mut expired_at = busy_at;
        while !self.is_closed() {
            let polled_at = Instant::now();
            let busy = self.take_commands() | self.poll();
            let now = Instant::now();
            // Nothing in this loop waits. If a turn takes longer than the period, other threads had
            // the processor.
            self.lateness.note(now.saturating_duration_since(polled_at).saturating_sub(EXPIRY_PERIOD), now);
            if now >= expired_at + EXPIRY_PERIOD {
                expired_at = now;
                for connection in &mut self.connections {
                    connection.expire(now);
                    connection.check_silence(polled_at, &self.lateness);
                }
                for (node, connection) in self.connections.iter_mut().enumerate() {
                    connection.check_hedges(node, polled_at, &self.answers);
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
        since.elapsed() >= CLOSE_TIME_MAX
            || self.connections.iter().all(|connection| !connection.has_detached())
    }

    fn take_commands(&mut self) -> bool {
        let mut any = false;
        while let Ok(command) = self.received.try_recv() {
            any = true;
            match command {
                Command::Run(job) => self.begin(*job),
                Command::Read(job) => {
                    if let Some(connection) = self.connections.get_mut(job.node) {
                        connection.read(*job);
                    }
                }
                Command::Dialled { node, result } => {
                    let again = self
                        .connections
                        .get_mut(node)
                        .and_then(|connection| connection.dialled(result.map(|connected| *connected)));
                    if let Some(dial) = again.filter(|_| self.closing.is_none()) {
                        self.dial(node, dial);
                    }
                }
                Command::Suspect { node } => {
                    if let Some(dial) = self.connections.get_mut(node).and_then(NodeConnection::suspect) {
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
        let Some(connection) = self.connections.get_mut(node) else { return };
        if let Some(dial) = connection.begin(job) {
            self.dial(node, dial);
        }
    }

    /// Connects to a lost node again, on a thread of its own because that takes time.
    fn dial(&self, node: usize, dial: Dial) {
        let (commands, bell) = (self.commands.clone(), Arc::clone(&self.bell));
        let dialling = move || {
            let result = dial.dial().map(Box::new);
            // The driver may have been closed meanwhile; then the connection is dropped here.
            let _ = commands.try_send(Command::Dialled { node, result });
            bell.ring();
        };
        if let Err(error) = spawn_dial_thread(dialling) {
            let _ = self.commands.try_send(Command::Dialled { node, result: Err(error) });
        }
    }

    fn poll(&mut self) -> bool {
        let mut any = false;
        for (node, connection) in self.connections.iter_mut().enumerate() {
            any |= connection.poll(&mut self.events, |load, answered| {
                self.loads.set(node, load);
                if let Some(answered) = answered {
                    self.answers.note(AnswerTime { node, ..answered });
                }
            });
        }
        any
    }

    fn sleep(&mut self) {
        self.bell.fall_asleep();
        // Work that was handed over before did not ring the bell; see the doorbell's invariants.
        let is_idle = self.received.is_empty() && self.connections.iter_mut().all(NodeConnection::arm);
        if is_idle {
            let from = Instant::now();
            let deadlines = self
                .connections
                .iter()
                .filter_map(|connection| connection.next_deadline(from, &self.lateness));
            let deadline = deadlines.min();
            let closing = self.closing.map(|since| since + CLOSE_TIME_MAX);
            let until = deadline.into_iter().chain(closing).min();
            let timeout = until.map(|until| timespec(until.saturating_duration_since(from)));
            let mut fds = vec![PollFd::new(&*self.bell, PollFlags::IN)];
            fds.extend(
                self.connections
                    .iter()
                    .filter_map(NodeConnection::wait_fd)
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            // Whatever `poll` returns, the loop checks everything next.
            let slept = rustix::event::poll(&mut fds, timeout.as_ref());
            if let (Ok(0), Some(until)) = (slept, until) {
                let now = Instant::now();
                self.lateness.note(now.saturating_duration_since(until), now);
            }
        }
        self.bell.wake_up();
    }
}

/// Rounds up, so that a deadline has passed when the sleep ends.
fn timespec(time: Duration) -> Timespec {
    poll_timeout(time.saturating_add(Duration::from_millis(1)))
}

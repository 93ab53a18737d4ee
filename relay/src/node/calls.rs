//! Opens connections to other nodes, and closes connections, without making the node's thread wait.
//!
//! Both may take as long as the peer likes. [`Threads`] does them in threads.
//!
//! Invariants
//! - Every call (a request to connect) gets one answer.
//! - The number of threads is bounded, and all are joined before their owner is dropped.

use std::{collections::VecDeque, sync::mpsc, thread::JoinHandle, time::Instant};

use rackscan_fabric::{Address, ClusterKey, ConnectError, Connection, connect};

use crate::limits::{CALL_THREADS_MAX, DIAL_TIME_MAX, HANG_UPS_WAITING_MAX};

/// The number of a call and its answer.
pub type Answered = (u64, Result<Connection, ConnectError>);

/// Connects to other nodes, and closes connections.
pub trait Calls {
    /// Starts to connect. The answer carries `call`.
    fn call(&mut self, call: u64, address: &Address);

    /// The next answer, if there is one.
    fn answered(&mut self) -> Option<Answered>;

    /// Whether to poll soon, because an answer or a free thread is awaited.
    fn is_waiting(&self) -> bool;

    /// Closes a connection once the messages sent over it were delivered.
    fn hang_up(&mut self, connection: Connection);

    /// Whether so many connections wait to be closed that no new one should be accepted.
    fn is_full(&self) -> bool {
        false
    }

    /// Gives up calls, and returns when all connections to be closed are closed.
    fn finish(&mut self) {}
}

/// The work of a thread.
#[derive(Debug)]
enum Job {
    Call(u64, Address),
    HangUp(Box<Connection>),
}

/// Runs each call in a thread, up to [`CALL_THREADS_MAX`] at a time; further ones wait. No thread
/// outlives this value.
#[derive(Debug)]
pub struct Threads {
    key: ClusterKey,
    /// Calls without an answer.
    calls: usize,
    waiting: VecDeque<Job>,
    running: Vec<JoinHandle<()>>,
    sender: mpsc::Sender<Answered>,
    answers: mpsc::Receiver<Answered>,
}

impl Threads {
    /// Authenticates with this key.
    #[must_use]
    pub fn new(key: ClusterKey) -> Self {
        let (sender, answers) = mpsc::channel();
        Self { key, calls: 0, waiting: VecDeque::new(), running: Vec::new(), sender, answers }
    }

    /// Joins threads that have ended, and starts waiting jobs.
    fn go_on(&mut self) {
        for ended in self.running.extract_if(.., |thread| thread.is_finished()) {
            join(ended);
        }
        while self.running.len() < CALL_THREADS_MAX
            && let Some(job) = self.waiting.pop_front()
        {
            self.begin(job);
        }
    }

    fn begin(&mut self, job: Job) {
        let started = match job {
            Job::HangUp(connection) => {
                // If no thread can be started, the closure is dropped here, and the connection with
                // it.
                std::thread::Builder::new().name("relay-hang-up".to_owned()).spawn(move || drop(connection))
            }
            Job::Call(call, to) => {
                let (key, sender, peer) = (self.key.clone(), self.sender.clone(), to.to_string());
                let dial = move || {
                    let answer = connect(&to, &key, Instant::now() + DIAL_TIME_MAX);
                    // There is no receiver if the node was dropped.
                    let _ = sender.send((call, answer));
                };
                let started = std::thread::Builder::new().name("relay-call".to_owned()).spawn(dial);
                started.inspect_err(|source| {
                    let action = "start a thread";
                    let why = std::io::Error::new(source.kind(), source.to_string());
                    let _ = self.sender.send((call, Err(ConnectError::Os { action, peer, source: why })));
                })
            }
        };
        match started {
            Ok(thread) => self.running.push(thread),
            Err(error) => {
                tracing::warn!(%error, "the relay of this node cannot start a thread that opens or closes a connection")
            }
        }
    }
}

/// Waits for a thread.
fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!(
            "a thread that connects the relay of this node to other nodes panicked; please report this"
        );
    }
}

impl Calls for Threads {
    fn call(&mut self, call: u64, address: &Address) {
        self.calls += 1;
        self.waiting.push_back(Job::Call(call, address.clone()));
        self.go_on();
    }

    fn answered(&mut self) -> Option<Answered> {
        if !self.running.is_empty() || !self.waiting.is_empty() {
            self.go_on();
        }
        let answered = self.answers.try_recv().ok()?;
        self.calls -= 1;
        Some(answered)
    }

    fn is_waiting(&self) -> bool {
        self.calls > 0 || !self.waiting.is_empty()
    }

    fn hang_up(&mut self, connection: Connection) {
        self.waiting.push_back(Job::HangUp(Box::new(connection)));
        self.go_on();
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= HANG_UPS_WAITING_MAX
    }

    fn finish(&mut self) {
        self.waiting.retain(|job| matches!(job, Job::HangUp(_)));
        loop {
            while let Ok((_, answer)) = self.answers.try_recv() {
                self.waiting.extend(answer.ok().map(|connection| Job::HangUp(Box::new(connection))));
            }
            self.go_on();
            match self.running.pop() {
                Some(thread) => join(thread),
                None => break,
            }
        }
        self.calls = 0;
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixListener,
        sync::atomic::{AtomicBool, Ordering},
        time::Duration,
    };

    use rackscan_fabric::{Event, Listener};

    use super::*;

    #[test]
    fn calls_are_bounded_and_no_thread_is_left_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let key = ClusterKey::from_bytes([1; 32]);
        // It accepts nothing and says nothing, so each call takes as long as one may.
        let silent = folder.path().join("silent");
        let held = UnixListener::bind(&silent).unwrap();
        let mut calls = Threads::new(key.clone());
        let address = Address::Shm { path: silent };
        (0..CALL_THREADS_MAX as u64 + 10).for_each(|call| calls.call(call, &address));
        assert!(calls.is_waiting() && calls.answered().is_none());
        assert_eq!((calls.running.len(), calls.waiting.len()), (CALL_THREADS_MAX, 10));
        let begun = Instant::now();
        let is_released = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                is_released.store(true, Ordering::SeqCst);
                drop(held);
            });
            drop(calls);
            // A call ends only when the called peer has gone, or when its own time is up.
            let is_over = is_released.load(Ordering::SeqCst) || begun.elapsed() > DIAL_TIME_MAX / 2;
            assert!(is_over, "threads are joined");
        });
        let listening = folder.path().join("listening");
        let mut listener = Listener::bind(&Address::Shm { path: listening.clone() }, &key).unwrap();
        let mut calls = Threads::new(key);
        calls.call(7, &Address::Shm { path: listening });
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut accepted, mut answer) = (None, None);
        while accepted.is_none() || answer.is_none() {
            assert!(Instant::now() < deadline);
            accepted = accepted.or_else(|| listener.accept().unwrap());
            answer = answer.or_else(|| calls.answered());
        }
        let (call, connection) = answer.unwrap();
        assert_eq!(call, 7);
        calls.hang_up(connection.unwrap());
        calls.finish();
        assert_eq!((calls.running.len(), calls.waiting.len()), (0, 0));
        let (mut accepted, mut events) = (accepted.unwrap(), Vec::new());
        while !matches!(events.last(), Some(Event::Closed(_))) {
            assert!(Instant::now() < deadline, "{events:?}");
            accepted.poll(&mut events);
        }
    }
}

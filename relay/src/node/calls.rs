//! How does a node reach others, and leave them, without waiting?
//!
//! Both may take as long as the other side likes. [`Threads`] has a thread do it, for as long as that takes; [`Direct`] does it at once, for networks where it takes no time.
//!
//! Invariants
//! - A call that was asked for is answered once.
//! - As many threads as calls are under way: at most the links of the sessions that open.

use std::{collections::VecDeque, fmt, sync::mpsc, time::Instant};

use rackscan_fabric::{Address, ClusterKey, ConnectError, Connection, connect};

use crate::limits::DIAL_TIME_MAX;

/// What came of a call.
pub type Answered = (u64, Result<Connection, ConnectError>);

/// Reaches others.
pub trait Calls {
    /// Asks for a connection. The answer carries `call`.
    fn call(&mut self, call: u64, address: &Address);

    /// An answer, if there is one.
    fn answered(&mut self) -> Option<Answered>;

    /// Whether answers are missing.
    fn is_waiting(&self) -> bool;

    /// Ends a connection, once what was said over it is handed over.
    fn hang_up(&mut self, connection: Connection);
}

/// A thread for each call.
#[derive(Debug)]
pub struct Threads {
    key: ClusterKey,
    waiting: usize,
    sender: mpsc::Sender<Answered>,
    answers: mpsc::Receiver<Answered>,
}

impl Threads {
    /// Proves this key to whoever is called.
    #[must_use]
    pub fn new(key: ClusterKey) -> Self {
        let (sender, answers) = mpsc::channel();
        Self { key, waiting: 0, sender, answers }
    }
}

impl Calls for Threads {
    fn call(&mut self, call: u64, address: &Address) {
        self.waiting += 1;
        let (key, sender, to) = (self.key.clone(), self.sender.clone(), address.clone());
        let dial = move || {
            let answer = connect(&to, &key, Instant::now() + DIAL_TIME_MAX);
            // Nobody listens any more if the node has gone.
            let _ = sender.send((call, answer));
        };
        if let Err(source) = std::thread::Builder::new().name("relay-call".to_owned()).spawn(dial) {
            let peer = address.to_string();
            let _ =
                self.sender.send((call, Err(ConnectError::Os { action: "start a thread", peer, source })));
        }
    }

    fn answered(&mut self) -> Option<Answered> {
        let answered = self.answers.try_recv().ok()?;
        self.waiting -= 1;
        Some(answered)
    }

    fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    fn hang_up(&mut self, connection: Connection) {
        // If there is no thread the closure is dropped here, and the connection with it.
        let _ = std::thread::Builder::new().name("relay-hang-up".to_owned()).spawn(move || drop(connection));
    }
}

/// Calls by a function that does not wait.
pub struct Direct<F> {
    connect: F,
    answers: VecDeque<Answered>,
}

impl<F: FnMut(&Address) -> Result<Connection, ConnectError>> Direct<F> {
    /// By this function.
    #[must_use]
    pub fn new(connect: F) -> Self {
        Self { connect, answers: VecDeque::new() }
    }
}

impl<F> fmt::Debug for Direct<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("answers", &self.answers.len()).finish_non_exhaustive()
    }
}

impl<F: FnMut(&Address) -> Result<Connection, ConnectError>> Calls for Direct<F> {
    fn call(&mut self, call: u64, address: &Address) {
        let answer = (self.connect)(address);
        self.answers.push_back((call, answer));
    }

    fn answered(&mut self) -> Option<Answered> {
        self.answers.pop_front()
    }

    fn is_waiting(&self) -> bool {
        !self.answers.is_empty()
    }

    fn hang_up(&mut self, connection: Connection) {
        drop(connection);
    }
}

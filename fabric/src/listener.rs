//! How do two processes find each other?
//!
//! Invariants
//! - A caller that is slow, silent or hostile costs one of `HANDSHAKES_MAX` short-lived threads for at most
//!   `HANDSHAKE_TIME_MAX`; connections that exist are not touched by it.
//! - `accept` hands out only connections whose peer has proved the cluster key.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    net::SocketFlags,
};

use crate::{
    address::{Address, Wire},
    connection::Connection,
    doorbell::Doorbell,
    error::{ConnectError, ListenError},
    guarded::Guarded,
    inbox::{InboxHandle, Inboxes},
    key::ClusterKey,
    limits::{ACCEPT_QUEUE_MAX, HANDSHAKE_TIME_MAX, HANDSHAKES_MAX},
    shm, sim, tcp, verbs,
};

/// Accepts connections at an address. Dropping it stops listening; its connections live on.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    source: Source,
}

/// Where callers come from.
#[derive(Debug)]
enum Source {
    /// A socket and a thread that accepts them.
    Socket(Acceptor),
    /// A simulated network.
    Sim(sim::SimListener),
}

/// The thread that accepts callers at a socket.
#[derive(Debug)]
struct Acceptor {
    arrivals: Arc<Arrivals>,
    thread: Option<JoinHandle<()>>,
    // Removes the socket's file when the listener goes.
    _socket_file: Option<shm::SocketFile>,
}

/// What the accepting threads and the owner of the listener share.
#[derive(Debug)]
struct Arrivals {
    wire: Wire,
    // Only an address of the wire verbs may name one.
    device: Option<String>,
    key: ClusterKey,
    inboxes: Inboxes,
    finished: Guarded<VecDeque<Result<Connection, ConnectError>>>,
    arrived: Doorbell,
    stop: Doorbell,
    stopping: AtomicBool,
    handshakes: Mutex<usize>,
    handshake_over: Condvar,
}

impl Listener {
    /// Starts to listen at `address`; callers must prove `key`.
    ///
    /// # Errors
    /// When the address is in use or the system refuses.
    pub fn bind(address: &Address, key: &ClusterKey) -> Result<Self, ListenError> {
        Self::bind_inboxes(address, key, Vec::new())
    }

    /// As `bind`, but what callers send arrives through `inboxes`, among which they are dealt evenly, in turn; without any it arrives
    /// at their connections. An inbox may serve several listeners, on several wires.
    ///
    /// # Errors
    /// When the address is in use or the system refuses, or an adapter cannot give an inbox its shared receive queue.
    pub fn bind_inboxes(
        address: &Address,
        key: &ClusterKey,
        inboxes: Vec<InboxHandle>,
    ) -> Result<Self, ListenError> {
        let (socket, address, socket_file) = match address {
            Address::Shm { path } => {
                let (socket, file) = shm::bind(path)?;
                (socket, address.clone(), Some(file))
            }
            Address::Tcp { host, port } => {
                let (socket, port) = tcp::bind(host, *port)?;
                (socket, Address::Tcp { host: host.clone(), port }, None)
            }
            Address::Verbs { device, host, port } => {
                let (socket, port) = verbs::bind(device.as_deref(), (host, *port), &inboxes)?;
                (socket, Address::Verbs { device: device.clone(), host: host.clone(), port }, None)
            }
            Address::Sim { .. } if !inboxes.is_empty() => {
                let reason = "a simulated network has none; bind without, or choose another wire".to_owned();
                return Err(ListenError::Inbox { address: address.to_string(), reason });
            }
            Address::Sim { network, place } => {
                let source = Source::Sim(sim::bind(*network, place, key)?);
                return Ok(Self { address: address.clone(), source });
            }
        };
        let os = |action| {
            let address = address.to_string();
            move |source: io::Error| ListenError::Os { action, address, source }
        };
        let arrivals = Arc::new(Arrivals {
            wire: address.wire(),
            device: match &address {
                Address::Verbs { device, .. } => device.clone(),
                _ => None,
            },
            key: key.clone(),
            inboxes: Inboxes::new(inboxes),
            finished: Guarded::default(),
            arrived: Doorbell::new().map_err(os("make a doorbell for"))?,
            stop: Doorbell::new().map_err(os("make a doorbell for"))?,
            stopping: AtomicBool::new(false),
            handshakes: Mutex::new(0),
            handshake_over: Condvar::new(),
        });
        let shared = Arc::clone(&arrivals);
        let thread = std::thread::Builder::new()
            .name("fabric-accept".to_owned())
            .spawn(move || accept_callers(&socket, &shared))
            .map_err(os("start a thread for"))?;
        let acceptor = Acceptor { arrivals, thread: Some(thread), _socket_file: socket_file };
        Ok(Self { address, source: Source::Socket(acceptor) })
    }

    /// Where it listens, with the port that was chosen if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The next peer that has proved itself, if any. An error is about one caller; the listener goes on.
    ///
    /// # Errors
    /// Why one caller was turned away.
    pub fn accept(&mut self) -> Result<Option<Connection>, ConnectError> {
        match &mut self.source {
            Source::Socket(acceptor) => acceptor.accept(),
            Source::Sim(listener) => listener.accept(),
        }
    }

    /// Whether waiting is in vain: nobody can call before the calling thread does something else.
    fn nobody_will_call(&self) -> bool {
        match &self.source {
            Source::Socket(_) => false,
            Source::Sim(listener) => listener.nobody_will_call(),
        }
    }

    /// As `accept`, but waits until the deadline; `None` when it has passed.
    ///
    /// # Errors
    /// Why one caller was turned away.
    pub fn accept_until(&mut self, deadline: Instant) -> Result<Option<Connection>, ConnectError> {
        loop {
            if let Some(connection) = self.accept()? {
                return Ok(Some(connection));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.nobody_will_call() {
                return Ok(None);
            }
            sleep_on(&[self.wait_fd()], Some(left));
        }
    }

    /// Readable when `accept` has something.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Socket(acceptor) => acceptor.arrivals.arrived.as_fd(),
            Source::Sim(listener) => listener.as_fd(),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wait_fd()
    }
}

impl Acceptor {
    fn accept(&mut self) -> Result<Option<Connection>, ConnectError> {
        let mut finished = self.arrivals.finished.lock();
        // What is there has rung, and nobody rings for what is not.
        let next = finished.pop_front();
        if next.is_some() && finished.is_empty() {
            self.arrivals.arrived.drain();
        }
        next.transpose()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.arrivals.stopping.store(true, Ordering::SeqCst);
        self.arrivals.stop.ring();
        self.arrivals.handshake_over.notify_all();
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked with anything that is ours to handle.
            let _ = thread.join();
        }
    }
}

impl Arrivals {
    /// Takes one of the handshake slots, waiting until one is free; false when the listener is going.
    fn take_slot(&self) -> bool {
        let mut handshakes = self.handshakes.lock().unwrap_or_else(PoisonError::into_inner);
        while *handshakes >= HANDSHAKES_MAX && !self.stopping.load(Ordering::SeqCst) {
            // The time limit covers a stop that is announced just before this thread waits.
            let step = Duration::from_millis(100);
            let waited = self.handshake_over.wait_timeout(handshakes, step);
            handshakes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *handshakes += 1;
        !self.stopping.load(Ordering::SeqCst)
    }

    fn return_slot(&self) {
        *self.handshakes.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.handshake_over.notify_one();
    }

    fn deliver(&self, arrival: Result<Connection, ConnectError>) {
        if let Err(error) = &arrival {
            tracing::warn!(%error, "a caller was turned away");
        }
        let mut finished = self.finished.lock();
        if finished.len() < ACCEPT_QUEUE_MAX {
            finished.push_back(arrival);
            self.arrived.ring();
        } else {
            tracing::warn!(waiting = finished.len(), "a connection was dropped: nobody accepts");
        }
    }
}

/// The acceptor's thread: hands every caller to a thread of its own for the handshake.
fn accept_callers(socket: &OwnedFd, arrivals: &Arc<Arrivals>) {
    loop {
        sleep_on(&[socket.as_fd(), arrivals.stop.as_fd()], None);
        if arrivals.stopping.load(Ordering::SeqCst) {
            return;
        }
        match rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(caller) => {
                if !arrivals.take_slot() {
                    return;
                }
                let shared = Arc::clone(arrivals);
                let thread = std::thread::Builder::new().name("fabric-hello".to_owned());
                let spawned = thread.spawn(move || {
                    receive_caller(caller, &shared);
                    shared.return_slot();
                });
                if let Err(error) = spawned {
                    tracing::warn!(%error, "a caller was dropped: no thread for its handshake");
                    arrivals.return_slot();
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                // Out of descriptors, most likely: the caller stays in the backlog until there are some.
                tracing::warn!(%error, "could not accept a caller; trying again");
                sleep_on(&[arrivals.stop.as_fd()], Some(Duration::from_millis(50)));
            }
        }
    }
}

fn receive_caller(socket: OwnedFd, arrivals: &Arrivals) {
    let deadline = Instant::now() + HANDSHAKE_TIME_MAX;
    let arrival = match arrivals.wire {
        Wire::Shm => shm::answer(socket, &arrivals.key, &arrivals.inboxes, deadline),
        Wire::Tcp => tcp::answer(socket, &arrivals.key, &arrivals.inboxes, deadline),
        Wire::Verbs => {
            let device = arrivals.device.as_deref();
            verbs::answer(socket, device, &arrivals.key, &arrivals.inboxes, deadline)
        }
        Wire::Sim => return,
    };
    // Somebody who asks whether anybody listens (as `shm::bind` does) hangs up at once; that is no news.
    if !matches!(arrival, Err(ConnectError::HungUp { phase: "hello", .. })) {
        arrivals.deliver(arrival);
    }
}

/// Connects to a listener and proves `key` to it, as it does to us.
///
/// # Errors
/// See [`ConnectError`].
pub fn connect(address: &Address, key: &ClusterKey, deadline: Instant) -> Result<Connection, ConnectError> {
    match address {
        Address::Shm { path } => shm::call(path, key, deadline),
        Address::Tcp { host, port } => tcp::call(host, *port, key, deadline),
        Address::Verbs { device, host, port } => verbs::call(device.as_deref(), (host, *port), key, deadline),
        Address::Sim { .. } => sim::call(sim::ANONYMOUS, address, key),
    }
}

/// Sleeps until a descriptor is readable or the time is over. Whatever ends the sleep, the caller looks again.
fn sleep_on(fds: &[BorrowedFd<'_>], time: Option<Duration>) {
    let timeout = time.map(|t| Timespec::try_from(t).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 }));
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}

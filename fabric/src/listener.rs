//! Accepts callers at an address, and connects to listeners.
//!
//! Invariants
//! - A caller that is slow, silent or hostile delays nobody. One thread reads from all callers
//!   (`acceptor`); the number of callers and the log about them are bounded (`strangers`,
//!   `complaints`), and callers of one origin cannot displace those of another.
//! - `accept` hands out only connections whose peer has proved the cluster key.

mod acceptor;
mod arrivals;
mod complaints;
mod setup;
mod strangers;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};

use self::arrivals::Arrivals;
pub(crate) use self::strangers::Origin;

use crate::{
    address::Address,
    connection::Connection,
    doorbell::Doorbell,
    error::{ConnectError, ListenError},
    guarded::Guarded,
    inbox::{InboxHandle, Inboxes},
    key::ClusterKey,
    shm, sim, tcp,
    timeout::poll_timeout,
    verbs,
};

/// Accepts connections at an address. Dropping it stops listening; its connections live on.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    source: Source,
}

/// The source of callers.
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
    // Removes the socket's file when the listener is dropped.
    _socket_file: Option<shm::SocketFile>,
}

impl Listener {
    /// Starts to listen at `address`; callers must prove `key`.
    ///
    /// # Errors
    /// When the address is in use or the system refuses.
    pub fn bind(address: &Address, key: &ClusterKey) -> Result<Self, ListenError> {
        Self::bind_inboxes(address, key, Vec::new())
    }

    /// As `bind`, but messages of callers arrive through `inboxes`, among which callers are
    /// distributed evenly, in turn. Without inboxes they arrive at the connections. An inbox may
    /// serve several listeners, on several wires.
    ///
    /// # Errors
    /// When the address is in use or the system refuses, or an adapter cannot give an inbox its
    /// shared receive queue.
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
            setups: Guarded::default(),
            complaints: Guarded::default(),
        });
        let callers = acceptor::Acceptor::new(socket, Arc::clone(&arrivals));
        let callers = callers.map_err(os("watch the callers of"))?;
        let thread = std::thread::Builder::new()
            .name("fabric-accept".to_owned())
            .spawn(move || callers.run())
            .map_err(os("start a thread for"))?;
        let acceptor = Acceptor { arrivals, thread: Some(thread), _socket_file: socket_file };
        Ok(Self { address, source: Source::Socket(acceptor) })
    }

    /// The address at which it listens, with the chosen port if port 0 was requested.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The connection to the next peer that has proved the cluster key, if any. An error concerns
    /// one caller; the listener continues.
    ///
    /// # Errors
    /// Why one caller was turned away.
    pub fn accept(&mut self) -> Result<Option<Connection>, ConnectError> {
        match &mut self.source {
            Source::Socket(acceptor) => acceptor.accept(),
            Source::Sim(listener) => listener.accept(),
        }
    }

    /// Whether waiting is useless, because nobody can call before the calling thread does something
    /// else.
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
        // Every arrival has rung the bell, so it is drained when the last one is taken.
        let next = finished.arrivals.pop_front();
        finished.refusals -= usize::from(matches!(next, Some(Err(_))));
        if next.is_some() && finished.arrivals.is_empty() {
            self.arrivals.arrived.drain();
        }
        next.transpose()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.arrivals.stopping.store(true, Ordering::SeqCst);
        self.arrivals.stop.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is nothing that this thread could handle.
            let _ = thread.join();
        }
    }
}

/// Connects to a listener. Both sides prove `key` to each other.
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

/// Sleeps until a descriptor is readable or `time` has passed. Whatever ends the sleep, the caller
/// checks again.
fn sleep_on(fds: &[BorrowedFd<'_>], time: Option<Duration>) {
    let timeout = time.map(poll_timeout);
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}

//! Connects two queue pairs.
//!
//! A TCP connection carries the proof of the cluster key and the introduction of the queue pairs,
//! and stays open.
//!
//! Invariants
//! - Both sides have proved the cluster key before a queue pair is named. Nothing is encrypted or
//!   signed, so this wire belongs on a network that the cluster trusts.
//! - Our ring is announced to the peer only when our queue pair can receive, and only the peer of
//!   this queue pair can write there.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{event::PollFlags, io::Errno, net::sockopt};

use super::{
    channel::Channel,
    device::{DEVICE_VARIABLE, Device, Endpoint},
    inbox::{Reservation, make_queues, reserve},
    inlet::{Inlet, Seat},
    queue::VerbsQueue,
    receive::{RECEIVES, Receiver, post_receives},
    region::{Locals, Scratch},
    send::Sender,
    setup::{Introduction, MessagePlace, NUMBER_MAX},
    shared_receive::Seats,
    sys::{
        Capacity, CompletionQueue, Local, MemoryWindow, PairState, Path, QueuePair, SendKind, SendRequest,
        status_text,
    },
};
use crate::{
    access::Access,
    address::{Address, Wire},
    connection::Connection,
    error::{ConnectError, DeviceError, ListenError},
    handshake,
    inbox::{InboxHandle, Inboxes, SenderId, SupplySize},
    key::ClusterKey,
    limits::{VERBS_INLINE_BYTES, VERBS_READS_MAX, VERBS_RING_BYTES, VERBS_SENDS_MAX},
    region::Region,
    stream::Stream,
    tcp,
};

/// A packet that is not acknowledged is sent again after 4.096 us times two to this power: 268 ms.
/// Adapters notice most losses sooner, by a gap in the sequence.
const TIMEOUT: u8 = 16;
/// How many times it is sent again. Seven would mean for ever on some adapters.
const RETRIES: u8 = 6;
/// A receiver that has no receive request makes the sender retry after 0.64 ms, so many times;
/// seven is for ever. An honest peer always has a receive request.
const NOT_READY_RETRIES: u8 = 6;
/// A shared receive queue may be out of slots for as long as its owner does something else.
const NOT_READY_RETRIES_SHARED: u8 = 7;
const NOT_READY_TIMER: u8 = 12;

/// Listens for the set-up. The system chooses the port if `port` is 0. The inboxes get their shared
/// receive queues now, unless the adapter becomes known only with a caller.
pub(crate) fn bind(
    device: Option<&str>,
    (host, port): (&str, u16),
    inboxes: &[InboxHandle],
) -> Result<(OwnedFd, u16), ListenError> {
    let address = || {
        let (device, host) = (device.map(str::to_owned), host.to_owned());
        Address::Verbs { device, host, port }.to_string()
    };
    // Checked now and not when the first caller comes.
    let named = device.map(Device::open).transpose();
    let named = named.map_err(|source| ListenError::Device { address: address(), source })?;
    if let Some(device) = named.or_else(|| device_at(host)) {
        make_queues(inboxes, &device)
            .map_err(|reason| ListenError::Inbox { address: address(), reason: reason.to_string() })?;
    }
    tcp::bind(host, port).map_err(|error| match error {
        ListenError::InUse { .. } => ListenError::InUse { address: address() },
        ListenError::Os { action, source, .. } => ListenError::Os { action, address: address(), source },
        other => other,
    })
}

/// The adapter for the address of `host`; `None` if that is unspecified (0.0.0.0) or leads to no
/// adapter.
fn device_at(host: &str) -> Option<Arc<Device>> {
    let mut places = (host, 0).to_socket_addrs().ok()?;
    let place = places.next().filter(|place| !place.ip().is_unspecified())?;
    Device::with_address(place.ip().to_canonical()).ok()
}

/// Connects to a listener.
pub(crate) fn call(
    device: Option<&str>,
    (host, port): (&str, u16),
    key: &ClusterKey,
    deadline: Instant,
) -> Result<Connection, ConnectError> {
    let peer = format!("verbs:{host}:{port}");
    let unfit = |source| ConnectError::Device { peer: peer.clone(), source };
    let named = device.map(str::to_owned).or_else(|| std::env::var(DEVICE_VARIABLE).ok());
    let device = named.as_deref().map(Device::open).transpose().map_err(unfit)?;
    // The set-up leaves from the adapter's address, so that it takes the same route as the packets.
    let from = device.as_ref().map(|device| device.ipv4_address()).transpose().map_err(unfit)?.flatten();
    let refused = |source| ConnectError::Refused { peer: peer.clone(), source };
    let mut refusal = refused(Errno::ADDRNOTAVAIL.into());
    for place in (host, port).to_socket_addrs().map_err(refused)? {
        let from = from.filter(|_| place.is_ipv4()).map(IpAddr::V4);
        match dial(place, from, &peer, deadline) {
            Ok(socket) => {
                let stream = Stream::new(&socket, &peer, deadline);
                handshake::call(&stream, Wire::Verbs, key)?;
                let local = local_address(&socket, &stream)?;
                let queue = establish(device, None, local, &stream)?.0;
                return finish(queue, socket, peer);
            }
            Err(e) => refusal = e,
        }
    }
    Err(refusal)
}

fn dial(
    place: SocketAddr,
    from: Option<IpAddr>,
    peer: &str,
    deadline: Instant,
) -> Result<OwnedFd, ConnectError> {
    let refused = |e: Errno| ConnectError::Refused { peer: peer.to_owned(), source: e.into() };
    let socket = tcp::new_socket(place).map_err(refused)?;
    if let Some(from) = from {
        rustix::net::bind(&socket, &SocketAddr::new(from, 0)).map_err(refused)?;
    }
    match rustix::net::connect(&socket, &place) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            Stream::new(&socket, peer, deadline).wait_for(PollFlags::OUT, "connect")?;
            sockopt::socket_error(&socket).map_err(refused)?.map_err(refused)?;
        }
        Err(e) => return Err(refused(e)),
    }
    tcp::prepare(&socket).map_err(refused)?;
    Ok(socket)
}

/// Sets up the connection of a caller that has proved the cluster key. Its messages go to one of
/// `inboxes`, if there are any.
pub(crate) fn set_up(
    (socket, peer): (OwnedFd, String),
    device: Option<&str>,
    inboxes: &Inboxes,
    deadline: Instant,
) -> Result<Connection, ConnectError> {
    let stream = Stream::new(&socket, &peer, deadline);
    tcp::prepare(&socket).map_err(|e| stream.failed(e, "set the options of a socket"))?;
    let local = local_address(&socket, &stream)?;
    let unfit = |source| ConnectError::Device { peer: stream.peer(), source };
    let device = device.map_or_else(|| Device::with_address(local), Device::open).map_err(unfit)?;
    let place = reserve(inboxes, &device, &peer)?;
    let (queue, seat) = establish(Some(device), place, local, &stream)?;
    let connection = finish(queue, socket, peer)?;
    Ok(match seat {
        Some((which, sender)) => connection.through_inbox(which, sender),
        None => connection,
    })
}

/// The last step of the set-up, and the inbox and sender that the peer's messages go to, if not to
/// the connection.
type Established = (Finish, Option<(usize, SenderId)>);

fn local_address(socket: &OwnedFd, stream: &Stream<'_>) -> Result<IpAddr, ConnectError> {
    const ACTION: &str = "ask for our address";
    let address = rustix::net::getsockname(socket).map_err(|e| stream.failed(e, ACTION))?;
    let address = SocketAddr::try_from(address).map_err(|e| stream.failed(e, ACTION))?;
    Ok(address.ip().to_canonical())
}

/// Number of the work request that the set-up posts.
const FIRST_REQUEST: u64 = 1;

type Finish = Box<dyn FnOnce(OwnedFd) -> io::Result<VerbsQueue>>;

fn finish(queue: Finish, socket: OwnedFd, peer: String) -> Result<Connection, ConnectError> {
    match queue(socket) {
        Ok(queue) => Ok(Connection::new(Box::new(queue), Wire::Verbs, peer)),
        Err(source) => Err(ConnectError::Os { action: "watch a queue pair", peer, source }),
    }
}

/// Connects our queue pair with the peer's. What remains is to give the queue its socket.
fn establish(
    device: Option<Arc<Device>>,
    place: Option<Reservation>,
    local: IpAddr,
    stream: &Stream<'_>,
) -> Result<Established, ConnectError> {
    let seats = place.as_ref().map(|place| &place.seats);
    let device = seats.map(|seats| Arc::clone(seats.device())).or(device);
    let os = |action| move |source| ConnectError::Os { action, peer: stream.peer(), source };
    let unfit = |source: DeviceError| ConnectError::Device { peer: stream.peer(), source };
    let device = device.map_or_else(|| Device::with_address(local), Ok).map_err(unfit)?;
    let endpoint = device.endpoint(local).map_err(unfit)?;
    let sends = VERBS_SENDS_MAX.min(device.limits().queue_depth_max);
    let depth = (sends + RECEIVES).min(device.limits().completions_max);
    let completions = CompletionQueue::new(Arc::clone(device.domain().context()), depth);
    let completions = Arc::new(completions.map_err(os("make a completion queue"))?);
    let pair = new_pair(&device, &completions, seats, sends).map_err(os("make a queue pair"))?;
    let pair = Arc::new(pair);
    pair.advance(PairState::Initialised { port: endpoint.number }).map_err(os("initialise a queue pair"))?;
    if seats.is_none() {
        post_receives(&pair, RECEIVES).map_err(os("post receive requests"))?;
    }

    let ours =
        introduction(&device, &endpoint, (&pair, seats.is_some())).map_err(os("introduce a queue pair"))?;
    let theirs = ours.exchange(stream)?;
    let path = path(&device, &endpoint, (&ours, &theirs));
    pair.advance(PairState::Receiving(path)).map_err(os("make a queue pair receive"))?;
    pair.advance(PairState::Sending(path)).map_err(os("make a queue pair send"))?;

    let seat = place.as_ref().map(|place| (place.which, place.member.id()));
    let (inlet, place, window) = match place {
        Some(Reservation { seats, member, bell, .. }) => {
            let account = seats.join(pair.number(), member.id(), bell);
            let account = account.map_err(os("take a seat at a shared receive queue"))?;
            let SupplySize { packet_bytes, allotment, refuses, .. } = seats.size();
            let seat = Seat::new(seats, account, Arc::clone(&pair), member);
            (Inlet::Shared(seat), MessagePlace::Shared { packet_bytes, allotment, refuses }, None)
        }
        None => {
            let window = ring_window(&device, stream)?;
            bind_window(&pair, &completions, &window, stream)?;
            let receiver = Receiver::new(Arc::clone(&pair), Arc::clone(window.memory()));
            let (address, key) = (window.memory().address(), window.key());
            (Inlet::Ring(receiver), MessagePlace::Ring { address, key }, Some(window))
        }
    };
    let channel = Channel::new(place.exchange(stream)?);
    let scratch = Scratch::new(&device);
    let scratch = scratch.map_err(|source| ConnectError::Memory { peer: stream.peer(), source })?;
    let sender =
        Sender::new(Arc::clone(&pair), (sends, FIRST_REQUEST), channel, (scratch, Locals::new(device)));
    let finish: Finish =
        Box::new(move |socket| VerbsQueue::new(socket, (pair, completions), (sender, inlet), window));
    Ok((finish, seat))
}

fn new_pair(
    device: &Device,
    completions: &Arc<CompletionQueue>,
    seats: Option<&Arc<Seats>>,
    sends: u32,
) -> io::Result<QueuePair> {
    let receives = if seats.is_some() { 0 } else { RECEIVES };
    let mut capacity = Capacity { sends, receives, inline_bytes: VERBS_INLINE_BYTES };
    loop {
        let receives = seats.map_or_else(|| (Arc::clone(completions), None), |seats| seats.queues());
        match QueuePair::new(Arc::clone(device.domain()), Arc::clone(completions), receives, capacity) {
            // Usually the adapter carries fewer bytes inline.
            Err(error) if capacity.inline_bytes > 0 && error.raw_os_error() == Some(libc::EINVAL) => {
                capacity.inline_bytes /= 2;
            }
            made => return made,
        }
    }
}

fn introduction(
    device: &Device,
    endpoint: &Endpoint,
    (pair, shares): (&QueuePair, bool),
) -> io::Result<Introduction> {
    let first_packet = getrandom::u32().map_err(|e| io::Error::other(e.to_string()))? & NUMBER_MAX;
    Ok(Introduction {
        number: pair.number(),
        first_packet,
        lid: endpoint.port.lid,
        mtu: u8::try_from(endpoint.port.mtu).map_err(io::Error::other)?,
        is_ethernet: endpoint.port.is_ethernet,
        reads_served: device.limits().reads_served_max.min(VERBS_READS_MAX),
        shares,
        gid: endpoint.gid.1,
    })
}

fn path(device: &Device, endpoint: &Endpoint, (ours, theirs): (&Introduction, &Introduction)) -> Path {
    Path {
        port: endpoint.number,
        global: ours.is_ethernet.then_some((endpoint.gid.0, theirs.gid)),
        peer_lid: theirs.lid,
        peer_number: theirs.number,
        mtu: u32::from(ours.mtu.min(theirs.mtu)),
        our_first_packet: ours.first_packet,
        peer_first_packet: theirs.first_packet,
        reads_served: ours.reads_served,
        reads_started: theirs.reads_served.min(device.limits().reads_started_max).min(VERBS_READS_MAX),
        timeout: TIMEOUT,
        retries: RETRIES,
        not_ready_retries: if theirs.shares { NOT_READY_RETRIES_SHARED } else { NOT_READY_RETRIES },
        not_ready_timer: NOT_READY_TIMER,
    }
}

/// A window over a new ring for the peer's messages.
fn ring_window(device: &Device, stream: &Stream<'_>) -> Result<Arc<MemoryWindow>, ConnectError> {
    let os = |action| move |source| ConnectError::Os { action, peer: stream.peer(), source };
    let ring = Region::allocate(VERBS_RING_BYTES);
    let ring = ring.map_err(|source| ConnectError::Memory { peer: stream.peer(), source })?;
    let memory = device.register(&ring).map_err(os("register a ring"))?;
    Ok(Arc::new(MemoryWindow::new(memory, Access::Write).map_err(os("make a window over a ring"))?))
}

/// Binds the window. This needs no action of the peer.
fn bind_window(
    pair: &QueuePair,
    completions: &CompletionQueue,
    window: &Arc<MemoryWindow>,
    stream: &Stream<'_>,
) -> Result<(), ConnectError> {
    const ACTION: &str = "bind a window over a ring";
    let os = |source| ConnectError::Os { action: ACTION, peer: stream.peer(), source };
    let kind = SendKind::Bind { window: Arc::clone(window) };
    pair.post(&[SendRequest {
        id: FIRST_REQUEST,
        kind,
        local: Local::Nothing,
        fenced: false,
        signalled: true,
    }])
    .map_err(os)?;
    let mut found = Vec::new();
    loop {
        completions.poll(&mut found).map_err(os)?;
        match found.pop() {
            Some(completion) if completion.status == 0 => return Ok(()),
            Some(completion) => return Err(os(io::Error::other(status_text(completion.status)))),
            None => {}
        }
        if stream.is_late() {
            return Err(ConnectError::TimedOut { peer: stream.peer(), phase: ACTION });
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

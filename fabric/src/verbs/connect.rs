//! How do two queue pairs find each other?
//!
//! A TCP connection carries the proof of the cluster key and the introduction of the queue pairs,
//! and stays open.
//!
//! Invariants
//! - Both sides have proved the cluster key before a queue pair is named. What travels is neither
//!   encrypted nor signed: it belongs on a network that the cluster trusts.
//! - The peer is told of our ring only when our queue pair receives and only this queue pair's peer
//!   can write there.

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
    inbox::{Place, make_queues, reserve},
    inlet::{Inlet, Seat},
    queue::VerbsQueue,
    receive::{RECEIVES, Receiver, post_receives},
    region::{Locals, Scratch},
    send::Sender,
    setup::{Introduction, MessagePlace, NUMBER_MAX},
    shared_receive::Seats,
    sys::{
        Capacity, CompletionQueue, Local, MemoryWindow, Path, QueuePair, SendKind, SendRequest, Step,
        status_text,
    },
};
use crate::{
    address::{Address, Wire},
    connection::Connection,
    error::{ConnectError, DeviceError, ListenError},
    handshake,
    inbox::{InboxHandle, Inboxes, SenderId, SupplySize},
    key::ClusterKey,
    limits::{VERBS_INLINE_BYTES, VERBS_READS_MAX, VERBS_RING_BYTES, VERBS_SENDS_MAX},
    region::{Access, Region},
    stream::Stream,
    tcp,
};

/// A packet that is not acknowledged is sent again after 4.096 us times two to this power: 268 ms.
/// Adapters notice most losses sooner, by the gap.
const TIMEOUT: u8 = 16;
/// ... so many times. Seven would mean for ever on some adapters.
const RETRIES: u8 = 6;
/// A receiver without a receive request asks for patience (0.64 ms), which is granted so many
/// times; seven is for ever. An honest peer always has one.
const NOT_READY_RETRIES: u8 = 6;
/// A shared receive queue may be out of slots for as long as its owner does something else.
const NOT_READY_RETRIES_SHARED: u8 = 7;
const NOT_READY_TIMER: u8 = 12;

/// Listens for the set-up; the port is chosen if 0 was asked for. The inboxes get their shared
/// receive queues now, unless it is only known with a caller which adapter is meant.
pub(crate) fn bind(
    device: Option<&str>,
    (host, port): (&str, u16),
    inboxes: &[InboxHandle],
) -> Result<(OwnedFd, u16), ListenError> {
    let address = || {
        let (device, host) = (device.map(str::to_owned), host.to_owned());
        Address::Verbs { device, host, port }.to_string()
    };
    // Known now and not with the first caller.
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

/// The adapter of an address that is one adapter's.
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
    // Packets leave where the set-up did, so that both take the same way.
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

/// Makes a connection of a caller that has proved itself; its messages go to one of `inboxes` if
/// there are any.
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

/// What is left to do when two queue pairs have met, and where the peer's messages go if not here.
type Met = (Finish, Option<(usize, SenderId)>);

fn local_address(socket: &OwnedFd, stream: &Stream<'_>) -> Result<IpAddr, ConnectError> {
    const ACTION: &str = "ask for our address";
    let address = rustix::net::getsockname(socket).map_err(|e| stream.failed(e, ACTION))?;
    let address = SocketAddr::try_from(address).map_err(|e| stream.failed(e, ACTION))?;
    Ok(address.ip().to_canonical())
}

/// Number of the request that the set-up makes.
const FIRST_REQUEST: u64 = 1;

type Finish = Box<dyn FnOnce(OwnedFd) -> io::Result<VerbsQueue>>;

fn finish(queue: Finish, socket: OwnedFd, peer: String) -> Result<Connection, ConnectError> {
    match queue(socket) {
        Ok(queue) => Ok(Connection::new(Box::new(queue), Wire::Verbs, peer)),
        Err(source) => Err(ConnectError::Os { action: "watch a queue pair", peer, source }),
    }
}

/// Brings our queue pair together with the peer's; what remains is to give the queue its socket.
fn establish(
    device: Option<Arc<Device>>,
    place: Option<Place>,
    local: IpAddr,
    stream: &Stream<'_>,
) -> Result<Met, ConnectError> {
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
    pair.advance(Step::Initialised { port: endpoint.number }).map_err(os("initialise a queue pair"))?;
    if seats.is_none() {
        post_receives(&pair, RECEIVES).map_err(os("post receive requests"))?;
    }

    let ours =
        introduction(&device, &endpoint, (&pair, seats.is_some())).map_err(os("introduce a queue pair"))?;
    let theirs = ours.exchange(stream)?;
    let path = path(&device, &endpoint, (&ours, &theirs));
    pair.advance(Step::Receiving(path)).map_err(os("make a queue pair receive"))?;
    pair.advance(Step::Sending(path)).map_err(os("make a queue pair send"))?;

    let seat = place.as_ref().map(|place| (place.which, place.member.id()));
    let (inlet, place, window) = match place {
        Some(Place { seats, member, bell, .. }) => {
            let membership = seats.join(pair.number(), member.id(), bell);
            let membership = membership.map_err(os("take a seat at a shared receive queue"))?;
            let SupplySize { packet_bytes, allotment, refuses, .. } = seats.size();
            let seat = Seat::new(seats, membership, Arc::clone(&pair), member);
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
            // The usual reason is an adapter that carries fewer bytes inline.
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
        mtu: u8::try_from(endpoint.port.mtu).unwrap_or(1),
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

/// Binds the window, which needs no peer.
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

//! Sets up the stream of a `tcp` connection.
//!
//! Invariants
//! - Both sides have proved the cluster key before the responder exists. The stream itself is
//!   neither encrypted nor signed: it belongs on a network that the cluster trusts.

use std::{
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    io::Errno,
    net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt},
};

use super::queue::TcpQueue;
use crate::{
    address::Wire,
    connection::Connection,
    doorbell::Doorbell,
    error::{ConnectError, ListenError},
    handshake,
    inbox::Inboxes,
    key::ClusterKey,
    limits::LISTEN_BACKLOG,
    listener::Origin,
    stream::Stream,
};

/// A peer whose machine is gone sends nothing more. The kernel probes it after this much silence.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// The kernel gives up after so many probes without an answer.
const KEEPALIVE_COUNT: u32 = 5;
/// A connection ends when sent bytes were not acknowledged for this long, in milliseconds.
const UNACKNOWLEDGED_MS_MAX: u32 = 10_000;
/// A congestion control that every kernel has and that does not pace by timers.
const UNPACED: &str = "reno";

pub(crate) fn new_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Listens at the first address of `host` that can be bound. Also returns the port, which the
/// system chooses if `port` is 0.
pub(crate) fn bind(host: &str, port: u16) -> Result<(OwnedFd, u16), ListenError> {
    let address = format!("tcp:{host}:{port}");
    let os = |action, source| ListenError::Os { action, address: address.clone(), source };
    let places = (host, port).to_socket_addrs().map_err(|e| os("resolve", e))?;
    let mut refusal = None;
    for place in places {
        match bind_at(place) {
            Ok(bound) => return Ok(bound),
            Err(Errno::ADDRINUSE) => return Err(ListenError::InUse { address }),
            Err(e) => refusal = Some(e),
        }
    }
    Err(os("bind", refusal.unwrap_or(Errno::ADDRNOTAVAIL).into()))
}

fn bind_at(place: SocketAddr) -> Result<(OwnedFd, u16), Errno> {
    let socket = new_socket(place)?;
    // Lingering connections of an earlier process must not block the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &place)?;
    rustix::net::listen(&socket, i32::try_from(LISTEN_BACKLOG).expect("LISTEN_BACKLOG fits an i32"))?;
    let listener = TcpListener::from(socket);
    let port = listener.local_addr().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?.port();
    Ok((listener.into(), port))
}

/// Connects to a listener.
pub(crate) fn call(
    host: &str,
    port: u16,
    key: &ClusterKey,
    deadline: Instant,
) -> Result<Connection, ConnectError> {
    let peer = format!("tcp:{host}:{port}");
    let refused = |source| ConnectError::Refused { peer: peer.clone(), source };
    let places = (host, port).to_socket_addrs().map_err(refused)?;
    let mut refusal = refused(Errno::ADDRNOTAVAIL.into());
    for place in places {
        match dial(place, &peer, deadline) {
            Ok(socket) => {
                let stream = Stream::new(&socket, &peer, deadline);
                handshake::call(&stream, Wire::Tcp, key)?;
                return finish(socket, peer, &Inboxes::default());
            }
            Err(e) => refusal = e,
        }
    }
    Err(refusal)
}

fn dial(place: SocketAddr, peer: &str, deadline: Instant) -> Result<OwnedFd, ConnectError> {
    let refused = |e: Errno| ConnectError::Refused { peer: peer.to_owned(), source: e.into() };
    let socket = new_socket(place).map_err(refused)?;
    match rustix::net::connect(&socket, &place) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            Stream::new(&socket, peer, deadline).wait_for(PollFlags::OUT, "connect")?;
            sockopt::socket_error(&socket).map_err(refused)?.map_err(refused)?;
        }
        Err(e) => return Err(refused(e)),
    }
    prepare(&socket).map_err(refused)?;
    Ok(socket)
}

/// The origin of a caller and its name.
pub(crate) fn identify(from: Option<SocketAddrAny>, wire: Wire) -> (Origin, String) {
    let scheme = if wire == Wire::Verbs { "verbs" } else { "tcp" };
    match from.and_then(|from| SocketAddr::try_from(from).ok()) {
        Some(place) => (Origin::of_address(place.ip()), format!("{scheme}:{place}")),
        None => (Origin::Unknown, format!("{scheme} peer of unknown address")),
    }
}

/// Sets up the connection of a caller that has proved the cluster key. Its messages go to one of
/// `inboxes`, if there are any.
pub(crate) fn set_up(socket: OwnedFd, peer: String, inboxes: &Inboxes) -> Result<Connection, ConnectError> {
    prepare(&socket).map_err(|error| ConnectError::Os {
        action: "set the options of a socket",
        peer: peer.clone(),
        source: error.into(),
    })?;
    finish(socket, peer, inboxes)
}

/// Sets the options by which a peer that is gone is noticed.
pub(crate) fn prepare(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?;
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS_MAX)
}

/// Whether both ends have the same address and are therefore on one machine.
fn stays_on_machine(socket: &OwnedFd) -> bool {
    let ip = |address: SocketAddrAny| SocketAddr::try_from(address).ok().map(|address| address.ip());
    let ours = rustix::net::getsockname(socket).ok().and_then(ip);
    let theirs = rustix::net::getpeername(socket).ok().flatten().and_then(ip);
    ours.is_some() && ours == theirs
}

fn finish(socket: OwnedFd, peer: String, inboxes: &Inboxes) -> Result<Connection, ConnectError> {
    // A system that uses BBR paces by timers and limits sending to the rate that it has measured.
    // Within a machine nothing can be congested, and BBR costs processor time and a third of the
    // bandwidth. Between machines the system's choice is kept.
    if stays_on_machine(&socket) {
        // If the kernel refuses, its own choice stays.
        let _ = sockopt::set_tcp_congestion(&socket, UNPACED);
    }
    let os = |source| ConnectError::Os { action: "start a responder", peer: peer.clone(), source };
    let bell = Arc::new(Doorbell::new().map_err(os)?);
    let (member, place) = match inboxes.seat(|inbox| inbox.join(Arc::clone(&bell), Arc::clone(&bell))) {
        None => (None, None),
        Some(Ok((which, member))) => {
            let id = member.id();
            (Some(member), Some((which, id)))
        }
        Some(Err(refusal)) => return Err(ConnectError::NoSeat { peer, reason: refusal.to_string() }),
    };
    let queue = TcpQueue::new(socket, bell, member).map_err(os)?;
    let connection = Connection::new(Box::new(queue), Wire::Tcp, peer);
    Ok(match place {
        Some((which, id)) => connection.through_inbox(which, id),
        None => connection,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_within_one_machine_is_not_paced() {
        let (listener, port) = bind("127.0.0.1", 0).unwrap();
        let listener = TcpListener::from(listener);
        let accepted = std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                loop {
                    match listener.accept() {
                        Ok((socket, _)) => return OwnedFd::from(socket),
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
            let ours = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            assert!(stays_on_machine(&OwnedFd::from(ours)));
            accepting.join().unwrap()
        });
        let connection =
            finish(accepted.try_clone().unwrap(), "peer".to_owned(), &Inboxes::default()).unwrap();
        assert_eq!(sockopt::tcp_congestion(&accepted).unwrap(), UNPACED);
        drop(connection);
    }
}

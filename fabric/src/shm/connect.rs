//! Sets up a `shm` connection over a Unix socket: checks the peer, and exchanges rings and
//! doorbells.
//!
//! Invariants
//! - The socket's file belongs to its user alone from the moment it exists (mode 0600).
//! - A file that is not a dead socket is never removed.
//! - Both sides have proved the cluster key, and that they run as one user, before a descriptor is
//!   passed.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use rustix::{
    event::PollFlags,
    fs::{FileType, FlockOperation, Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use super::{
    control::{Control, ReceivedControl, receive_control, send_control},
    ends::{Incoming, Outgoing},
    queue::ShmQueue,
    ring::{Consumer, Producer, RING_MEMORY_BYTES},
};
use crate::{
    address::Wire,
    connection::Connection,
    doorbell::Doorbell,
    error::{ConnectError, ListenError},
    handshake,
    inbox::{InboxSender, Inboxes, Membership},
    key::ClusterKey,
    limits::{LISTEN_BACKLOG, SOCKET_PATH_BYTES_MAX},
    listener::Origin,
    memory::{Mapping, Protection},
    stream::Stream,
};

/// The file of a listening socket. It is removed on drop, after the socket was closed, unless
/// another process listens at it by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Ok(place) = SocketAddrUnix::new(&self.path) else { return };
        let Ok(_lock) = lock_folder(&self.path) else { return };
        // A file that is gone, or that a live listener owns, must not be removed.
        let _ = remove_dead_socket(&self.path, &place, "");
    }
}

/// Locks the folder of `path` for making or removing sockets, until the returned descriptor is
/// dropped. Without the lock, two processes that find the same dead socket could remove each
/// other's new one.
fn lock_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Listens at `path`. A dead socket, at which no process listens, is replaced.
pub(crate) fn bind(path: &Path) -> Result<(OwnedFd, SocketFile), ListenError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let (path, bytes_max) = (path.to_owned(), SOCKET_PATH_BYTES_MAX);
        return Err(ListenError::PathTooLong { path, bytes, bytes_max });
    }
    let address = format!("shm:{}", path.display());
    let os = |action| {
        let address = address.clone();
        move |e: Errno| ListenError::Os { action, address, source: e.into() }
    };
    let place = SocketAddrUnix::new(path).map_err(os("use the path of"))?;
    let _lock = lock_folder(path).map_err(os("lock the folder of"))?;
    let socket = new_socket().map_err(os("make a socket for"))?;
    // Linux gives the file the mode that the socket has at the time of bind.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(os("make private"))?;
    match rustix::net::bind(&socket, &place) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => {
            remove_dead_socket(path, &place, &address)?;
            rustix::net::bind(&socket, &place).map_err(os("bind"))?;
        }
        Err(e) => return Err(os("bind")(e)),
    }
    let file = SocketFile { path: path.to_owned() };
    rustix::net::listen(&socket, i32::try_from(LISTEN_BACKLOG).expect("LISTEN_BACKLOG fits an i32"))
        .map_err(os("listen at"))?;
    Ok((socket, file))
}

fn remove_dead_socket(path: &Path, place: &SocketAddrUnix, address: &str) -> Result<(), ListenError> {
    let os =
        |action| move |e: Errno| ListenError::Os { action, address: address.to_owned(), source: e.into() };
    let stat = rustix::fs::lstat(path).map_err(os("look at"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(ListenError::NotASocket { path: path.to_owned() });
    }
    let probe = new_socket().map_err(os("make a socket for"))?;
    match rustix::net::connect(&probe, place) {
        Err(Errno::CONNREFUSED) => rustix::fs::unlink(path).map_err(os("remove the dead socket of")),
        // A full backlog shows that the listener is alive, too.
        Ok(()) | Err(Errno::AGAIN) => Err(ListenError::InUse { address: address.to_owned() }),
        Err(e) => Err(os("ask whether anybody listens at")(e)),
    }
}

/// Connects to a listener at `path`.
pub(crate) fn call(path: &Path, key: &ClusterKey, deadline: Instant) -> Result<Connection, ConnectError> {
    let peer = format!("shm:{}", path.display());
    let refused = |e: Errno| ConnectError::Refused { peer: peer.clone(), source: e.into() };
    let place = SocketAddrUnix::new(path).map_err(refused)?;
    let socket = new_socket().map_err(refused)?;
    loop {
        match rustix::net::connect(&socket, &place) {
            Ok(()) => break,
            // The backlog is full, and a Unix socket cannot be polled for room in it.
            Err(Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(Errno::AGAIN) => return Err(ConnectError::TimedOut { peer, phase: "connect" }),
            Err(Errno::INTR) => {}
            Err(e) => return Err(refused(e)),
        }
    }
    let stream = Stream::new(&socket, &peer, deadline);
    check_user(&socket, &stream)?;
    handshake::call(&stream, Wire::Shm, key)?;
    let (incoming, bell) = offer_ring(&socket, &stream)?;
    let outgoing = take_offer(&socket, &stream)?;
    Ok(Connection::new(finish(socket, (incoming, bell), outgoing, &peer)?, Wire::Shm, peer))
}

/// The origin of a caller and its name, or an error if it runs as another user.
pub(crate) fn identify(socket: &OwnedFd) -> Result<(Origin, String), ConnectError> {
    let (origin, peer) = match rustix::net::sockopt::socket_peercred(socket) {
        Ok(credentials) => {
            let process = credentials.pid.as_raw_nonzero().get();
            (Origin::Process(process), format!("shm process {process}"))
        }
        Err(_) => (Origin::Unknown, "shm process of unknown number".to_owned()),
    };
    check_user(socket, &Stream::new(socket, &peer, Instant::now()))?;
    Ok((origin, peer))
}

/// Sets up the connection of a caller that has proved the cluster key. Its messages go to one of
/// `inboxes`, if there are any.
pub(crate) fn set_up(
    socket: OwnedFd,
    peer: String,
    inboxes: &Inboxes,
    deadline: Instant,
) -> Result<Connection, ConnectError> {
    let stream = Stream::new(&socket, &peer, deadline);
    let (outgoing, peer_bell) = take_offer(&socket, &stream)?;
    let bell = new_bell(&stream)?;
    match inboxes.seat(|inbox| inbox.join(Arc::clone(&peer_bell), Arc::clone(&bell))) {
        None => {
            let incoming = offer_ring(&socket, &stream)?;
            let queue = finish(socket, incoming, (outgoing, peer_bell), &peer)?;
            Ok(Connection::new(queue, Wire::Shm, peer))
        }
        Some(Err(refusal)) => Err(ConnectError::NoSeat { peer, reason: refusal.to_string() }),
        Some(Ok((which, member))) => {
            offer_inbox(&socket, &stream, &member, &bell)?;
            let id = member.id();
            let queue = finish(socket, (Incoming::Inbox(member), bell), (outgoing, peer_bell), &peer)?;
            Ok(Connection::new(queue, Wire::Shm, peer).through_inbox(which, id))
        }
    }
}

fn check_user(socket: &OwnedFd, stream: &Stream<'_>) -> Result<(), ConnectError> {
    let credentials = rustix::net::sockopt::socket_peercred(socket)
        .map_err(|e| stream.failed(e, "ask for the peer's user"))?;
    let (found, expected) = (credentials.uid.as_raw(), rustix::process::geteuid().as_raw());
    if found == expected {
        return Ok(());
    }
    Err(ConnectError::OtherUser { peer: stream.peer(), found, expected })
}

const PHASE: &str = "exchange of rings";

fn failed<'a>(stream: &'a Stream<'_>) -> impl Fn(io::Error) -> ConnectError + 'a {
    |source| ConnectError::Os { action: PHASE, peer: stream.peer(), source }
}

fn new_bell(stream: &Stream<'_>) -> Result<Arc<Doorbell>, ConnectError> {
    Ok(Arc::new(Doorbell::new().map_err(failed(stream))?))
}

/// Gives the peer a ring of ours to fill, and our bell.
fn offer_ring(socket: &OwnedFd, stream: &Stream<'_>) -> Result<(Incoming, Arc<Doorbell>), ConnectError> {
    let ring = Consumer::new().map_err(|source| ConnectError::Memory { peer: stream.peer(), source })?;
    let bell = new_bell(stream)?;
    let setup = Control::Setup { ring_bytes: RING_MEMORY_BYTES as u64 };
    send_control(socket, setup, &[ring.memory(), bell.as_fd()]).map_err(|e| stream.failed(e, PHASE))?;
    Ok((Incoming::Ring(ring), bell))
}

/// Gives the peer an inbox to fill, its bell, and ours.
fn offer_inbox(
    socket: &OwnedFd,
    stream: &Stream<'_>,
    member: &Membership,
    bell: &Doorbell,
) -> Result<(), ConnectError> {
    let setup = Control::SetupInbox { bytes: member.memory().bytes() as u64, index: member.id().index() };
    let fds = [member.memory().memory(), member.bell().as_fd(), bell.as_fd()];
    send_control(socket, setup, &fds).map_err(|e| stream.failed(e, PHASE))
}

/// Receives the peer's ring or inbox, which we fill, and its bell.
fn take_offer(socket: &OwnedFd, stream: &Stream<'_>) -> Result<(Outgoing, Arc<Doorbell>), ConnectError> {
    let bell = |fd| Doorbell::from_peer(fd).map(Arc::new).map_err(failed(stream));
    let expected = Control::Setup { ring_bytes: RING_MEMORY_BYTES as u64 };
    loop {
        let heard = receive_control(socket);
        let found = match heard {
            ReceivedControl::Nothing => {
                stream.wait_for(PollFlags::IN, PHASE)?;
                continue;
            }
            ReceivedControl::HungUp => {
                return Err(ConnectError::HungUp { peer: stream.peer(), phase: PHASE });
            }
            ReceivedControl::Control(Control::SetupInbox { bytes, index }, fds) => {
                if let Ok([memory, inbox_bell, peer_bell]) = <[OwnedFd; 3]>::try_from(fds) {
                    let mapping = open_inbox(&memory, bytes).map_err(failed(stream))?;
                    let sender = InboxSender::open(mapping, index, bell(inbox_bell)?)
                        .map_err(|problem| failed(stream)(io::Error::other(problem)))?;
                    return Ok((Outgoing::Inbox(sender), bell(peer_bell)?));
                }
                "an inbox without three descriptors".to_owned()
            }
            ReceivedControl::Control(found, fds) if found == expected => {
                if let Ok([memory, peer_bell]) = <[OwnedFd; 2]>::try_from(fds) {
                    let ring = Producer::new(&memory).map_err(failed(stream))?;
                    return Ok((Outgoing::Ring(ring), bell(peer_bell)?));
                }
                "a ring without two descriptors".to_owned()
            }
            other => format!("{other:?}"),
        };
        let expected = format!("{expected:?} with 2 descriptors, or an inbox");
        return Err(ConnectError::NotAPeer { peer: stream.peer(), found, expected });
    }
}

/// Maps an inbox of the peer, after checking that the memory cannot shrink.
fn open_inbox(memory: &OwnedFd, bytes: u64) -> io::Result<Arc<Mapping>> {
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    super::region::check_memory(memory, bytes)?;
    if !rustix::fs::fcntl_getfl(memory)?.contains(OFlags::RDWR) {
        return Err(io::Error::other("the peer's inbox is not writable"));
    }
    Ok(Arc::new(Mapping::new(memory.as_fd(), bytes, Protection::ReadWrite)?))
}

fn finish(
    socket: OwnedFd,
    incoming: (Incoming, Arc<Doorbell>),
    outgoing: (Outgoing, Arc<Doorbell>),
    peer: &str,
) -> Result<Box<ShmQueue>, ConnectError> {
    match ShmQueue::new(socket, incoming, outgoing) {
        Ok(queue) => Ok(Box::new(queue)),
        Err(source) => Err(ConnectError::Os { action: PHASE, peer: peer.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_private_and_its_file_goes_with_the_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let (socket, file) = bind(&path).unwrap();
        assert_eq!(rustix::fs::stat(&path).unwrap().st_mode & 0o7777, 0o600);
        drop(socket);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let (live, file) = bind(&path).unwrap();
        assert!(matches!(bind(&path), Err(ListenError::InUse { .. })));
        // Its process dies without removing the file.
        drop(live);
        let (_second, _second_file) = bind(&path).unwrap();
        // The first owner does not remove the second one's file.
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path), Err(ListenError::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused_with_its_length() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(103)));
        assert!(matches!(bind(&path), Err(ListenError::PathTooLong { bytes: 108, bytes_max: 107, .. })));
    }
}

//! Runs the handshake of a new connection: each side proves that it is a Rackscan process of our
//! protocol version and cluster.
//!
//! ```text
//! caller                                   listener
//!   hello: magic, version, wire, nonce  ->
//!                                       <-   hello: magic, version, wire, nonce
//!   proof of the key over both hellos   ->
//!                                       <-   verdict, identity, proof over hellos and identity
//! ```
//!
//! Invariants
//! - Nothing that gives access (a region or a descriptor) is exchanged before both proofs were
//!   found right.
//! - A proof covers both nonces and the role of its sender, so it cannot be replayed or sent back.
//! - A listener's proof covers its identity (`ClusterKey::of_node`). The caller rejects a listener
//!   that is not the node it means to call.
//! - The version is read from the first 16 bytes, whose layout never changes.
//! - The listener's side never waits, and a caller's messages have a fixed length: no length that a
//!   caller declares is read.

use std::{os::fd::BorrowedFd, time::Instant};

use rustix::{io::Errno, net::RecvFlags};

use crate::{
    address::Wire,
    error::ConnectError,
    key::{CLUSTER_KEY_BYTES, ClusterKey, IDENTITY_BYTES, PeerIdentity},
    stream::Stream,
};

/// First bytes of either side.
pub const FABRIC_MAGIC: [u8; 8] = *b"RSFABRIC";

/// Version of the protocol, over all wires. Peers of different versions do not connect.
pub const FABRIC_VERSION: u32 = 3;

const PREFIX_BYTES: usize = 16;
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = PREFIX_BYTES + NONCE_BYTES;
/// Everything that a caller sends: its hello and its proof.
const CALLER_BYTES: usize = HELLO_BYTES + CLUSTER_KEY_BYTES;

const HELLO_PHASE: &str = "hello";
const PROOF_PHASE: &str = "proof of the cluster key";
const VERDICT_PHASE: &str = "verdict on the cluster key";
const IDENTITY_PHASE: &str = "identity";

const CALLER_PROOF: &[u8] = b"rackscan fabric caller";
const LISTENER_PROOF: &[u8] = b"rackscan fabric listener";

const ACCEPTED: u8 = 1;
const REFUSED: u8 = 2;

type Hello = [u8; HELLO_BYTES];

fn hello(wire: Wire, stream: &Stream<'_>) -> Result<Hello, ConnectError> {
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&FABRIC_MAGIC);
    hello[8..12].copy_from_slice(&FABRIC_VERSION.to_le_bytes());
    hello[12] = match wire {
        Wire::Shm => 1,
        Wire::Tcp => 2,
        Wire::Verbs => 3,
        // Never sent: both ends are in one process and exchange no hello.
        Wire::Sim => 4,
    };
    let failed = |e: getrandom::Error| ConnectError::Os {
        action: "draw a random nonce",
        peer: stream.peer(),
        source: std::io::Error::other(e.to_string()),
    };
    getrandom::fill(&mut hello[PREFIX_BYTES..]).map_err(failed)?;
    Ok(hello)
}

/// Reads a hello's prefix and checks its magic as soon as that has arrived, so that a peer with
/// another protocol is rejected without waiting for more bytes.
fn read_prefix(stream: &Stream<'_>) -> Result<[u8; PREFIX_BYTES], ConnectError> {
    let mut prefix = [0; PREFIX_BYTES];
    stream.read_exact(&mut prefix[..8], HELLO_PHASE)?;
    check_magic(&prefix[..8], stream)?;
    stream.read_exact(&mut prefix[8..], HELLO_PHASE)?;
    Ok(prefix)
}

fn check_magic(found: &[u8], stream: &Stream<'_>) -> Result<(), ConnectError> {
    if found == FABRIC_MAGIC {
        return Ok(());
    }
    let quoted = |bytes: &[u8]| format!("\"{}\"", bytes.escape_ascii());
    let (found, expected) = (quoted(found), quoted(&FABRIC_MAGIC));
    Err(ConnectError::NotAPeer { peer: stream.peer(), found, expected })
}

fn check_version(prefix: [u8; PREFIX_BYTES], stream: &Stream<'_>) -> Result<(), ConnectError> {
    let found = u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
    if found == FABRIC_VERSION {
        return Ok(());
    }
    Err(ConnectError::Version { peer: stream.peer(), found, expected: FABRIC_VERSION })
}

fn read_rest(prefix: [u8; PREFIX_BYTES], stream: &Stream<'_>) -> Result<Hello, ConnectError> {
    let mut hello = [0; HELLO_BYTES];
    hello[..PREFIX_BYTES].copy_from_slice(&prefix);
    stream.read_exact(&mut hello[PREFIX_BYTES..], HELLO_PHASE)?;
    Ok(hello)
}

/// The caller's side.
pub(crate) fn call(stream: &Stream<'_>, wire: Wire, key: &ClusterKey) -> Result<(), ConnectError> {
    let ours = hello(wire, stream)?;
    stream.write_all(&ours, HELLO_PHASE)?;
    let prefix = read_prefix(stream)?;
    check_version(prefix, stream)?;
    let theirs = read_rest(prefix, stream)?;
    stream.write_all(&key.prove(&[CALLER_PROOF, &ours, &theirs]), PROOF_PHASE)?;
    let mut verdict = [0];
    stream.read_exact(&mut verdict, VERDICT_PHASE)?;
    match verdict[0] {
        ACCEPTED => {}
        REFUSED => return Err(ConnectError::WrongKey { peer: stream.peer() }),
        other => {
            let (found, expected) = (format!("verdict {other}"), format!("{ACCEPTED} or {REFUSED}"));
            return Err(ConnectError::NotAPeer { peer: stream.peer(), found, expected });
        }
    }
    let (mut identity, mut proof) = ([0; IDENTITY_BYTES], [0; CLUSTER_KEY_BYTES]);
    stream.read_exact(&mut identity, IDENTITY_PHASE)?;
    stream.read_exact(&mut proof, PROOF_PHASE)?;
    if !key.accepts(&[LISTENER_PROOF, &ours, &theirs, &identity], &proof) {
        return Err(ConnectError::WrongKey { peer: stream.peer() });
    }
    demand(key, PeerIdentity::from_bytes(identity), || stream.peer())
}

/// Rejects a listener whose identity is not the demanded one.
pub(crate) fn demand(
    key: &ClusterKey,
    found: PeerIdentity,
    peer: impl FnOnce() -> String,
) -> Result<(), ConnectError> {
    if key.identity().admits(found) {
        return Ok(());
    }
    let (found, expected) = (found.to_string(), key.identity().to_string());
    Err(ConnectError::OtherPeer { peer: peer(), found, expected })
}

/// The listener's side of the handshake with one caller, and its progress.
#[derive(Debug)]
pub(crate) struct Answering {
    wire: Wire,
    peer: String,
    received: [u8; CALLER_BYTES],
    received_bytes: usize,
    ours: Option<Hello>,
}

impl Answering {
    /// The handshake with a caller that has sent nothing yet.
    pub(crate) fn new(wire: Wire, peer: String) -> Self {
        Self { wire, peer, received: [0; CALLER_BYTES], received_bytes: 0, ours: None }
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Whether the caller has sent the first part of a hello of our version.
    pub(crate) fn has_begun(&self) -> bool {
        self.ours.is_some()
    }

    /// What the caller must send next.
    pub(crate) fn phase(&self) -> &'static str {
        if self.received_bytes < HELLO_BYTES { HELLO_PHASE } else { PROOF_PHASE }
    }

    /// Reads what the caller has sent and answers it, without waiting. Returns true when both have
    /// proved the key.
    pub(crate) fn advance(&mut self, socket: BorrowedFd<'_>, key: &ClusterKey) -> Result<bool, ConnectError> {
        let peer = self.peer.clone();
        // The deadline is now: the few bytes that we send fit into the buffer of a socket to which
        // nothing was written yet.
        let stream = Stream::new(&socket, &peer, Instant::now());
        loop {
            match rustix::net::recv(socket, &mut self.received[self.received_bytes..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(ConnectError::HungUp { peer, phase: self.phase() }),
                Ok((count, _)) => self.received_bytes += count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(stream.failed(error, self.phase())),
            }
            if self.answer_received(&stream, key)? {
                return Ok(true);
            }
        }
    }

    /// Answers what was received. Returns true when that was everything and valid.
    fn answer_received(&mut self, stream: &Stream<'_>, key: &ClusterKey) -> Result<bool, ConnectError> {
        if self.received_bytes >= FABRIC_MAGIC.len() {
            check_magic(&self.received[..FABRIC_MAGIC.len()], stream)?;
        }
        let Some((prefix, _)) = self.received[..self.received_bytes].split_first_chunk::<PREFIX_BYTES>()
        else {
            return Ok(false);
        };
        let ours = match self.ours {
            Some(ours) => ours,
            None => {
                // Send our version before checking theirs, so that the caller's error can name
                // both.
                let ours = hello(self.wire, stream)?;
                stream.write_all(&ours, HELLO_PHASE)?;
                check_version(*prefix, stream)?;
                *self.ours.insert(ours)
            }
        };
        if self.received_bytes < CALLER_BYTES {
            return Ok(false);
        }
        let (theirs, proof) = self.received.split_at(HELLO_BYTES);
        let proved =
            proof.first_chunk().is_some_and(|proof| key.accepts(&[CALLER_PROOF, theirs, &ours], proof));
        if !proved {
            stream.write_all(&[REFUSED], VERDICT_PHASE)?;
            return Err(ConnectError::WrongKey { peer: stream.peer() });
        }
        stream.write_all(&[ACCEPTED], VERDICT_PHASE)?;
        let identity = key.identity().to_bytes();
        stream.write_all(&identity, IDENTITY_PHASE)?;
        stream.write_all(&key.prove(&[LISTENER_PROOF, theirs, &ours, &identity]), PROOF_PHASE)?;
        Ok(true)
    }
}

//! Is the other end a Rackscan process of our version and of our cluster?
//!
//! ```text
//! caller                                   listener
//!   hello: magic, version, wire, nonce  ->
//!                                       <-   hello: magic, version, wire, nonce
//!   proof of the key over both hellos   ->
//!                                       <-   verdict, who it is, and its own proof over that, too
//! ```
//!
//! Invariants
//! - Nothing that gives access (no region, no descriptor) is exchanged before both proofs hold.
//! - A proof covers both nonces and says whose proof it is, so it cannot be replayed or sent back.
//! - A listener's proof covers who it is (`ClusterKey::of_node`): one that is not the node meant is turned away.
//! - The version is read from the first 16 bytes, whose layout never changes.

use crate::{
    address::Wire,
    error::ConnectError,
    key::{CLUSTER_KEY_BYTES, ClusterKey, IDENTITY_BYTES, PeerIdentity},
    stream::Stream,
};

/// First bytes of either side.
pub const FABRIC_MAGIC: [u8; 8] = *b"RSFABRIC";

/// Version of everything that this crate says to a peer; peers of different versions do not connect.
pub const FABRIC_VERSION: u32 = 3;

const PREFIX_BYTES: usize = 16;
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = PREFIX_BYTES + NONCE_BYTES;

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
        // Both ends are in one process and say no hello.
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

/// Reads a hello's prefix and checks its magic as soon as that is there, so that a peer that speaks another language
/// is turned away without waiting for more of it.
fn read_prefix(stream: &Stream<'_>) -> Result<[u8; PREFIX_BYTES], ConnectError> {
    let mut prefix = [0; PREFIX_BYTES];
    stream.read_exact(&mut prefix[..8], "hello")?;
    if prefix[..8] != FABRIC_MAGIC {
        let found = format!("\"{}\"", prefix[..8].escape_ascii());
        let expected = format!("\"{}\"", FABRIC_MAGIC.escape_ascii());
        return Err(ConnectError::NotAPeer { peer: stream.peer(), found, expected });
    }
    stream.read_exact(&mut prefix[8..], "hello")?;
    Ok(prefix)
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
    stream.read_exact(&mut hello[PREFIX_BYTES..], "hello")?;
    Ok(hello)
}

/// The caller's side.
pub(crate) fn call(stream: &Stream<'_>, wire: Wire, key: &ClusterKey) -> Result<(), ConnectError> {
    let ours = hello(wire, stream)?;
    stream.write_all(&ours, "hello")?;
    let prefix = read_prefix(stream)?;
    check_version(prefix, stream)?;
    let theirs = read_rest(prefix, stream)?;
    stream.write_all(&key.prove(&[CALLER_PROOF, &ours, &theirs]), "proof of the cluster key")?;
    let mut verdict = [0];
    stream.read_exact(&mut verdict, "verdict on the cluster key")?;
    match verdict[0] {
        ACCEPTED => {}
        REFUSED => return Err(ConnectError::WrongKey { peer: stream.peer() }),
        other => {
            let (found, expected) = (format!("verdict {other}"), format!("{ACCEPTED} or {REFUSED}"));
            return Err(ConnectError::NotAPeer { peer: stream.peer(), found, expected });
        }
    }
    let (mut identity, mut proof) = ([0; IDENTITY_BYTES], [0; CLUSTER_KEY_BYTES]);
    stream.read_exact(&mut identity, "identity")?;
    stream.read_exact(&mut proof, "proof of the cluster key")?;
    if !key.accepts(&[LISTENER_PROOF, &ours, &theirs, &identity], &proof) {
        return Err(ConnectError::WrongKey { peer: stream.peer() });
    }
    demand(key, PeerIdentity::from_bytes(identity), || stream.peer())
}

/// Turns a listener away that is not the one meant.
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

/// The listener's side.
pub(crate) fn answer(stream: &Stream<'_>, wire: Wire, key: &ClusterKey) -> Result<(), ConnectError> {
    let prefix = read_prefix(stream)?;
    // Say our version before judging theirs, so that the caller can name both.
    let ours = hello(wire, stream)?;
    stream.write_all(&ours, "hello")?;
    check_version(prefix, stream)?;
    let theirs = read_rest(prefix, stream)?;
    let mut proof = [0; CLUSTER_KEY_BYTES];
    stream.read_exact(&mut proof, "proof of the cluster key")?;
    if !key.accepts(&[CALLER_PROOF, &theirs, &ours], &proof) {
        stream.write_all(&[REFUSED], "verdict on the cluster key")?;
        return Err(ConnectError::WrongKey { peer: stream.peer() });
    }
    stream.write_all(&[ACCEPTED], "verdict on the cluster key")?;
    let identity = key.identity().to_bytes();
    stream.write_all(&identity, "identity")?;
    stream.write_all(&key.prove(&[LISTENER_PROOF, &theirs, &ours, &identity]), "proof of the cluster key")
}

//! Defines the cluster key, and the proofs that a process holds it.
//!
//! Invariants
//! - The key never appears in `Debug` output or in an error.
//! - Proofs are compared in constant time.
//! - A key may carry the identity of its holder. A listener proves the identity together with the
//!   key, and a caller can require an identity of the peer that it calls.

use std::{fmt, str::FromStr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::ClusterKeyError;

/// Bytes of a cluster key and of a proof.
pub const CLUSTER_KEY_BYTES: usize = 32;

/// Bytes of a listener's identity.
pub(crate) const IDENTITY_BYTES: usize = 16;

/// The identity that a listener has, or must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerIdentity {
    pub(crate) cluster: Option<u64>,
    pub(crate) node: Option<u16>,
}

const SAYS_CLUSTER: u8 = 1;
const SAYS_NODE: u8 = 2;

impl PeerIdentity {
    pub(crate) fn to_bytes(self) -> [u8; IDENTITY_BYTES] {
        let mut bytes = [0; IDENTITY_BYTES];
        bytes[0] = self.cluster.map_or(0, |_| SAYS_CLUSTER) | self.node.map_or(0, |_| SAYS_NODE);
        bytes[2..4].copy_from_slice(&self.node.unwrap_or(0).to_le_bytes());
        bytes[8..].copy_from_slice(&self.cluster.unwrap_or(0).to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; IDENTITY_BYTES]) -> Self {
        let [says, _, n0, n1, _, _, _, _, cluster @ ..] = bytes;
        let cluster = (says & SAYS_CLUSTER != 0).then(|| u64::from_le_bytes(cluster));
        Self { cluster, node: (says & SAYS_NODE != 0).then(|| u16::from_le_bytes([n0, n1])) }
    }

    /// Whether a listener with the identity `found` satisfies this demand.
    pub(crate) fn admits(self, found: Self) -> bool {
        let agrees = self.cluster.is_none() || self.cluster == found.cluster;
        agrees && (self.node.is_none() || self.node == found.node)
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.node, self.cluster) {
            (Some(node), Some(cluster)) => write!(f, "node {node} of cluster {cluster}"),
            (Some(node), None) => write!(f, "node {node}"),
            (None, Some(cluster)) => write!(f, "a process of cluster {cluster}"),
            (None, None) => f.write_str("a process that does not say who it is"),
        }
    }
}

/// The secret that all processes of one cluster share, and optionally the identity of its holder.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey {
    secret: [u8; CLUSTER_KEY_BYTES],
    identity: PeerIdentity,
}

impl ClusterKey {
    /// A fresh key from the operating system's random source.
    ///
    /// # Errors
    /// When that source fails.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; CLUSTER_KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Self::from_bytes(bytes))
    }

    /// The key with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; CLUSTER_KEY_BYTES]) -> Self {
        Self { secret: bytes, identity: PeerIdentity::default() }
    }

    /// The same key, bound to a cluster: a listener proves that it belongs to the cluster, a caller
    /// demands that of the peer that it calls.
    #[must_use]
    pub fn of_cluster(&self, cluster: u64) -> Self {
        let identity = PeerIdentity { cluster: Some(cluster), node: None };
        Self { identity, ..self.clone() }
    }

    /// The same key, bound to one node of the cluster: a listener proves that it is this node, a
    /// caller demands that of the peer that it calls. Without a cluster
    /// ([`ClusterKey::of_cluster`]) nothing is proved or demanded.
    #[must_use]
    pub fn of_node(&self, node: u16) -> Self {
        let node = self.identity.cluster.map(|_| node);
        Self { identity: PeerIdentity { node, ..self.identity }, ..self.clone() }
    }

    /// The same key for any node of the cluster.
    #[must_use]
    pub fn of_any_node(&self) -> Self {
        Self { identity: PeerIdentity { node: None, ..self.identity }, ..self.clone() }
    }

    pub(crate) fn identity(&self) -> PeerIdentity {
        self.identity
    }

    /// Whether both have the same secret, whatever the identities.
    pub(crate) fn has_secret_of(&self, other: &Self) -> bool {
        self.secret == other.secret
    }

    /// 64 hexadecimal digits, for a file that only the owner may read.
    #[must_use]
    pub fn to_hex(&self) -> String {
        use fmt::Write as _;
        self.secret.iter().fold(String::with_capacity(2 * CLUSTER_KEY_BYTES), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn code(&self, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
        let mut code = Hmac::<Sha256>::new_from_slice(&self.secret).ok()?;
        for part in parts {
            code.update(part);
        }
        Some(code)
    }

    /// HMAC-SHA256 of the parts under this key.
    pub(crate) fn prove(&self, parts: &[&[u8]]) -> [u8; CLUSTER_KEY_BYTES] {
        // HMAC takes keys of any length, so there is always a code.
        self.code(parts).map_or([0; CLUSTER_KEY_BYTES], |code| code.finalize().into_bytes().into())
    }

    /// Whether `proof` was made of the parts with this key.
    pub(crate) fn accepts(&self, parts: &[&[u8]], proof: &[u8; CLUSTER_KEY_BYTES]) -> bool {
        self.code(parts).is_some_and(|code| code.verify_slice(proof).is_ok())
    }
}

impl FromStr for ClusterKey {
    type Err = ClusterKeyError;

    fn from_str(text: &str) -> Result<Self, ClusterKeyError> {
        let text = text.trim();
        if text.len() != 2 * CLUSTER_KEY_BYTES {
            return Err(ClusterKeyError { found: format!("{} characters", text.len()) });
        }
        let mut key = [0; CLUSTER_KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
            match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => return Err(ClusterKeyError { found: "a character that is no digit".to_owned() }),
            }
        }
        Ok(Self::from_bytes(key))
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_debug_hides_it() {
        let key = ClusterKey::from_bytes(std::array::from_fn(|i| u8::try_from(i * 7 % 256).unwrap()));
        assert_eq!(key.to_hex().parse::<ClusterKey>().unwrap(), key);
        assert_eq!(format!("{key:?}"), "ClusterKey(..)");
    }

    #[test]
    fn a_proof_holds_only_for_its_key_and_parts() {
        let key = ClusterKey::from_bytes([1; CLUSTER_KEY_BYTES]);
        let proof = key.prove(&[b"client", b"nonce"]);
        assert!(key.accepts(&[b"client", b"nonce"], &proof));
        assert!(!key.accepts(&[b"server", b"nonce"], &proof));
        assert!(!ClusterKey::from_bytes([2; CLUSTER_KEY_BYTES]).accepts(&[b"client", b"nonce"], &proof));
    }

    #[test]
    fn an_identity_survives_its_bytes_and_admits_only_the_identity_that_it_demands() {
        let key = ClusterKey::from_bytes([1; CLUSTER_KEY_BYTES]);
        let (none, cluster) = (key.of_node(3), key.of_cluster(7));
        let node = cluster.of_node(3);
        for key in [&key, &none, &cluster, &node, &node.of_any_node()] {
            assert_eq!(PeerIdentity::from_bytes(key.identity().to_bytes()), key.identity());
            assert!(key.identity().admits(node.identity()), "{key:?}");
            assert!(key.has_secret_of(&node));
        }
        assert_eq!(node.identity().to_string(), "node 3 of cluster 7");
        for other in [&key, &cluster, &cluster.of_node(4), &key.of_cluster(8).of_node(3)] {
            assert!(!node.identity().admits(other.identity()), "{}", other.identity());
        }
    }

    #[test]
    fn a_wrong_text_is_refused_without_repeating_it() {
        assert_eq!("abc".parse::<ClusterKey>().unwrap_err().found, "3 characters");
        assert!("g".repeat(64).parse::<ClusterKey>().is_err());
    }
}

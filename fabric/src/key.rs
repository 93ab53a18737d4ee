//! What do the members of a cluster share, and how is it shown without being told?
//!
//! Invariants
//! - The key never appears in `Debug` output or in an error.
//! - Proofs are compared in constant time.

use std::{fmt, str::FromStr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::ClusterKeyError;

/// Bytes of a cluster key and of a proof.
pub const CLUSTER_KEY_BYTES: usize = 32;

/// The secret that all processes of one cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; CLUSTER_KEY_BYTES]);

impl ClusterKey {
    /// A fresh key from the operating system's random source.
    ///
    /// # Errors
    /// When that source fails.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; CLUSTER_KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Self(bytes))
    }

    /// The key with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; CLUSTER_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// 64 hexadecimal digits, for a file that only the owner may read.
    #[must_use]
    pub fn to_hex(&self) -> String {
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(2 * CLUSTER_KEY_BYTES), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn code(&self, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
        let mut code = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in parts {
            code.update(part);
        }
        Some(code)
    }

    /// HMAC-SHA256 of the parts under this key.
    pub(crate) fn prove(&self, parts: &[&[u8]]) -> [u8; CLUSTER_KEY_BYTES] {
        // HMAC takes a key of any length, so there is always a code.
        self.code(parts).map_or([0; CLUSTER_KEY_BYTES], |code| code.finalize().into_bytes().into())
    }

    /// Whether `proof` is what a holder of this key makes of the parts.
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
        Ok(Self(key))
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
    fn a_wrong_text_is_refused_without_repeating_it() {
        assert_eq!("abc".parse::<ClusterKey>().unwrap_err().found, "3 characters");
        assert!("g".repeat(64).parse::<ClusterKey>().is_err());
    }
}

//! Encodes values that identify their writers, so that a check can tell which write a read has
//! found.
//!
//! A checked value repeats one word from its start to its end: the writer's token, mixed with the
//! key's number. So the check detects a value with bytes of two writers, and a value under the
//! wrong key.
//!
//! Invariants
//! - Two writes of one run never have the same token.

use crate::limits::VALUE_BYTES_LEAST;
use rackscan_ramp::item::Value;

/// Identifies a write of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Token(pub(super) u64);

impl Token {
    /// The token of a session's write. Tokens of a run contain its `epoch`, of 20 bits, so that
    /// those of another run differ.
    pub(super) fn of(epoch: u32, session: u32, write: u32) -> Self {
        Self(u64::from(epoch & 0xF_FFFF) << 44 | u64::from(session & 0xFFF) << 32 | u64::from(write))
    }
}

const WORD: usize = VALUE_BYTES_LEAST as usize;

fn mask(key: u32) -> u64 {
    (u64::from(key) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The value of a write with this token under a key; `None` if no value can have this length.
pub(super) fn value(token: Token, key: u32, length_bytes: u32, buffer: &mut Vec<u8>) -> Option<Value> {
    let length = usize::try_from(length_bytes).ok()?;
    let word = (token.0 ^ mask(key)).to_le_bytes();
    buffer.clear();
    while buffer.len() < length {
        buffer.extend_from_slice(&word);
    }
    buffer.truncate(length);
    Value::new(buffer).ok()
}

/// The writer of a value; `None` if its bytes are not of one writer, or belong to another key, as
/// far as its bytes tell.
pub(super) fn writer(bytes: &[u8], key: u32) -> Option<Token> {
    let word: [u8; WORD] = bytes.first_chunk().copied()?;
    let whole = bytes.chunks(WORD).all(|chunk| word.starts_with(chunk));
    whole.then(|| Token(u64::from_le_bytes(word) ^ mask(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_who_wrote_it_and_bytes_of_two_writers_say_nothing() {
        let (token, other) = (Token::of(1, 2, 3), Token::of(1, 2, 4));
        let mut buffer = Vec::new();
        for length in [8, 9, 15, 16, 1000] {
            let bytes = value(token, 7, length, &mut buffer).unwrap().bytes().unwrap().to_vec();
            assert_eq!(bytes.len(), length as usize);
            assert_eq!(writer(&bytes, 7), Some(token));
            assert_ne!(writer(&bytes, 8), Some(token), "another key");
        }
        let mut torn = value(token, 7, 1000, &mut buffer).unwrap().bytes().unwrap().to_vec();
        let others = value(other, 7, 1000, &mut buffer).unwrap().bytes().unwrap().to_vec();
        torn[512..].copy_from_slice(&others[512..]);
        assert_eq!(writer(&torn, 7), None);
        assert_eq!(writer(&[1; 7], 7), None, "too short for a word");
    }

    #[test]
    fn tokens_of_runs_sessions_and_writes_differ() {
        let all = [Token::of(1, 1, 1), Token::of(2, 1, 1), Token::of(1, 2, 1), Token::of(1, 1, 2)];
        let distinct: std::collections::HashSet<_> = all.into_iter().collect();
        assert_eq!(distinct.len(), 4);
    }
}

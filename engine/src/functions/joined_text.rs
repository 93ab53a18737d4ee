//! Builds a long text by appending texts with delimiters between them.
//!
//! Invariants
//! - Stored parts do not move when the text grows: a `String` of 1 GiB would need 2 GiB more.
//! - A delimiter takes one byte until the text is read, whatever its length.

use std::mem;

use datafusion::common::{Result, exec_err};

use crate::limits::COLLECTED_BYTES_MAX;

/// Bytes after which a new part begins.
const PART_BYTES: usize = 1 << 20;
/// Stands for a delimiter: a byte that no text in UTF-8 has.
const MARK: u8 = 0xFF;

/// Refuses a joined text of this many bytes if it is too long.
pub(super) fn check_length(bytes: usize) -> Result<()> {
    if bytes > COLLECTED_BYTES_MAX {
        return exec_err!(
            "requested length too large: string_agg() makes {bytes} bytes or more of the rows of a group \
             or a window, expected at most {COLLECTED_BYTES_MAX}"
        );
    }
    Ok(())
}

/// The added texts, in order.
#[derive(Debug, Default)]
pub(super) struct JoinedText {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
    texts: usize,
    /// Bytes of the texts, without delimiters.
    bytes: usize,
    /// Bytes of memory.
    size: usize,
}

impl JoinedText {
    /// Adds a text, and returns how many bytes of memory that takes.
    pub(super) fn push(&mut self, text: &str) -> usize {
        let mut known = self.last.capacity();
        if !self.last.is_empty() && self.last.len() + text.len() >= PART_BYTES {
            self.full.push(mem::take(&mut self.last));
            known = 0;
        }
        let is_first = self.texts == 0;
        self.last.reserve(text.len() + usize::from(!is_first));
        if !is_first {
            self.last.push(MARK);
        }
        self.last.extend_from_slice(text.as_bytes());
        self.texts += 1;
        self.bytes += text.len();
        let taken = self.last.capacity() - known;
        self.size += taken;
        taken
    }

    /// Bytes of memory.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Bytes of the whole text.
    pub(super) fn len(&self, delimiter: &str) -> usize {
        self.texts.saturating_sub(1).saturating_mul(delimiter.len()).saturating_add(self.bytes)
    }

    /// The whole text; `None` if no text was added.
    pub(super) fn text(&self, delimiter: &str) -> Option<String> {
        (self.texts > 0).then(|| {
            let mut whole = Vec::with_capacity(self.len(delimiter));
            self.full.iter().chain([&self.last]).for_each(|part| append(&mut whole, part, delimiter));
            into_text(whole)
        })
    }

    /// As [`Self::text`], but frees the stored parts as it goes.
    pub(super) fn into_text(self, delimiter: &str) -> Option<String> {
        (self.texts > 0).then(|| {
            let mut whole = Vec::with_capacity(self.len(delimiter));
            self.full.into_iter().chain([self.last]).for_each(|part| append(&mut whole, &part, delimiter));
            into_text(whole)
        })
    }
}

fn append(whole: &mut Vec<u8>, part: &[u8], delimiter: &str) {
    let mut begin = 0;
    for mark in memchr::memchr_iter(MARK, part) {
        whole.extend_from_slice(&part[begin..mark]);
        whole.extend_from_slice(delimiter.as_bytes());
        begin = mark + 1;
    }
    whole.extend_from_slice(&part[begin..]);
}

fn into_text(whole: Vec<u8>) -> String {
    String::from_utf8(whole).expect("texts and delimiters are texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_all_lengths_are_joined_as_the_standard_library_joins_them() {
        let lengths = [0, 1, 7, PART_BYTES - 1, 0, PART_BYTES, PART_BYTES + 1, 500_000, 600_000, 0, 3];
        let texts: Vec<String> = lengths.iter().map(|bytes| "x".repeat(*bytes)).collect();
        for delimiter in ["", ",", "\u{e9}\u{20ac}"] {
            let mut joined = JoinedText::default();
            assert_eq!(joined.text(delimiter), None);
            let mut taken = 0;
            for (added, text) in texts.iter().enumerate() {
                taken += joined.push(text);
                assert_eq!(joined.size(), taken);
                assert_eq!(joined.text(delimiter), Some(texts[..=added].join(delimiter)));
                assert_eq!(joined.len(delimiter), texts[..=added].join(delimiter).len());
            }
            assert_eq!(joined.into_text(delimiter), Some(texts.join(delimiter)));
        }
    }

    #[test]
    fn memory_is_less_than_twice_the_text_and_delimiters_take_none() {
        let mut joined = JoinedText::default();
        for _ in 0..100_000 {
            joined.push("0123456789");
        }
        assert!(joined.size() < 2 << 20, "{} bytes for 1,000,000", joined.size());
        assert_eq!(joined.len(&"-".repeat(1 << 30)), 1_000_000 + 99_999 * (1 << 30));
    }
}

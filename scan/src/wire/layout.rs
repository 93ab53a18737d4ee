//! Defines the header and the alignment of an encoded batch, and the checked access to its buffers
//! that all parts of the format use.

use arrow::error::ArrowError;

pub(super) const MAGIC: [u8; 4] = *b"RSB\x02";
pub(super) const HEADER_BYTES: usize = 24;
pub(super) const ALIGNMENT: usize = 8;
/// Magic and checksum, which the checksum does not cover.
pub(super) const UNCOVERED_BYTES: usize = 8;

/// Why bytes are not a batch.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes break the layout.
    #[error("the batch received from a node is malformed: {what} is {found}, expected {expected}")]
    Malformed {
        /// The part at fault.
        what: &'static str,
        /// What is there.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The batch cannot be rebuilt, or has a type that no scan yields.
    #[error("the batch received from a node cannot be decoded: {0}")]
    Arrow(#[from] ArrowError),
}

pub(super) fn malformed<T>(
    what: &'static str,
    found: impl ToString,
    expected: impl Into<String>,
) -> Result<T, WireError> {
    Err(WireError::Malformed { what, found: found.to_string(), expected: expected.into() })
}

/// A count of what is encoded: rows, columns and entries, which are at most `WIRE_CELLS_MAX`, or
/// bytes of a view.
pub(super) fn count32(count: usize) -> u32 {
    u32::try_from(count).expect("a count on the wire: cells were checked, and views have 32-bit lengths")
}

pub(super) fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

pub(super) fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Appends buffers to the batch that begins at `start`.
pub(super) struct Writer<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) start: usize,
}

impl Writer<'_> {
    pub(super) fn align(&mut self) {
        let length = (self.bytes.len() - self.start).next_multiple_of(ALIGNMENT);
        self.bytes.resize(self.start + length, 0);
    }

    /// Aligns the end of the batch, and returns the vector to append a buffer to.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.align();
        self.bytes
    }
}

/// Returns buffers in order; never reads beyond the end of the batch.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn buffer(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let start = self.at.next_multiple_of(ALIGNMENT);
        match start.checked_add(length).and_then(|end| self.bytes.get(start..end)) {
            Some(buffer) => {
                self.at = start + length;
                Ok(buffer)
            }
            None => malformed("the end of a buffer", start.saturating_add(length), {
                format!("at most {}", self.bytes.len())
            }),
        }
    }
}

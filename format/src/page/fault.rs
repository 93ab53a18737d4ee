//! Defines the error of opening or decoding a page.

use az::SaturatingCast;

use super::{FORMAT_VERSION, MAGIC, PageIdentity};

/// Why bytes are not the page that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// The bytes are no page.
    #[error("the page begins with {found:02x?}, expected {MAGIC:02x?}: no page was written here")]
    Magic {
        /// The first bytes.
        found: [u8; 8],
    },
    /// The page was written by another version of this format.
    #[error(
        "the page has format version {found}, expected {FORMAT_VERSION}: written by another version of rackscan"
    )]
    Version {
        /// The version in the header.
        found: u16,
    },
    /// The bytes changed since they were written.
    #[error(
        "the page has checksum {found:08x}, expected {wanted:08x}: the bytes have changed since they were written"
    )]
    Checksum {
        /// Stored in the header.
        wanted: u32,
        /// Computed over the bytes found.
        found: u32,
    },
    /// The page is valid, but it is another page than the one asked for.
    #[error("found {found}, expected {wanted}: the read went to a wrong place")]
    Misdirected {
        /// The page that was asked for.
        wanted: PageIdentity,
        /// The page that is there.
        found: PageIdentity,
    },
    /// The number of bytes given differs from the page's length.
    #[error("the page has {found} bytes, expected {wanted} bytes")]
    Length {
        /// Stored bytes of the page (of the smallest page, when there is no whole header).
        wanted: u64,
        /// Bytes given.
        found: u64,
    },
    /// The header names an encoding that does not exist, or not the one that was asked for.
    #[error("the page has an encoding with number {found}, expected {wanted}")]
    Encoding {
        /// What the reader can decode here.
        wanted: &'static str,
        /// The header's number.
        found: u8,
    },
    /// The page holds other rows than it should.
    #[error(
        "the page contains {found_rows} rows from row {found_first} on, \
         expected {wanted_rows} rows from row {wanted_first} on"
    )]
    Rows {
        /// The first row of the directory's entry.
        wanted_first: u32,
        /// The rows of the directory's entry.
        wanted_rows: u32,
        /// The first row in the header.
        found_first: u32,
        /// The rows in the header.
        found_rows: u32,
    },
    /// A field has an impossible value although the checksum is right: a bug of the writer, or
    /// malice.
    #[error("the page is malformed: {what} is {found}, expected at most {allowed}")]
    Malformed {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The largest (or only) valid value.
        allowed: u64,
    },
}

impl PageFault {
    /// [`PageFault::Malformed`] of numbers of any type; those below 0 are shown as 0.
    pub(crate) fn malformed(
        what: &'static str,
        found: impl SaturatingCast<u64>,
        allowed: impl SaturatingCast<u64>,
    ) -> Self {
        Self::Malformed { what, found: found.saturating_cast(), allowed: allowed.saturating_cast() }
    }
}

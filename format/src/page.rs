//! Defines the layout of pages, and checks that a page is the one that was requested.
//!
//! ```text
//! header (128 bytes) | sections of the encoding | validity bitmap, if a row is null | zeros up to a multiple of 4 KiB
//! ```
//!
//! `header` is the layout, `view` checks a page, `values` opens the values of a page with the
//! reader of its encoding, `checked` owns the bytes of a checked page, `fault` is the error.
//!
//! Invariants
//! - [`PageHeader`] is the layout: little-endian, 128 bytes, no padding.
//! - The checksum covers every stored byte except itself, padding included, so a single changed
//!   byte is always detected.
//! - A [`PageView`] exists only for bytes whose magic, version, checksum, identity, length and row
//!   counts were right. Its content may still be malicious (anybody can compute a checksum), so the
//!   encodings check every offset and length before they use it.

mod checked;
mod fault;
mod header;
mod values;
mod view;

pub use checked::CheckedPage;
pub use fault::PageFault;
pub(crate) use header::{FIRST_SECTION, with_header};
pub use header::{FORMAT_VERSION, HEADER_BYTES, MAGIC, PageHeader, PageIdentity, stored_bytes};
pub use view::PageView;

//! Defines the interface that the encoders of all types of chunks implement, and how much time they
//! may spend.

use super::Encoding;
use crate::zone::ZoneValue;
use std::ops::Range;

/// An encoder that has measured its chunk and now reports sizes and writes pages.
pub(crate) trait ChunkEncoder {
    /// The encoding of the pages.
    fn encoding(&self) -> Encoding;

    /// Starts measuring a new page.
    fn begin_page(&mut self);

    /// Adds `block`, the one after the page's last, to the measured page, and returns the bytes of
    /// its payload without alignment and validity.
    fn grow(&mut self, block: usize) -> usize;

    /// Appends the payload of a page, except the validity bitmap.
    fn write(&mut self, blocks: Range<usize>, page: &mut Vec<u8>) -> PageSummary;
}

/// The fields of a page's header and directory entry that the encoder determines.
pub(crate) struct PageSummary {
    pub(crate) sections: [u32; 6],
    pub(crate) divisor: u64,
    pub(crate) min: Option<ZoneValue>,
    pub(crate) max: Option<ZoneValue>,
}

/// How much time is spent on making texts small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// All encodings are tried: for pages on devices.
    #[default]
    Full,
    /// No symbol table is trained, which takes long for a few texts: for pages that stay in memory
    /// for a short time.
    Quick,
}

/// An offset, a count or a number of bytes within a page, as pages store them.
pub(crate) fn in_page(number: usize) -> u32 {
    u32::try_from(number).expect("a number within a page: at most PAGE_BYTES_MAX")
}

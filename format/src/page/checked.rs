//! Owns the bytes of a page that was checked once, and gives views of them without checking them
//! again.

use super::{HEADER_BYTES, PageFault, PageHeader, PageIdentity, PageView};
use crate::encoding::Encoding;

/// The owned bytes of a page that [`PageView::open`] has checked. Making a view is free: nothing is
/// checked again.
#[derive(Debug)]
pub struct CheckedPage<P> {
    bytes: P,
    header: PageHeader,
    encoding: Encoding,
}

impl<P: AsRef<[u8]>> CheckedPage<P> {
    /// Checks stored bytes as [`PageView::open`] does.
    ///
    /// # Errors
    /// As [`PageView::open`].
    pub fn open(bytes: P, expected: &PageIdentity) -> Result<Self, PageFault> {
        let PageView { header, encoding, .. } = PageView::open(bytes.as_ref(), expected)?;
        Ok(Self { bytes, header, encoding })
    }

    /// Checks everything except the checksum: for a copy of bytes that were checked before and have
    /// not been written since.
    ///
    /// # Errors
    /// As [`PageView::open`], except [`PageFault::Checksum`].
    pub fn open_unchanged(bytes: P, expected: &PageIdentity) -> Result<Self, PageFault> {
        let opened = PageView::open_with(bytes.as_ref(), expected, |_, header| header.checksum);
        let PageView { header, encoding, .. } = opened?;
        Ok(Self { bytes, header, encoding })
    }

    /// The page. Its content is empty if `P` returns fewer bytes than it did when the page was
    /// checked.
    #[must_use]
    pub fn view(&self) -> PageView<'_> {
        let end = HEADER_BYTES + self.header.payload_bytes as usize;
        let bytes = self.bytes.as_ref().get(..end).unwrap_or_default();
        PageView { bytes, header: self.header, encoding: self.encoding }
    }
}

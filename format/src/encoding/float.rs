//! How are doubles stored? As they are: 8 little-endian bytes each, from the header on.
//!
//! Invariants
//! - A null row holds +0.0.

use crate::{
    limits::BLOCK_ROWS,
    page::{HEADER_BYTES, PageFault, PageView},
};
use std::ops::Range;

/// Bytes of a block of doubles.
pub(crate) const BLOCK_BYTES: usize = BLOCK_ROWS * size_of::<f64>();

/// The doubles of a page.
#[derive(Clone, Copy, Debug)]
pub struct FloatPage<'p> {
    bytes: &'p [u8],
}

impl<'p> FloatPage<'p> {
    pub(crate) fn open(view: &PageView<'p>) -> Result<Self, PageFault> {
        let length = view.rows() * size_of::<f64>();
        Ok(Self { bytes: view.section("the doubles' place", HEADER_BYTES as u32, length)? })
    }

    /// Appends the doubles of some rows, counted within the page.
    ///
    /// # Errors
    /// When a row is beyond the page's.
    pub fn decode_into(&self, rows: Range<usize>, out: &mut Vec<f64>) -> Result<(), PageFault> {
        let all = self.values();
        let Some(wanted) = all.get(rows.clone()) else {
            return Err(PageFault::malformed("the last row asked for", rows.end, all.len()));
        };
        out.extend(wanted.iter().map(|bytes| f64::from_le_bytes(*bytes)));
        Ok(())
    }

    /// Appends the doubles of the rows given, counted within the page.
    ///
    /// # Errors
    /// When a row is beyond the page's.
    pub fn gather(&self, rows: &[u32], out: &mut Vec<f64>) -> Result<(), PageFault> {
        let all = self.values();
        out.reserve(rows.len());
        for row in rows {
            let Some(bytes) = all.get(*row as usize) else {
                return Err(PageFault::malformed("a row asked for", *row, all.len() - 1));
            };
            out.push(f64::from_le_bytes(*bytes));
        }
        Ok(())
    }

    fn values(&self) -> &'p [[u8; size_of::<f64>()]] {
        self.bytes.as_chunks().0
    }
}

/// Appends doubles, nulls as +0.0.
pub(crate) fn write(values: &[f64], validity: Option<super::validity::Bitmap<'_>>, page: &mut Vec<u8>) {
    for (row, value) in values.iter().enumerate() {
        let valid = validity.is_none_or(|bitmap| bitmap.is_valid(row));
        page.extend_from_slice(&(if valid { *value } else { 0.0 }).to_le_bytes());
    }
}

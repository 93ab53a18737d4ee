//! Encodes pages of doubles: 8 little-endian bytes each, right after the header.
//!
//! Invariants
//! - A null row is stored as +0.0.

use super::{ChunkEncoder, Encoding, PageSummary, validity::Bitmap};
use crate::{
    limits::BLOCK_ROWS,
    page::{FIRST_SECTION, PageFault, PageView},
    zone::ZoneValue,
};
use std::ops::Range;

const BLOCK_BYTES: usize = BLOCK_ROWS * size_of::<f64>();

/// The doubles of a page.
#[derive(Clone, Copy, Debug)]
pub struct FloatPage<'p> {
    bytes: &'p [u8],
}

impl<'p> FloatPage<'p> {
    pub(crate) fn open(view: &PageView<'p>) -> Result<Self, PageFault> {
        let length = view.rows() * size_of::<f64>();
        Ok(Self { bytes: view.section("the doubles' place", FIRST_SECTION, length)? })
    }

    /// Appends the doubles of `rows`, which are row numbers within the page.
    ///
    /// # Errors
    /// A row number is not below the page's number of rows.
    pub fn decode_into(&self, rows: Range<usize>, out: &mut Vec<f64>) -> Result<(), PageFault> {
        let all = self.values();
        let Some(wanted) = all.get(rows.clone()) else {
            return Err(PageFault::malformed("the last row asked for", rows.end, all.len()));
        };
        out.extend(wanted.iter().map(|bytes| f64::from_le_bytes(*bytes)));
        Ok(())
    }

    /// Appends the doubles of `rows`, which are row numbers within the page.
    ///
    /// # Errors
    /// A row number is not below the page's number of rows.
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

/// The encoder of a chunk of doubles.
pub(crate) struct FloatChunk<'v> {
    values: &'v [f64],
    validity: Option<Bitmap<'v>>,
    page_bytes: usize,
}

impl<'v> FloatChunk<'v> {
    pub(crate) fn new(values: &'v [f64], validity: Option<Bitmap<'v>>) -> Self {
        Self { values, validity, page_bytes: 0 }
    }
}

impl ChunkEncoder for FloatChunk<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Float
    }

    fn begin_page(&mut self) {
        self.page_bytes = 0;
    }

    fn grow(&mut self, _block: usize) -> usize {
        self.page_bytes += BLOCK_BYTES;
        self.page_bytes
    }

    fn write(&mut self, blocks: Range<usize>, page: &mut Vec<u8>) -> PageSummary {
        let rows = blocks.start * BLOCK_ROWS..(blocks.end * BLOCK_ROWS).min(self.values.len());
        let (mut bounds, mut has_nan) = (None, false);
        for row in rows {
            if self.validity.is_some_and(|bitmap| !bitmap.is_valid(row)) {
                page.extend_from_slice(&0_f64.to_le_bytes());
                continue;
            }
            let value = self.values[row];
            has_nan |= value.is_nan();
            // The total order, in which -0.0 is below 0.0 as it is in arrow's kernels.
            let less = |left: f64, right: f64| if left.total_cmp(&right).is_lt() { left } else { right };
            let more = |left: f64, right: f64| if left.total_cmp(&right).is_gt() { left } else { right };
            let (min, max) = bounds.unwrap_or((value, value));
            bounds = Some((less(min, value), more(max, value)));
            page.extend_from_slice(&value.to_le_bytes());
        }
        let bounds = bounds.filter(|_| !has_nan);
        let (min, max) = (bounds.map(|bounds| bounds.0), bounds.map(|bounds| bounds.1));
        PageSummary {
            sections: [0; 6],
            divisor: 1,
            min: min.map(ZoneValue::Float),
            max: max.map(ZoneValue::Float),
        }
    }
}

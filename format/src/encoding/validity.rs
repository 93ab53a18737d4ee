//! Reads and writes validity bitmaps, which say which rows of a page have a value (are not NULL).
//!
//! Invariants
//! - Bit `i % 8` of byte `i / 8` is set when row `i` has a value (arrow's convention); bits after
//!   the last row are zero when written and ignored when read.
//! - A page in which every row has a value stores no bitmap.

/// One bit per row.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap<'b> {
    bytes: &'b [u8],
    rows: usize,
}

impl<'b> Bitmap<'b> {
    /// The first `rows` bits of `bytes`, which must have at least `rows.div_ceil(8)` bytes.
    #[must_use]
    pub fn new(bytes: &'b [u8], rows: usize) -> Self {
        Self { bytes: &bytes[..rows.div_ceil(8)], rows }
    }

    /// The bytes, `rows.div_ceil(8)` of them.
    #[must_use]
    pub fn bytes(&self) -> &'b [u8] {
        self.bytes
    }

    /// Rows of the bitmap.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether `row`, which is below `rows`, has a value.
    #[must_use]
    pub fn is_valid(&self, row: usize) -> bool {
        self.bytes[row / 8] >> (row % 8) & 1 == 1
    }

    /// The number of rows that have a value.
    #[must_use]
    pub fn count_valid(&self) -> usize {
        let (whole, last) = self.bytes.split_at(self.rows / 8);
        let words = whole.chunks_exact(8);
        let tail: u32 = words.remainder().iter().map(|byte| byte.count_ones()).sum();
        let words = words.map(|word| word.iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)));
        let counted: usize = words.map(|word| word.count_ones() as usize).sum();
        let last = last.first().map_or(0, |byte| (byte & !(u8::MAX << (self.rows % 8))).count_ones());
        counted + (tail + last) as usize
    }

    /// The part for rows `first..first + rows`; `first` must be a multiple of 8.
    #[must_use]
    pub fn slice(&self, first: usize, rows: usize) -> Self {
        debug_assert!(first.is_multiple_of(8) && first + rows <= self.rows);
        Self::new(&self.bytes[first / 8..], rows)
    }

    /// Appends the bytes, bits after the last row set to zero.
    pub(crate) fn write(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(self.bytes);
        if !self.rows.is_multiple_of(8)
            && let Some(last) = page.last_mut()
        {
            *last &= !(u8::MAX << (self.rows % 8));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_after_the_last_row_count_for_nothing() {
        for rows in 1..200 {
            let bytes = vec![0xff; 32];
            assert_eq!(Bitmap::new(&bytes, rows).count_valid(), rows);
        }
    }

    #[test]
    fn a_row_is_found_in_its_own_bit() {
        let bitmap = Bitmap::new(&[0b0000_0100, 0b1000_0000], 16);
        let valid: Vec<usize> = (0..16).filter(|row| bitmap.is_valid(*row)).collect();
        assert_eq!(valid, [2, 15]);
        assert_eq!(bitmap.slice(8, 8).count_valid(), 1);
    }
}

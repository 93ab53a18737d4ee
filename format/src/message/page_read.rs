//! Defines how a node reports which pages it read for a scan, and when.
//!
//! The node reports them only if the request asks for it. So the trace of a query shows the reads
//! that happened, and not all that were possible.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ColumnId, PageNumber},
    limits::{MESSAGE_BYTES_MAX, PAGE_READS_MAX},
};

/// One page that was read for a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRead {
    /// Its column.
    pub column: ColumnId,
    /// Its number in the column's chunk.
    pub page: PageNumber,
    /// Microseconds from the request's arrival to the submission of the read to the device.
    pub after_us: u32,
}

/// The maximum number of bytes of an encoded page read: two numbers of 16 bits and one of 32, with
/// seven bits per byte.
const PAGE_READ_BYTES_MAX: usize = 3 + 3 + 5;

// The reads of one scan travel in its reply.
const _: () = assert!(PAGE_READS_MAX * PAGE_READ_BYTES_MAX + 4096 <= MESSAGE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn the_longest_page_read_takes_the_bytes_that_are_allowed_for() {
        let read = PageRead { column: ColumnId(u16::MAX), page: PageNumber(u16::MAX), after_us: u32::MAX };
        assert_eq!(codec::encode(&read).unwrap().len(), PAGE_READ_BYTES_MAX);
    }
}

//! Defines why a pool of buffers could not be created, and why it could not hand out a buffer.

use rustix::io::Errno;

use crate::limits;

/// Why a buffer pool could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The sizes do not fit together.
    #[error(
        "a pool of {total_bytes} bytes with buffers of up to {largest_bytes} bytes is not possible; expected a largest \
         buffer that is a power of two from {align} to {max} bytes and a total that is a positive multiple of it",
        align = limits::IO_ALIGN_BYTES,
        max = limits::BUFFER_BYTES_MAX
    )]
    BadSizes {
        /// Bytes of the slab asked for.
        total_bytes: usize,
        /// Bytes of the largest buffer asked for.
        largest_bytes: usize,
    },
    /// The system does not have enough memory.
    #[error(
        "cannot allocate {total_bytes} bytes of memory for IO buffers: {source}; lower the memory budget"
    )]
    NoMemory {
        /// Bytes of the slab.
        total_bytes: usize,
        /// The kernel's answer.
        source: Errno,
    },
}

/// Why a pool did not hand out a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The length is zero, or exceeds the pool's largest buffer.
    #[error(
        "a buffer of {wanted_bytes} bytes is not possible; buffers of this pool have 1 to {largest_bytes} bytes"
    )]
    BadLength {
        /// Bytes asked for.
        wanted_bytes: usize,
        /// Largest buffer of the pool.
        largest_bytes: usize,
    },
    /// No free range is long enough now; memory is freed when the owners of buffers drop them.
    #[error(
        "the buffer pool has no free piece of {wanted_bytes} bytes: {free_bytes} of its {total_bytes} bytes are free"
    )]
    Exhausted {
        /// Bytes asked for.
        wanted_bytes: usize,
        /// Bytes free, possibly not in one piece.
        free_bytes: usize,
        /// Bytes of the slab.
        total_bytes: usize,
    },
}

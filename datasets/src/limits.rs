//! How much may a load hold and keep in flight?

/// Memory for sorting unless the load asks for another amount.
pub const SORT_MEMORY_BYTES_DEFAULT: usize = 256 << 20;

//! Defines the access that a peer has to a registered region: reading, writing, or both.

/// What a peer may do with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The peer may read.
    Read,
    /// The peer may write.
    Write,
    /// The peer may read, write and use atomic operations.
    ReadWrite,
}

impl Access {
    /// Whether a grant of `self` is enough for an operation that needs `needed`.
    #[must_use]
    pub fn allows(self, needed: Self) -> bool {
        self == Self::ReadWrite || self == needed
    }
}

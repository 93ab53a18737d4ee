//! Defines the operations on a peer's memory, and checks their form.
//!
//! Invariants
//! - The checks of [`Operation::check`] are pure and need no peer. An operation that fails them is
//!   the caller's mistake and is never sent.
//! - The peer's side repeats every check that protects its memory ([`check_grant`]).

use crate::{
    access::Access,
    error::{OperationError, OutOfBounds, PostError},
    limits::{MESSAGE_BYTES_MAX, SEND_BYTES_MAX, TRANSFER_BYTES_MAX},
    region::{RegionSlice, RemoteRegion, check_bounds},
};

/// One request. Operations of one connection are executed in the order of posting.
#[derive(Debug, Clone)]
pub enum Operation<'a> {
    /// Copies registered memory into the peer's memory. The source must not be changed before the
    /// completion.
    Write {
        /// Our bytes.
        source: RegionSlice,
        /// Where they go.
        target: RemoteRegion,
        /// Offset of the first byte in `target`.
        target_offset: u64,
    },
    /// Copies plain bytes into the peer's memory. They are copied at `post`, so this is for small
    /// writes.
    WriteBytes {
        /// Our bytes.
        bytes: &'a [u8],
        /// Where they go.
        target: RemoteRegion,
        /// Offset of the first byte in `target`.
        target_offset: u64,
    },
    /// As `Write`. When it is done, the peer's `poll` reports `immediate`.
    WriteWithImmediate {
        /// Our bytes.
        source: RegionSlice,
        /// Where they go.
        target: RemoteRegion,
        /// Offset of the first byte in `target`.
        target_offset: u64,
        /// The word that the peer's `poll` reports.
        immediate: u32,
    },
    /// Copies the peer's memory into ours.
    Read {
        /// Where the bytes come from.
        source: RemoteRegion,
        /// Offset of the first byte in `source`.
        source_offset: u64,
        /// Where they go. Its length is the number of bytes to read.
        target: RegionSlice,
    },
    /// A message of at most [`SEND_BYTES_MAX`] bytes, copied at `post`. The peer's `poll` returns
    /// it.
    Send {
        /// The message.
        bytes: &'a [u8],
    },
    /// A message of at most [`MESSAGE_BYTES_MAX`] bytes out of registered memory, which must not be
    /// changed before the completion.
    SendRegion {
        /// The message.
        source: RegionSlice,
        /// How the message is reported to a peer that receives through an [`crate::inbox::Inbox`].
        report: Report,
    },
    /// Adds to an aligned little-endian word of the peer's memory. Completes with the previous
    /// value.
    FetchAdd {
        /// The peer's memory.
        target: RemoteRegion,
        /// Offset of the word in `target`.
        target_offset: u64,
        /// What is added, wrapping.
        add: u64,
    },
    /// Replaces an aligned word of the peer's memory if it has the expected value. Completes with
    /// the previous value.
    CompareSwap {
        /// The peer's memory.
        target: RemoteRegion,
        /// Offset of the word in `target`.
        target_offset: u64,
        /// The value that it must have.
        expected: u64,
        /// The value that it gets.
        replacement: u64,
    },
}

/// How an inbox reports a message that is longer than a packet; without an inbox every message is
/// reported whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Once, when the whole message has arrived.
    PerMessage,
    /// Packet by packet, as they arrive.
    PerPacket,
}

/// A part of a peer's memory, as the peer's side checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteSpan {
    pub(crate) key: u64,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl Operation<'_> {
    /// Whether the operation is well formed, as far as this side can tell.
    ///
    /// # Errors
    /// What is wrong with it; see [`PostError`].
    pub fn check(&self) -> Result<(), PostError> {
        match self {
            Self::Send { bytes } if bytes.len() > SEND_BYTES_MAX => {
                return Err(PostError::MessageTooLong { bytes: bytes.len(), bytes_max: SEND_BYTES_MAX });
            }
            Self::SendRegion { source, .. } if source.len() > MESSAGE_BYTES_MAX => {
                return Err(PostError::MessageTooLong { bytes: source.len(), bytes_max: MESSAGE_BYTES_MAX });
            }
            Self::Send { .. } | Self::SendRegion { .. } => return Ok(()),
            _ => {}
        }
        let bytes = self.transfer_bytes();
        if bytes > TRANSFER_BYTES_MAX {
            return Err(PostError::TransferTooLong { bytes, bytes_max: TRANSFER_BYTES_MAX });
        }
        let Some(span) = self.remote_span()? else { return Ok(()) };
        let atomic = matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. });
        if atomic && !span.address.is_multiple_of(8) {
            return Err(PostError::Misaligned { address: span.address });
        }
        Ok(())
    }

    /// Bytes that the operation moves.
    #[must_use]
    pub fn transfer_bytes(&self) -> usize {
        match self {
            Self::Write { source, .. }
            | Self::WriteWithImmediate { source, .. }
            | Self::SendRegion { source, .. } => source.len(),
            Self::WriteBytes { bytes, .. } | Self::Send { bytes } => bytes.len(),
            Self::Read { target, .. } => target.len(),
            Self::FetchAdd { .. } | Self::CompareSwap { .. } => 8,
        }
    }

    /// The peer's memory that the operation touches; `None` for a message.
    pub(crate) fn remote_span(&self) -> Result<Option<RemoteSpan>, OutOfBounds> {
        let (remote, offset) = match self {
            Self::Write { target, target_offset, .. }
            | Self::WriteBytes { target, target_offset, .. }
            | Self::WriteWithImmediate { target, target_offset, .. }
            | Self::FetchAdd { target, target_offset, .. }
            | Self::CompareSwap { target, target_offset, .. } => (target, *target_offset),
            Self::Read { source, source_offset, .. } => (source, *source_offset),
            Self::Send { .. } | Self::SendRegion { .. } => return Ok(None),
        };
        let part = remote.slice(offset, self.transfer_bytes() as u64)?;
        Ok(Some(RemoteSpan { key: part.key, address: part.address, length: part.length }))
    }
}

/// An operation that has to wait, with its bytes.
#[derive(Debug, Clone)]
pub(crate) struct DeferredOperation {
    /// The operation as posted, but without its plain bytes, which are in `bytes`.
    operation: Operation<'static>,
    bytes: Vec<u8>,
}

impl DeferredOperation {
    pub(crate) fn new(operation: Operation<'_>) -> Self {
        let (operation, bytes) = match operation {
            Operation::WriteBytes { bytes, target, target_offset } => {
                (Operation::WriteBytes { bytes: &[], target, target_offset }, bytes.to_vec())
            }
            Operation::Send { bytes } => (Operation::Send { bytes: &[] }, bytes.to_vec()),
            Operation::SendRegion { source, report } => {
                (Operation::SendRegion { source, report }, Vec::new())
            }
            Operation::Write { source, target, target_offset } => {
                (Operation::Write { source, target, target_offset }, Vec::new())
            }
            Operation::WriteWithImmediate { source, target, target_offset, immediate } => {
                (Operation::WriteWithImmediate { source, target, target_offset, immediate }, Vec::new())
            }
            Operation::Read { source, source_offset, target } => {
                (Operation::Read { source, source_offset, target }, Vec::new())
            }
            Operation::FetchAdd { target, target_offset, add } => {
                (Operation::FetchAdd { target, target_offset, add }, Vec::new())
            }
            Operation::CompareSwap { target, target_offset, expected, replacement } => {
                (Operation::CompareSwap { target, target_offset, expected, replacement }, Vec::new())
            }
        };
        Self { operation, bytes }
    }

    /// The operation as it was posted.
    pub(crate) fn as_operation(&self) -> Operation<'_> {
        match self.operation.clone() {
            Operation::WriteBytes { target, target_offset, .. } => {
                Operation::WriteBytes { bytes: &self.bytes, target, target_offset }
            }
            Operation::Send { .. } => Operation::Send { bytes: &self.bytes },
            other => other,
        }
    }
}

/// Checks whether a registration of `region_bytes` with `granted` access lets an operation access
/// the span. Returns the span's offset in the registration. This protects memory, so every wire
/// calls it where the memory is accessed.
pub(crate) fn check_grant(
    span: RemoteSpan,
    needed: Access,
    granted: Access,
    region_bytes: usize,
) -> Result<usize, OperationError> {
    if !granted.allows(needed) {
        return Err(OperationError::AccessDenied { needed, granted });
    }
    check_bounds(span.address, span.length, region_bytes as u64).map_err(OperationError::OutOfBounds)?;
    if needed == Access::ReadWrite && !span.address.is_multiple_of(8) {
        return Err(OperationError::Misaligned { address: span.address });
    }
    // The span ends inside of the region, whose length is a usize.
    usize::try_from(span.address).map_err(|_| {
        let region_bytes = region_bytes as u64;
        OperationError::OutOfBounds(OutOfBounds { offset: span.address, length: span.length, region_bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    const REMOTE: RemoteRegion = RemoteRegion { key: 7, address: 4096, length: 8192 };

    #[test]
    fn an_operation_beyond_its_remote_region_is_never_sent() {
        let region = Region::allocate(8192).unwrap();
        let write =
            |target_offset| Operation::Write { source: region.whole(), target: REMOTE, target_offset };
        assert_eq!(write(0).check(), Ok(()));
        let fault = OutOfBounds { offset: 1, length: 8192, region_bytes: 8192 };
        assert_eq!(write(1).check(), Err(PostError::OutOfBounds(fault)));
    }

    #[test]
    fn an_atomic_needs_an_aligned_word() {
        let add = |target_offset| Operation::FetchAdd { target: REMOTE, target_offset, add: 1 };
        assert_eq!(add(8184).check(), Ok(()));
        assert_eq!(add(4).check(), Err(PostError::Misaligned { address: 4100 }));
        assert!(matches!(add(8192).check(), Err(PostError::OutOfBounds(_))));
    }

    #[test]
    fn a_message_has_a_greatest_length() {
        let bytes = vec![0; SEND_BYTES_MAX + 1];
        assert_eq!(Operation::Send { bytes: &bytes[1..] }.check(), Ok(()));
        let error = PostError::MessageTooLong { bytes: bytes.len(), bytes_max: SEND_BYTES_MAX };
        assert_eq!(Operation::Send { bytes: &bytes }.check(), Err(error));
    }

    #[test]
    fn a_grant_is_checked_for_access_then_bounds_then_alignment() {
        let span = |address, length| RemoteSpan { key: 7, address, length };
        let check = |span, needed, granted| check_grant(span, needed, granted, 4096);
        assert_eq!(check(span(96, 4000), Access::Read, Access::ReadWrite), Ok(96));
        assert_eq!(
            check(span(0, 1), Access::Write, Access::Read),
            Err(OperationError::AccessDenied { needed: Access::Write, granted: Access::Read })
        );
        assert!(matches!(
            check(span(97, 4000), Access::Read, Access::Read),
            Err(OperationError::OutOfBounds(OutOfBounds { offset: 97, length: 4000, region_bytes: 4096 }))
        ));
        assert!(check(span(u64::MAX, 2), Access::Read, Access::Read).is_err());
        assert_eq!(
            check(span(4, 8), Access::ReadWrite, Access::ReadWrite),
            Err(OperationError::Misaligned { address: 4 })
        );
    }
}

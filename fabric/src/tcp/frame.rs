//! Defines the frames on the stream of a `tcp` connection.
//!
//! A frame has 48 bytes; some are followed by a payload. Each side numbers its requests from 0 in
//! the order of posting; an answer names its request. Answers are sent in the order of requests,
//! and one `Acknowledge` answers all writes and messages up to the one that it names.
//!
//! Invariants
//! - `decode` accepts any bytes and refuses those that are not a frame. Every length that it
//!   returns is within its limit.

use crate::{
    access::Access,
    error::{OperationError, OutOfBounds},
    limits::{MESSAGE_BYTES_MAX, TRANSFER_BYTES_MAX},
    operation::{RemoteSpan, Report},
};

/// Bytes of a frame without its payload.
pub(super) const FRAME_BYTES: usize = 48;

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// Payload: the bytes to write.
    Write {
        key: u64,
        address: u64,
        length: u32,
    },
    /// Payload: the bytes to write.
    WriteImmediate {
        key: u64,
        address: u64,
        length: u32,
        immediate: u32,
    },
    Read {
        key: u64,
        address: u64,
        length: u32,
    },
    /// Payload: the message.
    Send {
        length: u32,
        report: Report,
    },
    FetchAdd {
        key: u64,
        address: u64,
        add: u64,
    },
    CompareSwap {
        key: u64,
        address: u64,
        expected: u64,
        replacement: u64,
    },
    /// All writes and messages up to this one are done.
    Acknowledge,
    /// Payload: the bytes that were read.
    ReadData {
        length: u32,
    },
    /// What an atomic operation found.
    Found {
        value: u64,
    },
    /// The request was refused.
    Refused(Refusal),
    /// The sender closes on purpose; nothing follows.
    Goodbye,
}

/// Why a request was refused, without what the requester knows itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    UnknownKey,
    OutOfBounds {
        region_bytes: u64,
    },
    AccessDenied {
        granted: Access,
    },
    Misaligned,
    /// The message has no room in the inbox.
    InboxFull,
}

impl Refusal {
    /// The refusal that tells the requester about `error`.
    pub(super) fn of(error: &OperationError) -> Self {
        match error {
            OperationError::OutOfBounds(fault) => Self::OutOfBounds { region_bytes: fault.region_bytes },
            OperationError::AccessDenied { granted, .. } => Self::AccessDenied { granted: *granted },
            OperationError::Misaligned { .. } => Self::Misaligned,
            OperationError::InboxFull { .. } => Self::InboxFull,
            OperationError::UnknownKey { .. } | OperationError::Status { .. } | OperationError::Closed(_) => {
                Self::UnknownKey
            }
        }
    }

    /// The error of the request that touched `span` and needed `needed`.
    pub(super) fn to_error(self, span: RemoteSpan, needed: Access) -> OperationError {
        match self {
            Self::UnknownKey => OperationError::UnknownKey { key: span.key },
            Self::OutOfBounds { region_bytes } => OperationError::OutOfBounds(OutOfBounds {
                offset: span.address,
                length: span.length,
                region_bytes,
            }),
            Self::AccessDenied { granted } => OperationError::AccessDenied { needed, granted },
            Self::Misaligned => OperationError::Misaligned { address: span.address },
            Self::InboxFull => OperationError::InboxFull { bytes: span.length },
        }
    }
}

/// A frame: its content, and the request that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) sequence: u64,
    pub(super) body: Body,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameFault {
    #[error("a frame has the kind {kind} (detail {detail}), which does not exist")]
    Kind { kind: u8, detail: u8 },
    #[error("a frame of kind {kind} has a payload of {length} bytes, expected at most {length_max}")]
    Length { kind: u8, length: u32, length_max: usize },
}

const WRITE: u8 = 1;
const WRITE_IMMEDIATE: u8 = 2;
const READ: u8 = 3;
const SEND: u8 = 4;
const FETCH_ADD: u8 = 5;
const COMPARE_SWAP: u8 = 6;
const ACKNOWLEDGE: u8 = 16;
const READ_DATA: u8 = 17;
const FOUND: u8 = 18;
const REFUSED: u8 = 19;
const GOODBYE: u8 = 32;

/// All fields of a frame; those that a kind does not use are zero.
#[derive(Debug, Default)]
struct Fields {
    kind: u8,
    detail: u8,
    length: u32,
    sequence: u64,
    key: u64,
    address: u64,
    first: u64,
    second: u64,
}

impl Frame {
    /// Bytes of payload that follow the frame.
    #[cfg(test)]
    pub(super) fn payload_bytes(&self) -> u32 {
        match self.body {
            Body::Write { length, .. }
            | Body::WriteImmediate { length, .. }
            | Body::Send { length, .. }
            | Body::ReadData { length } => length,
            _ => 0,
        }
    }

    pub(super) fn encode(&self) -> [u8; FRAME_BYTES] {
        let fields = self.fields();
        let mut frame = [0; FRAME_BYTES];
        frame[0] = fields.kind;
        frame[1] = fields.detail;
        frame[4..8].copy_from_slice(&fields.length.to_le_bytes());
        let words = [fields.sequence, fields.key, fields.address, fields.first, fields.second];
        for (place, word) in frame[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        frame
    }

    fn fields(&self) -> Fields {
        let base = Fields { sequence: self.sequence, ..Fields::default() };
        match self.body {
            Body::Write { key, address, length } => Fields { kind: WRITE, key, address, length, ..base },
            Body::WriteImmediate { key, address, length, immediate } => {
                Fields { kind: WRITE_IMMEDIATE, key, address, length, first: u64::from(immediate), ..base }
            }
            Body::Read { key, address, length } => Fields { kind: READ, key, address, length, ..base },
            Body::Send { length, report } => {
                let detail = u8::from(report == Report::PerPacket);
                Fields { kind: SEND, detail, length, ..base }
            }
            Body::FetchAdd { key, address, add } => {
                Fields { kind: FETCH_ADD, key, address, first: add, ..base }
            }
            Body::CompareSwap { key, address, expected, replacement } => {
                Fields { kind: COMPARE_SWAP, key, address, first: expected, second: replacement, ..base }
            }
            Body::Acknowledge => Fields { kind: ACKNOWLEDGE, ..base },
            Body::ReadData { length } => Fields { kind: READ_DATA, length, ..base },
            Body::Found { value } => Fields { kind: FOUND, first: value, ..base },
            Body::Refused(refusal) => {
                let (detail, first) = match refusal {
                    Refusal::UnknownKey => (1, 0),
                    Refusal::OutOfBounds { region_bytes } => (2, region_bytes),
                    Refusal::AccessDenied { granted: Access::Read } => (3, 0),
                    Refusal::AccessDenied { granted: Access::Write } => (4, 0),
                    Refusal::AccessDenied { granted: Access::ReadWrite } => (5, 0),
                    Refusal::Misaligned => (6, 0),
                    Refusal::InboxFull => (7, 0),
                };
                Fields { kind: REFUSED, detail, first, ..base }
            }
            Body::Goodbye => Fields { kind: GOODBYE, ..base },
        }
    }

    pub(super) fn decode(frame: &[u8; FRAME_BYTES]) -> Result<Self, FrameFault> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| frame[at + i]));
        let (kind, detail) = (frame[0], frame[1]);
        let length = u32::from_le_bytes(std::array::from_fn(|i| frame[4 + i]));
        let (sequence, key, address, first, second) = (word(8), word(16), word(24), word(32), word(40));
        let length_max = match kind {
            WRITE | WRITE_IMMEDIATE | READ | READ_DATA => TRANSFER_BYTES_MAX,
            SEND => MESSAGE_BYTES_MAX,
            _ => 0,
        };
        if length as usize > length_max {
            return Err(FrameFault::Length { kind, length, length_max });
        }
        let body = match (kind, detail) {
            (WRITE, 0) => Body::Write { key, address, length },
            (WRITE_IMMEDIATE, 0) => match u32::try_from(first) {
                Ok(immediate) => Body::WriteImmediate { key, address, length, immediate },
                Err(_) => return Err(FrameFault::Kind { kind, detail }),
            },
            (READ, 0) => Body::Read { key, address, length },
            (SEND, 0) => Body::Send { length, report: Report::PerMessage },
            (SEND, 1) => Body::Send { length, report: Report::PerPacket },
            (FETCH_ADD, 0) => Body::FetchAdd { key, address, add: first },
            (COMPARE_SWAP, 0) => Body::CompareSwap { key, address, expected: first, replacement: second },
            (ACKNOWLEDGE, 0) => Body::Acknowledge,
            (READ_DATA, 0) => Body::ReadData { length },
            (FOUND, 0) => Body::Found { value: first },
            (REFUSED, 1) => Body::Refused(Refusal::UnknownKey),
            (REFUSED, 2) => Body::Refused(Refusal::OutOfBounds { region_bytes: first }),
            (REFUSED, 3) => Body::Refused(Refusal::AccessDenied { granted: Access::Read }),
            (REFUSED, 4) => Body::Refused(Refusal::AccessDenied { granted: Access::Write }),
            (REFUSED, 5) => Body::Refused(Refusal::AccessDenied { granted: Access::ReadWrite }),
            (REFUSED, 6) => Body::Refused(Refusal::Misaligned),
            (REFUSED, 7) => Body::Refused(Refusal::InboxFull),
            (GOODBYE, 0) => Body::Goodbye,
            _ => return Err(FrameFault::Kind { kind, detail }),
        };
        Ok(Self { sequence, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> Vec<Frame> {
        let (key, address, length) = (u64::MAX, 1 << 40, 77);
        [
            Body::Write { key, address, length },
            Body::WriteImmediate { key, address, length, immediate: u32::MAX },
            Body::Read { key, address, length },
            Body::Send { length, report: Report::PerMessage },
            Body::Send { length, report: Report::PerPacket },
            Body::FetchAdd { key, address, add: 3 },
            Body::CompareSwap { key, address, expected: 4, replacement: 5 },
            Body::Acknowledge,
            Body::ReadData { length },
            Body::Found { value: 6 },
            Body::Refused(Refusal::UnknownKey),
            Body::Refused(Refusal::OutOfBounds { region_bytes: 4096 }),
            Body::Refused(Refusal::AccessDenied { granted: Access::Write }),
            Body::Refused(Refusal::Misaligned),
            Body::Refused(Refusal::InboxFull),
            Body::Goodbye,
        ]
        .map(|body| Frame { sequence: 9, body })
        .to_vec()
    }

    #[test]
    fn a_frame_survives_its_bytes() {
        for frame in frames() {
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn a_length_beyond_its_limit_is_refused() {
        let body = Body::Send { length: 1_048_577, report: Report::PerMessage };
        let frame = Frame { sequence: 0, body };
        let fault = FrameFault::Length { kind: SEND, length: 1_048_577, length_max: MESSAGE_BYTES_MAX };
        assert_eq!(Frame::decode(&frame.encode()), Err(fault));
    }

    #[test]
    fn the_layout_is_the_one_that_version_2_speaks() {
        let body = Body::CompareSwap { key: 0x11, address: 0x22, expected: 0x33, replacement: 0x44 };
        let mut golden = [0; FRAME_BYTES];
        golden[0] = 6;
        (golden[8], golden[16], golden[24], golden[32], golden[40]) = (0x55, 0x11, 0x22, 0x33, 0x44);
        assert_eq!(Frame { sequence: 0x55, body }.encode(), golden);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_are_a_frame_within_its_limits(
            mut bytes in proptest::array::uniform::<_, FRAME_BYTES>(any::<u8>()),
            kind in 0_u8..40,
        ) {
            bytes[0] = kind;
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert!(frame.payload_bytes() as usize <= TRANSFER_BYTES_MAX);
                prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
            }
        }
    }
}

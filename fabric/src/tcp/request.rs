//! Defines our requests: the frame and payload of an operation, and the answer that it expects.
//!
//! Invariants
//! - A request owns a copy of the bytes given at `post`, or holds the registered memory in which
//!   they lie. So it can be sent at any later time, and cannot fail then.

use super::{frame::Body, outbox::Payload};
use crate::{
    access::Access,
    error::{OutOfBounds, PostError},
    limits::TRANSFER_BYTES_MAX,
    operation::{Operation, RemoteSpan, Report},
    region::RegionSlice,
};

/// The answer that a request expects from the peer.
#[derive(Debug, Clone)]
pub(super) enum Expected {
    /// An acknowledgement of this many bytes.
    Acknowledge { bytes: u64 },
    /// Bytes for this memory.
    ReadData { target: RegionSlice },
    /// A value.
    Found,
}

/// A request that the peer has not answered yet.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) id: u64,
    /// The peer's memory that it touches and the access that it needs; `None` for a message.
    pub(super) touches: Option<(RemoteSpan, Access)>,
    pub(super) expected: Expected,
}

impl Flight {
    pub(super) fn is_read(&self) -> bool {
        matches!(self.expected, Expected::ReadData { .. })
    }
}

/// A request that has no sequence number yet.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) body: Body,
    pub(super) payload: Payload,
    pub(super) flight: Flight,
}

impl Request {
    pub(super) fn new(id: u64, operation: &Operation<'_>) -> Result<Self, PostError> {
        let touches = operation.remote_span()?.map(|span| (span, needed(operation)));
        let (body, payload, expected) = parts(operation, touches.map(|(span, _)| span))?;
        Ok(Self { body, payload, flight: Flight { id, touches, expected } })
    }
}

/// The length of a frame. It fits, because `Operation::check` has limited it to
/// `TRANSFER_BYTES_MAX`.
fn frame_length(bytes: usize) -> Result<u32, PostError> {
    let bytes_max = TRANSFER_BYTES_MAX;
    u32::try_from(bytes).map_err(|_| PostError::TransferTooLong { bytes, bytes_max })
}

fn shared_payload(slice: &RegionSlice) -> Result<Payload, OutOfBounds> {
    Ok(Payload::Shared(slice.region().as_raw_slice(slice.offset(), slice.len())?))
}

/// The frame and payload of an operation, and the expected answer.
fn parts(
    operation: &Operation<'_>,
    span: Option<RemoteSpan>,
) -> Result<(Body, Payload, Expected), PostError> {
    let bytes = operation.transfer_bytes();
    let length = frame_length(bytes)?;
    let acknowledge = Expected::Acknowledge { bytes: bytes as u64 };
    let RemoteSpan { key, address, .. } = span.unwrap_or(RemoteSpan { key: 0, address: 0, length: 0 });
    Ok(match operation {
        Operation::Write { source, .. } => {
            (Body::Write { key, address, length }, shared_payload(source)?, acknowledge)
        }
        Operation::WriteBytes { bytes, .. } => {
            (Body::Write { key, address, length }, Payload::Private(bytes.to_vec()), acknowledge)
        }
        Operation::WriteWithImmediate { source, immediate, .. } => {
            let body = Body::WriteImmediate { key, address, length, immediate: *immediate };
            (body, shared_payload(source)?, acknowledge)
        }
        Operation::Read { target, .. } => (
            Body::Read { key, address, length },
            Payload::None,
            Expected::ReadData { target: target.clone() },
        ),
        Operation::Send { bytes } => {
            let body = Body::Send { length, report: Report::PerMessage };
            (body, Payload::Private(bytes.to_vec()), acknowledge)
        }
        Operation::SendRegion { source, report } => {
            (Body::Send { length, report: *report }, shared_payload(source)?, acknowledge)
        }
        Operation::FetchAdd { add, .. } => {
            (Body::FetchAdd { key, address, add: *add }, Payload::None, Expected::Found)
        }
        Operation::CompareSwap { expected, replacement, .. } => {
            let (expected, replacement) = (*expected, *replacement);
            (Body::CompareSwap { key, address, expected, replacement }, Payload::None, Expected::Found)
        }
    })
}

/// The access that an operation needs to the peer's memory.
fn needed(operation: &Operation<'_>) -> Access {
    match operation {
        Operation::Read { .. } => Access::Read,
        Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => Access::ReadWrite,
        _ => Access::Write,
    }
}

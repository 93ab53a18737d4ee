//! Encodes and decodes requests and replies as messages of the fabric. Each carries the number of
//! the request and the protocol version.

use serde::{Deserialize, Serialize};

use super::{Answer, LoadReport, Refusal, Request, bounds};
use crate::{
    codec::{self, CodecError},
    ids::RequestId,
    limits::MESSAGE_BYTES_MAX,
};

/// The version of all messages and of the programs and directories inside them. Each message begins
/// with it, so a peer of another version is distinguished from garbage before anything is parsed.
pub const PROTOCOL_VERSION: u16 = 18;

/// A request with its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestMessage {
    /// Chosen by the client, unique among its outstanding requests on the connection.
    pub id: RequestId,
    /// The request.
    pub request: Request,
}

/// A reply with its request's number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyMessage {
    /// The number of the request.
    pub id: RequestId,
    /// The answer, or the reason of the refusal.
    pub outcome: Result<Answer, Refusal>,
    /// The current load of the node.
    pub load: LoadReport,
}

impl RequestMessage {
    /// The message's bytes.
    ///
    /// # Errors
    /// When they exceed what a message of the fabric may carry.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::new();
        self.encode_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends the message's bytes to `bytes`, whose memory can be reused for the next message.
    ///
    /// # Errors
    /// As [`RequestMessage::encode`]; the content of `bytes` is then undefined.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        let before = bytes.len();
        bytes.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        codec::append(self, bytes)?;
        check_length("request", bytes.len() - before)
    }

    /// Parses a message from a client and checks its limits.
    ///
    /// # Errors
    /// When the message does not parse or exceeds a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let message: Self = codec::decode("request", strip_version("request", bytes)?)?;
        bounds::check(&message.request)?;
        Ok(message)
    }
}

impl ReplyMessage {
    /// The message's bytes.
    ///
    /// # Errors
    /// When they exceed what a message of the fabric may carry.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let mut bytes = PROTOCOL_VERSION.to_le_bytes().to_vec();
        codec::append(self, &mut bytes)?;
        check_length("reply", bytes.len())?;
        Ok(bytes)
    }

    /// Parses a message from a node and checks its limits.
    ///
    /// # Errors
    /// When the message does not parse or exceeds a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let message: Self = codec::decode("reply", strip_version("reply", bytes)?)?;
        if let Ok(Answer::Status(status)) = &message.outcome {
            let wrong = |reason| CodecError::Malformed { what: "reply", reason };
            status.check().map_err(wrong)?;
        }
        Ok(message)
    }
}

fn strip_version<'b>(what: &'static str, bytes: &'b [u8]) -> Result<&'b [u8], CodecError> {
    let Some((version, body)) = bytes.split_first_chunk::<2>() else {
        return Err(CodecError::Short { what, found: bytes.len(), expected: 2 });
    };
    match u16::from_le_bytes(*version) {
        PROTOCOL_VERSION => Ok(body),
        found => Err(CodecError::Malformed {
            what,
            reason: format!(
                "it has protocol version {found}, expected {PROTOCOL_VERSION}: the peer runs another version of rackscan"
            ),
        }),
    }
}

fn check_length(what: &'static str, bytes: usize) -> Result<(), CodecError> {
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("it has {bytes} bytes, expected at most {MESSAGE_BYTES_MAX}");
    Err(CodecError::Malformed { what, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::DeviceId,
        limits::RAW_TRANSFERS_MAX,
        message::{RawRead, Target},
    };

    #[test]
    fn a_message_of_another_version_is_told_apart_from_garbage() {
        let message = RequestMessage { id: RequestId(7), request: Request::Status };
        let mut bytes = message.encode().unwrap();
        assert_eq!(RequestMessage::decode(&bytes).unwrap(), message);
        bytes[0] += 1;
        let error = RequestMessage::decode(&bytes).unwrap_err().to_string();
        let (found, expected) =
            (format!("version {}", PROTOCOL_VERSION + 1), format!("expected {PROTOCOL_VERSION}"));
        assert!(error.contains(&found) && error.contains(&expected), "{error}");
        assert!(RequestMessage::decode(&bytes[..1]).is_err());
    }

    #[test]
    fn a_raw_request_of_no_part_or_of_too_many_is_malformed() {
        let target = Target { key: 1, offset_bytes: 0, length_bytes: 512 };
        let read = RawRead {
            device: DeviceId(0),
            offset_bytes: u64::MAX,
            length_bytes: 512,
            target_offset_bytes: 0,
        };
        let message = |parts| RequestMessage {
            id: RequestId(1),
            request: Request::ReadRaw { reads: vec![read; parts], target },
        };
        for parts in [1, RAW_TRANSFERS_MAX] {
            let bytes = message(parts).encode().unwrap();
            assert_eq!(RequestMessage::decode(&bytes).unwrap(), message(parts));
        }
        for parts in [0, RAW_TRANSFERS_MAX + 1] {
            let error = RequestMessage::decode(&message(parts).encode().unwrap()).unwrap_err().to_string();
            assert!(error.contains(&format!("of {parts} parts")), "{error}");
        }
    }

    #[test]
    fn memory_for_encoded_messages_can_be_used_again() {
        let message = RequestMessage { id: RequestId(7), request: Request::Stop };
        let mut bytes = message.encode().unwrap();
        let length = bytes.len();
        message.encode_into(&mut bytes).unwrap();
        assert_eq!(RequestMessage::decode(&bytes[length..]).unwrap(), message);
    }
}

//! Reads a range of a cell from its node.
//!
//! Invariants
//! - Target memory is allocated for one request, and freed before the task waits for anything else.
//!   So however many ranges are read at a time, no task waits for memory while it holds some.

use rackscan_format::{
    ids::NodeId,
    limits::RAW_TRANSFERS_MAX,
    message::{Answer, RawRead, Request},
};

use super::stripes::Piece;
use crate::{ClientError, Cluster, message_names::unexpected_answer};

impl Cluster {
    /// Reads these pieces into a range of `length` bytes, with zeros in gaps.
    pub(super) async fn read_pieces(
        &self,
        node: NodeId,
        pieces: &[Piece],
        length: usize,
    ) -> Result<Vec<u8>, ClientError> {
        let mut bytes = vec![0; length];
        for pieces in pieces.chunks(RAW_TRANSFERS_MAX) {
            self.read_some(node, pieces, &mut bytes).await?;
        }
        Ok(bytes)
    }

    async fn read_some(&self, node: NodeId, pieces: &[Piece], bytes: &mut [u8]) -> Result<(), ClientError> {
        let during = "raw read";
        let length = pieces.iter().map(|piece| piece.extent.length_bytes as usize).sum();
        let span = self.shared.memory.take(length, "a range of a stripe").await?;
        let mut next_offset = 0;
        let reads = pieces.iter().map(|piece| {
            let target_offset_bytes = next_offset;
            next_offset += u64::from(piece.extent.length_bytes);
            let (device, offset_bytes) = (piece.extent.device, piece.extent.offset_bytes);
            RawRead { device, offset_bytes, length_bytes: piece.extent.length_bytes, target_offset_bytes }
        });
        let request = Request::ReadRaw { reads: reads.collect(), target: span.as_target() };
        let mut reply = self.ask(node, request, Some(span)).await?;
        match reply.take_answer(node, during)? {
            Answer::Transferred { .. } => {}
            other => return Err(unexpected_answer(node, during, &other, "the end of a raw read")),
        }
        let span = reply.span.ok_or(ClientError::Closed)?;
        let mut offset = 0;
        for piece in pieces {
            let length = piece.extent.length_bytes as usize;
            let bad = |found: String| ClientError::BadAnswer {
                node,
                during,
                found,
                expected: "a piece within its range".to_owned(),
            };
            let into = piece.at.checked_add(length).and_then(|end| bytes.get_mut(piece.at..end));
            let into = into.ok_or_else(|| bad(format!("a piece at byte {}", piece.at)))?;
            span.copy_out(offset, into).map_err(|error| bad(error.to_string()))?;
            offset += length;
        }
        Ok(())
    }
}

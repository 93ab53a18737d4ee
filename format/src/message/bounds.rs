//! Checks that a decoded request does not exceed the limits on the number of its parts and bytes.
//! Decoding a request includes this check.

use super::{AppendParity, KeepLog, KeepMap, Payload, Repair, Request, ReserveParity};
use crate::{
    codec::CodecError,
    limits::{
        CACHE_USED_MAX, CLUSTER_NODES_MAX, FETCH_PAGES_MAX, KEPT_BYTES_MAX, MAP_PIECE_BYTES_MAX,
        PARITY_CELLS_MAX, RAW_TRANSFERS_MAX, REPAIR_PLACES_MAX, TRANSACT_BYTES_MAX, WITHHELD_HERE_BYTES_MAX,
    },
};

/// Checks the request's lists against their limits.
pub(super) fn check(request: &Request) -> Result<(), CodecError> {
    let parts = |what: &str, parts: u64, most: usize| match (1..=most as u64).contains(&parts) {
        true => Ok(()),
        false => malformed(format!("it contains {what} of {parts} parts, expected 1 to {most}")),
    };
    let bytes = |what: &str, bytes: u64, most: u64| match bytes <= most {
        true => Ok(()),
        false => malformed(format!("it contains {bytes} bytes of {what}, expected at most {most}")),
    };
    if let Request::KeepLog(KeepLog { generation: Some(generation), .. }) = request
        && generation.members.len() > CLUSTER_NODES_MAX
    {
        let found = generation.members.len();
        return malformed(format!(
            "it names {found} replicas in a log's generation, expected at most {CLUSTER_NODES_MAX}"
        ));
    }
    match request {
        Request::Fetch { pages, .. } => parts("a fetch", pages.len() as u64, FETCH_PAGES_MAX),
        Request::ReadRaw { reads, .. } => parts("a raw read", reads.len() as u64, RAW_TRANSFERS_MAX),
        Request::WriteRaw { writes, .. } => parts("a raw write", writes.len() as u64, RAW_TRANSFERS_MAX),
        Request::CacheUsed { places } => parts("a list of used places", places.len() as u64, CACHE_USED_MAX),
        Request::Transact { messages: Payload::Here(here), .. } => {
            bytes("a transaction", here.len() as u64, TRANSACT_BYTES_MAX as u64)
        }
        Request::KeepLog(KeepLog { bytes: Payload::Here(here), .. }) => {
            bytes("a log", here.len() as u64, TRANSACT_BYTES_MAX as u64)
        }
        Request::KeepLog(KeepLog { bytes: Payload::Beside(source), .. }) => {
            bytes("a log", source.length_bytes, KEPT_BYTES_MAX as u64)
        }
        Request::AppendParity(AppendParity { checksums, .. }) => {
            parts("an append of parity", checksums.len() as u64, PARITY_CELLS_MAX)
        }
        Request::ReserveParity(ReserveParity { cells, .. }) => {
            parts("a reservation of parity", u64::from(*cells), PARITY_CELLS_MAX)
        }
        Request::Repair(Repair { places, .. }) => parts("a repair", places.len() as u64, REPAIR_PLACES_MAX),
        Request::KeepMap(KeepMap { source, .. }) => bytes("a map", source.length_bytes, MAP_PIECE_BYTES_MAX),
        Request::Process { withheld: Some(Payload::Here(here)), .. } => {
            bytes("withheld rows", here.len() as u64, WITHHELD_HERE_BYTES_MAX as u64)
        }
        // They have no list, or one that is checked where it is decoded, or used.
        Request::Status
        | Request::Catalog { .. }
        | Request::Process { .. }
        | Request::Append { .. }
        | Request::Keep { .. }
        | Request::LoadHeld(_)
        | Request::ReadMap(_)
        | Request::Verify(_)
        | Request::Adopt(_)
        | Request::PreparePublish { .. }
        | Request::CommitPublish { .. }
        | Request::AbortLoad { .. }
        | Request::Drop { .. }
        | Request::Echo { .. }
        | Request::OpenCache
        | Request::OpenParticipant
        | Request::Transact { messages: Payload::Beside(_), .. }
        | Request::OpenPosts { .. }
        | Request::CopyOfLog(_)
        | Request::Stop
        | Request::CommitInPlace { .. }
        | Request::AcceptLoss
        | Request::HoldTables(_)
        | Request::ReleaseTables(_) => Ok(()),
    }
}

fn malformed(reason: String) -> Result<(), CodecError> {
    Err(CodecError::Malformed { what: "request", reason })
}

#[cfg(test)]
mod tests {
    use crate::{
        ids::{RequestId, SegmentId, TableId},
        limits::{PARITY_CELLS_MAX, WITHHELD_HERE_BYTES_MAX},
        message::{Payload, Request, RequestMessage, ReserveParity, Target},
        program::{Output, PROGRAM_VERSION, ScanProgram},
    };

    #[test]
    fn withheld_rows_that_are_too_long_for_a_message_are_malformed_in_one() {
        let program = ScanProgram {
            version: PROGRAM_VERSION,
            table: TableId(1),
            inputs: Vec::new(),
            nodes: Vec::new(),
            filter: Vec::new(),
            output: Output::Rows(Vec::new()),
            limit_rows: None,
            key_filters: Vec::new(),
        };
        let message = |bytes| RequestMessage {
            id: RequestId(1),
            request: Request::Process {
                program: program.clone(),
                key_filters: Vec::new(),
                table: TableId(1),
                segment: SegmentId(0),
                withheld: Some(Payload::Here(vec![7; bytes])),
                first_block: 0,
                target: Target { key: 1, offset_bytes: 0, length_bytes: 512 },
                report_reads: false,
            },
        };
        let longest = message(WITHHELD_HERE_BYTES_MAX);
        assert_eq!(RequestMessage::decode(&longest.encode().unwrap()).unwrap(), longest);
        let longer = message(WITHHELD_HERE_BYTES_MAX + 1).encode().unwrap();
        let error = RequestMessage::decode(&longer).unwrap_err().to_string();
        assert!(error.contains("8193 bytes of withheld rows, expected at most 8192"), "{error}");
    }
    #[test]
    fn as_many_cells_are_reserved_at_once_as_are_appended() {
        let decoded = |cells: usize| {
            let cells = u32::try_from(cells).unwrap();
            let reserve = ReserveParity { load: TableId(1), set: 0, first_cell: 0, cells, cell_bytes: 4096 };
            let message = RequestMessage { id: RequestId(1), request: Request::ReserveParity(reserve) };
            RequestMessage::decode(&message.encode().unwrap())
        };
        assert!(decoded(1).is_ok() && decoded(PARITY_CELLS_MAX).is_ok());
        for cells in [0, PARITY_CELLS_MAX + 1, usize::try_from(u32::MAX).unwrap()] {
            let error = decoded(cells).unwrap_err().to_string();
            assert!(error.contains("a reservation of parity") && error.contains("1 to 64"), "{error}");
        }
    }
}

//! Tests the bytes of requests, of their parts, and of what relayed stripes are for.

use rackscan_format::{
    codec::Envelope,
    ids::{ColumnId, DeviceId, NodeId, PageNumber, RequestId, SegmentId, TableId},
    message::{
        Adopt, AppendParity, CachePlace, CopyOfLog, HoldTables, KeepLog, KeepMap, LoadHeld, LogGeneration,
        LogPoint, PROTOCOL_VERSION, PageWanted, Payload, RawRead, RawWrite, ReadMap, RelayedTo, Repair,
        Request, RequestMessage, ReserveParity, Start, Target, Verify,
    },
    stripe_set::SetId,
};

use crate::{
    golden::{Sample, assert_bytes, assert_values},
    one_of_each, programs, tables,
};

/// Memory of the requester, from the first of three numbers on.
pub(crate) fn target(first: u64) -> Target {
    Target { key: first, offset_bytes: first + 1, length_bytes: first + 2 }
}

fn set() -> SetId {
    SetId { load: TableId(2), number: 3 }
}

one_of_each! {
    fn requests() -> Request {
        Status,
        Catalog { from_bytes: 1, target: target(2) },
        Fetch {
            table: TableId(1),
            segment: SegmentId(2),
            pages: vec![
                PageWanted { column: ColumnId(3), page: PageNumber(4), target_offset_bytes: 5 },
                PageWanted { column: ColumnId(6), page: PageNumber(7), target_offset_bytes: 300 },
            ],
            target: target(8),
        },
        Process {
            program: programs::program(),
            key_filters: vec![target(1), target(4)],
            table: TableId(7),
            segment: SegmentId(8),
            withheld: Some(Payload::Here(vec![9, 10])),
            first_block: 11,
            target: target(12),
            report_reads: true,
        },
        Append { load: TableId(1), directory_bytes: 2, source: target(3) },
        Keep {
            load: TableId(1),
            of: TableId(2),
            segment: SegmentId(3),
            withheld_bytes: 4,
            source: target(5),
        },
        AppendParity(AppendParity {
            load: TableId(1),
            set: 2,
            first_cell: 3,
            cell_bytes: 4,
            checksums: vec![5, 6, 7],
            source: target(8),
        }),
        ReserveParity(ReserveParity {
            load: TableId(1),
            set: 2,
            first_cell: 3,
            cells: 4,
            cell_bytes: 5,
        }),
        LoadHeld(LoadHeld { load: TableId(2), after: Some(SegmentId(3)), target: target(4) }),
        KeepMap(KeepMap { load: TableId(1), from_bytes: 2, total_bytes: 3, source: target(4) }),
        ReadMap(ReadMap { table: TableId(1), from_bytes: 2, target: target(3) }),
        Verify(Verify { set: set(), from: 4, bytes_max: 5 }),
        Repair(Repair { set: set(), places: vec![4, 5, 6], source: target(7) }),
        Adopt(Adopt { table: TableId(1) }),
        PreparePublish { definition: tables::definition(), segments: 1 },
        CommitPublish { load: TableId(1) },
        AbortLoad { load: TableId(1) },
        Drop { table: TableId(1) },
        Echo { bytes: 1, target: target(2) },
        ReadRaw {
            reads: vec![RawRead {
                device: DeviceId(200),
                offset_bytes: 2,
                length_bytes: 3,
                target_offset_bytes: 4,
            }],
            target: target(5),
        },
        WriteRaw {
            writes: vec![RawWrite {
                device: DeviceId(200),
                offset_bytes: 2,
                length_bytes: 3,
                source_offset_bytes: 4,
            }],
            source: target(5),
        },
        OpenCache,
        CacheUsed {
            places: vec![CachePlace { frame: 1, version: 2 }, CachePlace { frame: 3, version: 4 }],
        },
        OpenParticipant,
        Transact { messages: Payload::Here(vec![3, 4, 5]), target: target(6) },
        OpenPosts { boxes: 1, body_bytes_max: 2, replies: target(3) },
        KeepLog(KeepLog {
            origin: NodeId(2),
            start: Start { lineage: 3, number: 4, id: 5 },
            log: 6,
            offset_bytes: 7,
            cut: Some(LogPoint { offset_bytes: 8, sequence: 9, checksum: 10 }),
            is_whole: true,
            bytes: Payload::Beside(target(11)),
            generation: Some(generation()),
        }),
        CopyOfLog(CopyOfLog { origin: NodeId(1), from_bytes: 2, target: target(3) }),
        Stop,
        CommitInPlace { load: TableId(2), of: Some(TableId(3)) },
        AcceptLoss,
        HoldTables(HoldTables { hold: 1, tables: vec![TableId(300), TableId(400)] }),
        ReleaseTables(1),
    }
}

one_of_each! {
    fn payloads() -> Payload {
        Here(vec![2, 3]),
        Beside(target(4)),
    }
}

one_of_each! {
    fn relayed() -> RelayedTo {
        Memory,
        Scratch,
        Parity {
            load: TableId(7),
            set: 8,
            first_cell: 9,
            held: vec![vec![tables::extent(1, 2, 3), tables::extent(4, 5, 6)], Vec::new()],
        },
        Rebuild {
            table: TableId(7),
            set: set(),
            held: vec![vec![tables::extent(1, 2, 3)]],
            kept: vec![vec![tables::extent(4, 5, 6)], Vec::new()],
        },
    }
}

/// A generation of a log.
pub(crate) fn generation() -> LogGeneration {
    LogGeneration { number: 4 << 32 | 20, members: vec![NodeId(21), NodeId(22)], quorum: 23, began_after: 24 }
}

fn file() -> String {
    format!("requests_v{PROTOCOL_VERSION}.txt")
}

fn samples() -> Vec<Sample> {
    let requests = requests().into_iter().map(|(name, request)| {
        let message = RequestMessage { id: RequestId(400), request };
        Sample::of(name, message, RequestMessage::encode, RequestMessage::decode)
    });
    let relayed =
        relayed().into_iter().map(|(name, to)| Sample::of(name, to, RelayedTo::encode, RelayedTo::decode));
    let appended = Sample::in_envelope(Envelope::Segment, tables::directory(300, 7, 200));
    requests.chain(payloads().into_iter().map(Sample::part)).chain(relayed).chain([appended]).collect()
}

#[test]
fn every_request_is_encoded_in_the_bytes_of_its_golden_line() {
    assert_bytes(&file(), &samples());
}

#[test]
fn every_golden_line_of_a_request_is_decoded_to_the_request_it_was_made_of() {
    assert_values(&file(), &samples());
}

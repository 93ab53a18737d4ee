//! Tests the bytes of replies: answers, refusals, and what nodes write into requesters' memory.

use rackscan_format::{
    codec::Envelope,
    ids::{ColumnId, DeviceId, NodeId, PageNumber, RequestId, SegmentId},
    message::{
        Answer, BounceReason, BridgeKind, BridgeStatus, CachePlace, CacheRegion, CacheStatus, CopyHeld, Cost,
        DeviceStatus, FolderIdentity, IoKind, LoadReport, LogKept, LogPoint, NodeCounters, NodeStatus,
        PROTOCOL_VERSION, PageRead, ParticipantRegion, ParticipantStatus, Payload, Refusal, RefusalCode,
        RelayStatus, ReplyMessage, ScratchArea, SeenStart, Start, StartHistory, Verified,
    },
};

use crate::{
    golden::{Sample, assert_bytes, assert_values},
    one_of_each,
    requests::{generation, target},
    tables,
};

one_of_each! {
    fn answers() -> Answer {
        Status(Box::new(status())),
        Catalog { written_bytes: 1, total_bytes: 2, generation: 3 },
        Fetched {
            cost: cost(),
            places: vec![Some(CachePlace { frame: 20, version: 21 }), None],
            cached: vec![22],
        },
        Cache(Some(CacheRegion { memory: target(1), frames: 4, epoch: 5 })),
        Processed {
            written_bytes: 20,
            batches: 21,
            rows: 22,
            next_block: Some(23),
            cost: cost(),
            reads: vec![PageRead { column: ColumnId(24), page: PageNumber(25), after_us: 26 }],
        },
        Appended { stored_bytes: 1 },
        ParityPlaced { extents: vec![tables::extent(1, 2, 3), tables::extent(4, 5, 6)] },
        Verified(Verified { next: Some(1), places: 2, bytes: 3, corrupt: vec![4, 5] }),
        LoadHeld { written_bytes: 2, next: Some(SegmentId(3)) },
        Participant(Some(ParticipantRegion { slots: Some(target(2)), feed: Some(target(5)), life: 8 })),
        Transacted { messages: Payload::Beside(target(1)) },
        Posts { requests: target(1) },
        LogKept(LogKept {
            through_bytes: 2,
            end: LogPoint { offset_bytes: 3, sequence: 4, checksum: 5 },
            is_whole: true,
            generation: 6,
            room_bytes: 7,
        }),
        CopyOfLog {
            held: Some(CopyHeld { log: 2, end: LogPoint { offset_bytes: 3, sequence: 4, checksum: 5 } }),
            written_bytes: 6,
            generation: Some(generation()),
        },
        Done,
        Transferred { cost: cost(), places: vec![None, Some(CachePlace { frame: 20, version: 21 })] },
    }
}

one_of_each! {
    fn codes() -> RefusalCode {
        Malformed,
        NotFound,
        Busy,
        Bounced(BounceReason::MemoryQuota),
        Storage,
        Full,
        TargetTooSmall,
        Computation,
        Overflow,
        Memory,
        Stopping,
        Replaced,
        TooManyConnections,
    }
}

one_of_each! {
    fn reasons() -> BounceReason {
        Queue,
        Memory,
        CpuQuota,
        MemoryQuota,
    }
}

one_of_each! {
    fn bridges() -> BridgeKind {
        Reactor,
        Static,
        Dynamic,
    }
}

one_of_each! {
    fn ios() -> IoKind {
        Uring,
        Pread,
    }
}

fn cost() -> Cost {
    Cost {
        pages_read: 1,
        pages_cached: 2,
        pages_skipped_by_zone: 3,
        pages_skipped_by_selection: 4,
        disk_bytes: 5,
        cached_bytes: 6,
        rows_scanned: 7,
        rows_selected: 8,
        keys_tested: 9,
        keys_kept: 10,
        elapsed_us: 11,
        cpu_us: 12,
        queued_us: 13,
        worker_us: 14,
        read_us: 15,
    }
}

fn status() -> NodeStatus {
    NodeStatus {
        node: NodeId(2),
        cluster: 3,
        version: "1.2.3".to_owned(),
        host: "host".to_owned(),
        process_id: 4,
        uptime_s: 5,
        devices: vec![DeviceStatus {
            device: DeviceId(200),
            path: "/d".to_owned(),
            label: 6,
            capacity_bytes: 7,
            used_bytes: 8,
            align_bytes: 9,
            memory_align_bytes: 10,
            scratch: Some(ScratchArea { offset_bytes: 11, length_bytes: 12 }),
        }],
        reactors: 13,
        bridge: BridgeStatus { kind: BridgeKind::Dynamic, io: IoKind::Pread, io_threads: 14 },
        scan_workers: 15,
        memory_budget_bytes: 16,
        registered_buffers: Err("limit".to_owned()),
        counters: counters(),
        cache: CacheStatus {
            budget_bytes: 1,
            used_bytes: 2,
            pages: 3,
            hits: 4,
            one_sided_hits: 5,
            misses: 6,
            evictions: 7,
            withdrawals: 8,
        },
        participant: participant(),
        relays: vec![relay()],
        participant_refuses: Some("full".to_owned()),
        identity: FolderIdentity {
            members: vec![NodeId(2), NodeId(300)],
            folder: 17,
            history: StartHistory { lineage: 18, number: 19, recent: vec![20, 21] },
            seen: vec![SeenStart { node: NodeId(300), start: Start { lineage: 22, number: 23, id: 24 } }],
        },
    }
}

fn counters() -> NodeCounters {
    NodeCounters {
        fetch_requests: 1,
        process_requests: 2,
        append_requests: 3,
        raw_requests: 4,
        other_requests: 5,
        refused_requests: 6,
        bounced_requests: 7,
        pages_read: 8,
        disk_read_bytes: 9,
        disk_written_bytes: 10,
        wire_written_bytes: 11,
        wire_read_bytes: 12,
        rows_scanned: 13,
        rows_selected: 14,
        scan_cpu_us: 15,
        connections_accepted: 16,
        connections_refused: 17,
        connections_open: 18,
        connections_with_boxes: 19,
        inbox_messages: 20,
        posted_messages: 21,
        inbox_moves: 22,
        inbox_stalls: 23,
        memory_used_bytes: 24,
        memory_peak_bytes: 25,
    }
}

fn participant() -> ParticipantStatus {
    ParticipantStatus {
        budget_bytes: 2,
        used_bytes: 3,
        held_bytes: 4,
        keys: 5,
        in_doubt: 6,
        log_bytes: 7,
        log_full: true,
        log_copies: 8,
        log_cut_bytes: 9,
        requests: 10,
        prepared: 11,
        committed: 12,
        refused: 13,
        ended_by_asking: 14,
        log_batches: 15,
        log_replicas: 16,
        log_replicas_min: 17,
        log_generation: 18,
        log_generation_unaware: 19,
    }
}

fn relay() -> RelayStatus {
    RelayStatus {
        address: "tcp:x".to_owned(),
        sessions: 1,
        stripes: 2,
        sent_bytes: 3,
        received_bytes: 4,
        xored_bytes: 5,
        kept_bytes: 6,
        stored_bytes: 7,
        waits_for_credit: 8,
        written_bytes: 9,
        messages: 10,
    }
}

fn reply(outcome: Result<Answer, Refusal>) -> ReplyMessage {
    let load = LoadReport {
        scans_queued: 130,
        scans_running: 131,
        scan_workers: 132,
        reads_in_flight: 133,
        cpu_milli: 134,
    };
    ReplyMessage { id: RequestId(400), outcome, load }
}

fn refusal(code: RefusalCode) -> ReplyMessage {
    reply(Err(Refusal { code, text: "why".to_owned(), needed_bytes: 33 }))
}

fn file() -> String {
    format!("replies_v{PROTOCOL_VERSION}.txt")
}

fn samples() -> Vec<Sample> {
    let answers = answers().into_iter().map(|(name, answer)| (name, reply(Ok(answer))));
    let codes = codes().into_iter().map(|(name, code)| (name, refusal(code)));
    let reasons = reasons().into_iter().map(|(name, reason)| (name, refusal(RefusalCode::Bounced(reason))));
    let replies = answers.chain(codes).chain(reasons);
    let replies =
        replies.map(|(name, reply)| Sample::of(name, reply, ReplyMessage::encode, ReplyMessage::decode));
    let bulk = [
        Sample::in_envelope(Envelope::CatalogReply, tables::catalog()),
        Sample::in_envelope(Envelope::LoadHeld, tables::segments()),
    ];
    let bridges = bridges().into_iter().map(Sample::part);
    replies.chain(bridges).chain(ios().into_iter().map(Sample::part)).chain(bulk).collect()
}

#[test]
fn every_reply_is_encoded_in_the_bytes_of_its_golden_line() {
    assert_bytes(&file(), &samples());
}

#[test]
fn every_golden_line_of_a_reply_is_decoded_to_the_reply_it_was_made_of() {
    assert_values(&file(), &samples());
}

//! Tests that reading a log returns a prefix of the records that were written, and reports the
//! bytes that it ignores.
//!
//! Method: the bytes of a log are compared with a fixed copy; logs are shortened, and bits flipped,
//! at every position; unsynced ends are overwritten in part; stores are rebuilt from logs and
//! compared with the stores that wrote them.

use super::{
    Batch, Cut, Damage, Follower, HeaderFault, LogWriter, Record, RecoverError, Tail, read, recover,
    snapshot_records,
};
use crate::{
    item::{Fingerprint, Key, Metadata, Value},
    message::{Guard, Part, ParticipantId, Vote},
    slot::SlotVector,
    store::{Store, StoreOptions},
    timestamp::{ClientId, Timestamp},
};
use proptest::prelude::*;

fn at(time: u64) -> Timestamp {
    Timestamp { time, client: ClientId(7) }
}

fn part(time: u64, value: &[u8]) -> Part {
    let items = vec![(Key::new(b"key").unwrap(), Value::new(value).unwrap())];
    let metadata = Metadata::WriteSet(vec![Fingerprint(0xA1), Fingerprint(0xB2)]);
    Part {
        timestamp: at(time),
        participants: vec![ParticipantId(1), ParticipantId(2)],
        guard: Guard::Open,
        metadata,
        items,
    }
}

fn batch(records: &[Record]) -> Batch {
    let mut writer = LogWriter::after(Tail::START);
    for record in records {
        writer.append(record);
    }
    writer.take_batch().unwrap()
}

fn sample() -> Vec<Record> {
    let deleted = vec![(Key::new(b"gone").unwrap(), Value::DELETED)];
    vec![
        Record::Prepare(part(1, b"value")),
        Record::Commit(at(1)),
        Record::Put(Part {
            guard: Guard::Locked,
            metadata: Metadata::Timestamp,
            items: deleted,
            ..part(2, b"")
        }),
        Record::Refuse(at(3)),
        Record::Settle(at(1)),
        Record::Floor(at(4)),
        Record::End(at(5)),
    ]
}

#[test]
fn a_log_has_these_bytes_in_every_release() {
    // Checksums were computed by another implementation.
    let found: String = batch(&sample()[..2]).bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "3b000000bef7fb73",
        "0100000000000000",
        "01",
        "0100000000000000",
        "07000000",
        "00",
        "01",
        "0200",
        "01000000",
        "10000000",
        "0100",
        "0200",
        "a100000000000000",
        "b200000000000000",
        "0300",
        "00",
        "05000000",
        "6b6579",
        "76616c7565",
        "0c000000125d02bb",
        "0200000000000000",
        "03",
        "0100000000000000",
        "07000000",
    );
    assert_eq!(found, expected);
}

#[test]
fn records_survive_their_log_and_batches_join() {
    let (records, tail, cut) = read(Tail::START, &batch(&sample()).bytes);
    assert_eq!((records, cut), (sample(), None));
    let mut writer = LogWriter::after(tail);
    assert_eq!(
        (writer.append(&Record::Commit(at(9))), writer.take_batch().map(|batch| batch.offset_bytes)),
        (8, Some(tail.offset_bytes))
    );
    assert_eq!((writer.take_batch(), writer.sequence()), (None, 8));
}

#[test]
fn zeroes_behind_the_last_record_are_no_damage() {
    let mut bytes = batch(&sample()).bytes;
    let end = bytes.len() as u64;
    bytes.resize(bytes.len() + 4096, 0);
    let (records, tail, cut) = read(Tail::START, &bytes);
    assert_eq!((records.len(), tail.offset_bytes, cut), (7, end, None));
}

#[test]
fn what_is_cut_says_where_and_why() {
    let first = batch(&sample()[..1]).bytes.len();
    let all = batch(&sample()).bytes;
    let mut flipped = all.clone();
    flipped[first + 20] ^= 4;
    let (records, tail, cut) = read(Tail::START, &flipped);
    let cut = cut.unwrap();
    assert_eq!((records, tail.offset_bytes), (sample()[..1].to_vec(), first as u64));
    // The last record ends with three zeroes.
    assert_eq!(
        (cut.offset_bytes, cut.sequence, cut.bytes),
        (first as u64, 1, (all.len() - first - 3) as u64)
    );
    assert!(matches!(cut.damage, Damage::Checksum { .. }), "{cut}");
    let (_, _, short) = read(Tail::START, &all[..first + 3]);
    let damage = Damage::Short { found: 3, expected: 17 };
    assert_eq!(short, Some(Cut { offset_bytes: first as u64, sequence: 1, bytes: 1, damage }));
    let (_, _, long) = read(Tail::START, &[0xFF; 64]);
    assert_eq!(long.unwrap().damage, Damage::Length { found: 17 + 0xFFFF_FFFF });
}

#[test]
fn records_of_an_older_log_do_not_follow_new_ones() {
    let mut bytes = batch(&[Record::Commit(at(1)), Record::Commit(at(2)), Record::Commit(at(3))]).bytes;
    let new = batch(&[Record::Commit(at(5))]).bytes;
    bytes[..new.len()].copy_from_slice(&new);
    let (records, _, cut) = read(Tail::START, &bytes);
    assert_eq!(records, [Record::Commit(at(5))]);
    assert!(matches!(cut.unwrap().damage, Damage::Checksum { .. }), "the numbers and lengths fit");
}

#[test]
fn a_log_that_stands_by_itself_begins_with_its_header() {
    let (header, start) = Tail::header(41, 0xA1B2_C3D4);
    let found: String = header.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found, concat!("524b5352414d5001", "2900000000000000", "d4c3b2a1", "7b1d401e"));
    let mut writer = LogWriter::after(start);
    assert_eq!(writer.append(&Record::Commit(at(1))), 42);
    let batch = writer.take_batch().unwrap();
    assert_eq!(batch.offset_bytes, 24);
    assert_eq!(Tail::from_header(&header), Ok(start));
    assert_eq!(read(start, &batch.bytes).0, [Record::Commit(at(1))]);
    // Records of one log are not those of another.
    let (_, other) = Tail::header(41, 0xA1B2_C3D5);
    assert!(matches!(read(other, &batch.bytes).2.unwrap().damage, Damage::Checksum { .. }));
    assert_eq!(Tail::from_header(&header[..23]), Err(HeaderFault::Short { found: 23 }));
    assert_eq!(Tail::from_header(&[0; 24]), Err(HeaderFault::Foreign { found: [0; 8] }));
    for at in 8..24 {
        let mut header = header;
        header[at] ^= 1;
        assert!(matches!(Tail::from_header(&header), Err(HeaderFault::Checksum { .. })), "byte {at}");
    }
}

#[test]
fn a_log_that_no_participant_wrote_is_refused() {
    let options = StoreOptions { budget_bytes: 1 << 20, life: 1 };
    let records = [Record::Prepare(part(1, b"")), Record::Commit(at(1)), Record::Refuse(at(1))];
    let error = recover(options, SlotVector::zeroed(4096), records).unwrap_err();
    assert_eq!(error, RecoverError::Contradiction { sequence: 3, timestamp: at(1) });
    let small = StoreOptions { budget_bytes: 10, ..options };
    let error = recover(small, SlotVector::zeroed(4096), [Record::Prepare(part(1, b""))]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("record 1 of the log cannot be replayed: the version store uses 0 of its 10"),
        "{error}"
    );
}

#[test]
fn what_is_in_doubt_and_older_than_all_promises_is_still_in_doubt_after_a_snapshot() {
    let options = StoreOptions { budget_bytes: 1 << 20, life: 1 };
    let records = [Record::Prepare(part(30, b"")), Record::Floor(at(35))];
    let store = recover(options, SlotVector::zeroed(4096), records).unwrap();
    let again = recover(options, SlotVector::zeroed(4096), snapshot_records(store.snapshot())).unwrap();
    assert_eq!(again.vote(at(30)), Some(Vote::Prepared));
    assert_eq!(again.vote(at(34)), Some(Vote::Forgotten));
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let value = prop::collection::vec(any::<u8>(), 0..300);
    let record = prop_oneof![
        3 => (1_u64..40, value).prop_map(|(time, value)| Record::Prepare(part(time, &value))),
        3 => (1_u64..40).prop_map(|time| Record::Commit(at(time))),
        1 => (1_u64..40).prop_map(|time| Record::Refuse(at(time))),
        1 => (1_u64..40).prop_map(|time| Record::Settle(at(time))),
        1 => (1_u64..40).prop_map(|time| Record::End(at(time))),
    ];
    prop::collection::vec(record, 1..30)
}

/// Ends of the records in their log.
fn ends(records: &[Record]) -> Vec<usize> {
    (0..=records.len())
        .map(|count| if count == 0 { 0 } else { batch(&records[..count]).bytes.len() })
        .collect()
}

proptest! {
    #[test]
    fn a_log_that_ends_anywhere_gives_its_whole_records(records in records(), end in any::<prop::sample::Index>()) {
        let bytes = batch(&records).bytes;
        let end = end.index(bytes.len() + 1);
        let (found, tail, cut) = read(Tail::START, &bytes[..end]);
        let whole = ends(&records).iter().filter(|at| **at > 0 && **at <= end).count();
        prop_assert_eq!(&found[..], &records[..whole]);
        prop_assert_eq!(tail.offset_bytes, ends(&records)[whole] as u64);
        let rest = &bytes[ends(&records)[whole]..end];
        prop_assert_eq!(cut.is_some(), rest.iter().any(|byte| *byte != 0), "only zeroes are left out in silence");
    }

    #[test]
    fn flipped_bits_are_detected_and_nothing_behind_them_counts(
        records in records(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..8), 1..4),
    ) {
        let mut bytes = batch(&records).bytes;
        let places: Vec<(usize, u32)> = flips.iter().map(|(place, bit)| (place.index(bytes.len()), *bit)).collect();
        let mut places = places;
        places.sort_unstable();
        places.dedup();
        places.iter().for_each(|(place, bit)| bytes[*place] ^= 1 << bit);
        let first = places[0].0;
        let whole = ends(&records).iter().filter(|at| **at > 0 && **at <= first).count();
        let (found, _, cut) = read(Tail::START, &bytes);
        prop_assert_eq!(&found[..], &records[..whole]);
        prop_assert!(cut.is_some());
    }

    #[test]
    fn a_tail_that_was_not_synced_may_be_torn_anyhow(
        records in records(),
        synced in any::<prop::sample::Index>(),
        kept in prop::collection::vec(any::<bool>(), 512),
        step in prop_oneof![Just(8_usize), Just(64), Just(512)],
    ) {
        let bytes = batch(&records).bytes;
        let synced = ends(&records)[synced.index(records.len() + 1)];
        let mut disk = vec![0; bytes.len()];
        disk[..synced].copy_from_slice(&bytes[..synced]);
        for (chunk, kept) in (0..bytes.len()).step_by(step).zip(kept.iter().cycle()) {
            let (from, to) = (chunk.max(synced), (chunk + step).min(bytes.len()));
            if *kept && from < to {
                disk[from..to].copy_from_slice(&bytes[from..to]);
            }
        }
        let (found, _, _) = read(Tail::START, &disk);
        let durable = ends(&records).iter().filter(|at| **at > 0 && **at <= synced).count();
        prop_assert!(found.len() >= durable && found.len() <= records.len(), "{} of {}..", found.len(), durable);
        prop_assert_eq!(&found[..], &records[..found.len()]);
    }

    #[test]
    fn a_recovered_store_is_the_store_that_wrote_the_log(records in records(), cut in any::<prop::sample::Index>()) {
        let options = StoreOptions { budget_bytes: 1 << 24, life: 1 };
        let mut store = Store::new(options, SlotVector::zeroed(1 << 16));
        let mut written = Vec::new();
        for record in records {
            let done = match &record {
                Record::Prepare(part) => store.prepare(part) == Ok(true),
                Record::Commit(timestamp) => store.vote(*timestamp).is_some() && store.commit(*timestamp) == crate::store::Commit::Now,
                Record::Refuse(timestamp) => store.refuse(*timestamp).is_some(),
                Record::Settle(timestamp) => store.settle(*timestamp),
                Record::End(timestamp) => store.end(*timestamp),
                Record::Put(_) | Record::Floor(_) => false,
            };
            written.extend(done.then_some(record));
        }
        let memory = || SlotVector::zeroed(1 << 16);
        let again = recover(options, memory(), written.clone()).unwrap();
        prop_assert_eq!(again.snapshot(), store.snapshot());
        // From a snapshot in the middle, and what came after it.
        let cut = cut.index(written.len() + 1);
        let middle = recover(options, memory(), written[..cut].to_vec()).unwrap();
        let records = snapshot_records(middle.snapshot()).into_iter().chain(written[cut..].to_vec());
        let again = recover(options, memory(), records).unwrap();
        prop_assert_eq!(again.snapshot(), store.snapshot());
    }
}

/// What one look finds: where the log goes on, and whether anything is wrong behind.
fn look(bytes: &[u8]) -> (Tail, bool) {
    let (_, tail, cut) = read(Tail::START, bytes);
    (tail, cut.is_some())
}

#[test]
fn a_log_that_comes_in_pieces_ends_where_one_look_finds_its_end() {
    let whole = batch(&sample()).bytes;
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x10;
    let swapped = [&whole[..], &whole[..]].concat();
    for bytes in [&whole[..], &flipped, &swapped, &whole[..whole.len() - 3]] {
        for piece_bytes in [1, 2, 7, 17, 18, 64, 1000] {
            let mut follower = Follower::after(Tail::START);
            let damaged = bytes.chunks(piece_bytes).find_map(|piece| follower.whole(piece)).is_some();
            let (tail, cut) = look(bytes);
            assert_eq!(follower.tail(), tail, "pieces of {piece_bytes}");
            let is_short = !damaged && follower.through_bytes() > tail.offset_bytes;
            assert_eq!(damaged || is_short, cut, "pieces of {piece_bytes}");
        }
    }
}

#[test]
fn a_piece_that_does_not_follow_is_refused_as_a_whole() {
    let (first, second) = (batch(&sample()[..2]).bytes, batch(&sample()[2..4]).bytes);
    let mut follower = Follower::after(Tail::START);
    follower.take(&first[..first.len() - 3]).unwrap();
    let before = follower;
    let piece = [&first[first.len() - 3..], &second[..]].concat();
    assert!(matches!(follower.take(&piece), Err(Damage::Sequence { found: 1, expected: 3 })));
    assert_eq!(follower, before, "not even what is right of it");
    follower.take(&piece[..3]).unwrap();
    assert_eq!(follower.through_bytes(), first.len() as u64);
    let too_long = [0xff; 17];
    assert!(matches!(follower.take(&too_long), Err(Damage::Length { .. })));
}

#[test]
fn a_log_has_a_number_if_it_begins_as_logs_do() {
    let (header, _) = Tail::header(9, 0xABCD_0123);
    assert_eq!(Tail::salt(&header), Some(0xABCD_0123));
    assert_eq!((Tail::salt(&header[..20]), Tail::salt(&[7; 24])), (None, None));
}

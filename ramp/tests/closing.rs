//! Tests that closed prefixes stay closed, and that items under emptied prefixes are dropped, also
//! after a crash.

use rackscan_ramp::{
    closing::{CLOSING_PREFIX, Closing},
    item::{Key, Metadata, Value},
    log::{LogWriter, Tail, read, recover, snapshot_records},
    message::{Guard, KeyRange, LeaseId, Part, ParticipantId, Refusal, Reply, Request},
    participant::{Participant, Peer},
    slot::SlotVector,
    store::{Store, StoreOptions},
    timestamp::{ClientId, Timestamp},
};

const PREFIX: &[u8] = b"\0rT";
const OPTIONS: StoreOptions = StoreOptions { budget_bytes: 1 << 20, life: 3 };

fn participant() -> Participant<SlotVector> {
    Participant::new(Store::new(OPTIONS, SlotVector::zeroed(1 << 16)), LogWriter::after(Tail::START))
}

fn at(time: u64) -> Timestamp {
    Timestamp { time, client: ClientId(1) }
}

fn row(number: u8) -> Key {
    Key::new(&[PREFIX, &[number]].concat()).expect("as built")
}

fn ask(participant: &mut Participant<SlotVector>, request: Request) -> Vec<Reply> {
    participant.request(Peer(1), request);
    let recorded = participant.log_mut().sequence();
    participant.durable(recorded);
    participant.take_replies().into_iter().map(|(_, reply)| reply).collect()
}

fn prepare(participant: &mut Participant<SlotVector>, time: u64, items: Vec<(Key, Value)>) -> Vec<Reply> {
    // Another participant has a vote, too: one step after the other.
    let participants = vec![ParticipantId(0), ParticipantId(1)];
    let part =
        Part { timestamp: at(time), participants, guard: Guard::Open, metadata: Metadata::Timestamp, items };
    ask(participant, Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() })
}

fn write(participant: &mut Participant<SlotVector>, time: u64, items: Vec<(Key, Value)>) {
    assert_eq!(prepare(participant, time, items), [Reply::Prepared]);
    assert_eq!(ask(participant, Request::Commit { timestamp: at(time) }), [Reply::Committed]);
    ask(participant, Request::Settled { timestamps: vec![at(time)] });
}

fn rows(numbers: std::ops::Range<u8>) -> Vec<(Key, Value)> {
    numbers.map(|number| (row(number), Value::new(&[number; 100]).expect("as built"))).collect()
}

fn closing(state: Closing) -> Vec<(Key, Value)> {
    state.items(PREFIX, &[ParticipantId(0)]).expect("a short prefix")
}

fn lease(participant: &mut Participant<SlotVector>) -> LeaseId {
    match ask(participant, Request::Lease { client: ClientId(1) })[..] {
        [Reply::Leased { lease, .. }] => lease,
        _ => panic!("no lease"),
    }
}

/// The rows that a scan finds.
fn found(participant: &mut Participant<SlotVector>, lease: LeaseId) -> usize {
    let range = KeyRange { prefix: PREFIX.to_vec(), after: None, most: 1000, values: true };
    match &ask(participant, Request::Scan { lease, range })[..] {
        [Reply::Scanned { items, more: false }] => items.len(),
        other => panic!("{other:?}"),
    }
}

/// The participant after a crash, from its log or from a snapshot.
fn again(participant: &mut Participant<SlotVector>, from_snapshot: bool) -> Participant<SlotVector> {
    let records = if from_snapshot {
        snapshot_records(participant.store().snapshot())
    } else {
        let batch = participant.log_mut().take_batch().expect("a batch");
        read(Tail::START, &batch.bytes).0
    };
    let options = StoreOptions { life: 4, ..OPTIONS };
    let store = recover(options, SlotVector::zeroed(1 << 16), records).expect("as built");
    Participant::new(store, LogWriter::after(Tail::START))
}

fn is_closed(participant: &mut Participant<SlotVector>, time: u64) -> bool {
    matches!(prepare(participant, time, rows(9..10))[..], [Reply::Refused { why: Refusal::Closed { .. } }])
}

#[test]
fn what_was_prepared_before_a_prefix_closed_ends_as_it_would_have_and_nothing_new_is_prepared() {
    let mut participant = participant();
    assert_eq!(prepare(&mut participant, 1, rows(0..2)), [Reply::Prepared]);
    assert_eq!(prepare(&mut participant, 2, closing(Closing::Closed)), [Reply::Prepared]);
    assert!(is_closed(&mut participant, 3), "closed as soon as the closing is prepared");
    let part = Part {
        timestamp: at(4),
        participants: Vec::new(),
        guard: Guard::Open,
        metadata: Metadata::Timestamp,
        items: rows(3..4),
    };
    assert!(matches!(
        ask(&mut participant, Request::Put { part, preconditions: Default::default() })[..],
        [Reply::Refused { why: Refusal::Closed { .. } }]
    ));
    assert_eq!(prepare(&mut participant, 1, rows(0..2)), [Reply::Prepared], "a vote never changes");
    assert_eq!(ask(&mut participant, Request::Commit { timestamp: at(1) }), [Reply::Committed]);
    let other = vec![(Key::new(b"\0rU1").expect("as built"), Value::new(b"x").unwrap())];
    assert_eq!(prepare(&mut participant, 5, other), [Reply::Prepared], "another prefix is open");
    let lease = lease(&mut participant);
    assert_eq!(found(&mut participant, lease), 2);
}

#[test]
fn a_closing_that_is_aborted_closes_nothing() {
    let mut participant = participant();
    prepare(&mut participant, 1, closing(Closing::Closed));
    assert!(is_closed(&mut participant, 2));
    ask(&mut participant, Request::Abort { timestamp: at(1) });
    assert!(!is_closed(&mut participant, 3));
}

#[test]
fn what_is_emptied_goes_with_its_memory_once_no_reader_may_need_it() {
    let mut participant = participant();
    let before = participant.store().status();
    write(&mut participant, 1, rows(0..50));
    write(&mut participant, 2, rows(0..10));
    let reader = lease(&mut participant);
    write(&mut participant, 3, closing(Closing::Closed));
    write(&mut participant, 4, closing(Closing::Emptied));
    participant.store_mut().collect(usize::MAX);
    assert_eq!(found(&mut participant, reader), 50, "a reader that was there may still ask");
    ask(&mut participant, Request::Close { lease: reader });
    participant.store_mut().collect(usize::MAX);
    let reader = lease(&mut participant);
    assert_eq!(found(&mut participant, reader), 0);
    let after = participant.store().status();
    assert_eq!((after.keys, after.superseded_bytes), (1, 0), "the closing key: {after:?}");
    assert!(after.used_bytes < before.used_bytes + 1000, "{after:?}");
    let slot = participant.store().area().memory().as_slice();
    let key = row(0);
    assert!(
        !slot.windows(key.bytes().len()).any(|bytes| bytes == key.bytes()) || {
            // The image may still be in memory, but must not be valid: the next owner gets its
            // place.
            write(
                &mut participant,
                6,
                vec![(Key::new(b"new").expect("as built"), Value::new(&[7; 100]).unwrap())],
            );
            participant
                .store()
                .get(&Key::new(b"new").expect("as built"))
                .place
                .is_some_and(|place| place.offset_bytes < 50 * 256)
        }
    );
}

#[test]
fn what_is_closed_or_emptied_is_so_after_a_crash() {
    for from_snapshot in [false, true] {
        let mut before = participant();
        write(&mut before, 1, rows(0..20));
        write(&mut before, 2, closing(Closing::Closed));
        let mut participant = again(&mut before, from_snapshot);
        assert!(is_closed(&mut participant, 9), "from a snapshot: {from_snapshot}");
        let reader = lease(&mut participant);
        assert_eq!(found(&mut participant, reader), 20);
    }
    for from_snapshot in [false, true] {
        let mut before = participant();
        write(&mut before, 1, rows(0..20));
        // What a reader protects is in the snapshot.
        lease(&mut before);
        write(&mut before, 2, closing(Closing::Emptied));
        let mut participant = again(&mut before, from_snapshot);
        assert!(is_closed(&mut participant, 9), "from a snapshot: {from_snapshot}");
        let reader = lease(&mut participant);
        assert_eq!(found(&mut participant, reader), 0, "from a snapshot: {from_snapshot}");
        assert_eq!(participant.store().status().keys, 1);
    }
}

#[test]
fn a_store_that_is_full_can_be_closed_and_emptied() {
    let mut participant = participant();
    let mut time = 1;
    while let [Reply::Prepared] = prepare(
        &mut participant,
        time,
        vec![(
            Key::new(&[PREFIX, &time.to_be_bytes()].concat()).expect("as built"),
            Value::new(&[1; 10_000]).unwrap(),
        )],
    )[..]
    {
        ask(&mut participant, Request::Commit { timestamp: at(time) });
        time += 1;
    }
    assert!(time > 50, "filled after {time}");
    write(&mut participant, time + 1, closing(Closing::Closed));
    write(&mut participant, time + 2, closing(Closing::Emptied));
    let other = vec![(Key::new(b"other").expect("as built"), Value::new(&[1; 10_000]).unwrap())];
    assert_eq!(prepare(&mut participant, time + 3, other), [Reply::Prepared]);
    assert!(CLOSING_PREFIX.starts_with(b"\0"), "feeds tell of it");
}

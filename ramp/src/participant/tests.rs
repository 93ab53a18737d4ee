//! Tests the guarantees of a participant. Each test passes requests to one participant directly.

use super::*;
use crate::{
    item::{Metadata, Value},
    limits::REPLY_BYTES_MAX,
    log::{Tail, read, recover, snapshot_records},
    message::{Epoch, KeyRange},
    slot::SlotVector,
    store::StoreOptions,
};

const OPTIONS: StoreOptions = StoreOptions { budget_bytes: 1 << 20, life: 3 };

fn participant() -> Participant<SlotVector> {
    Participant::new(Store::new(OPTIONS, SlotVector::zeroed(4096)), LogWriter::after(Tail::START))
}

fn at(time: u64) -> Timestamp {
    Timestamp { time, client: ClientId(1) }
}

fn key(name: u8) -> Key {
    Key::new(&[name]).unwrap()
}

fn part_of(participants: &[ParticipantId], time: u64, guard: Guard) -> Part {
    let items = vec![(key(b'a'), Value::new(b"value").unwrap())];
    Part {
        timestamp: at(time),
        participants: participants.to_vec(),
        guard,
        metadata: Metadata::Timestamp,
        items,
    }
}

/// Of a transaction that has another participant, too.
fn prepare(time: u64, guard: Guard) -> Request {
    let part = part_of(&[ParticipantId(0), ParticipantId(1)], time, guard);
    Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() }
}

/// Of one that has no other.
fn prepare_whole(time: u64, guard: Guard) -> Request {
    Request::Prepare {
        part: part_of(&[ParticipantId(0)], time, guard),
        settled: Vec::new(),
        preconditions: Default::default(),
    }
}

fn ask(participant: &mut Participant<SlotVector>, request: Request) -> Vec<Reply> {
    participant.request(Peer(1), request);
    participant.take_replies().into_iter().map(|(_, reply)| reply).collect()
}

/// The participant after a crash that lost all that was not durable.
fn again(disk: &[u8]) -> Participant<SlotVector> {
    let (records, tail, cut) = read(Tail::START, disk);
    assert_eq!(cut, None);
    let options = StoreOptions { life: 4, ..OPTIONS };
    Participant::new(recover(options, SlotVector::zeroed(4096), records).unwrap(), LogWriter::after(tail))
}

fn scan_of(lease: LeaseId, after: Option<Key>, most: u32) -> Request {
    Request::Scan { lease, range: KeyRange { prefix: Vec::new(), after, most, values: true } }
}

#[test]
fn a_participant_that_comes_back_tells_of_nothing_before_the_other_disks_have_it() {
    for (asked, told) in [
        (prepare(1, Guard::Open), Reply::Prepared),
        (prepare_whole(1, Guard::Open), Reply::Committed),
        (Request::Inquire { timestamp: at(1) }, Reply::Voted { vote: Vote::Prepared }),
    ] {
        let is_whole = told == Reply::Committed;
        let mut before = participant();
        let first = if is_whole { prepare_whole(1, Guard::Open) } else { prepare(1, Guard::Open) };
        assert_eq!(ask(&mut before, first), []);
        let disk = before.log_mut().take_batch().unwrap().bytes.clone();
        let mut back = again(&disk).unacknowledged();
        assert_eq!(ask(&mut back, asked.clone()), [], "{asked:?} is answered by what one disk has");
        let recovered = back.log_mut().sequence();
        back.durable(recovered);
        assert_eq!(back.take_replies(), [(Peer(1), told.clone())]);
        assert_eq!(
            ask(&mut back, asked),
            [told],
            "where other disks do not count there is nothing to wait for"
        );
    }
}

#[test]
fn nobody_reads_what_was_recovered_before_the_other_disks_have_it() {
    let mut before = participant();
    assert_eq!(ask(&mut before, prepare_whole(1, Guard::Open)), []);
    let disk = before.log_mut().take_batch().unwrap().bytes.clone();
    let lease = || Request::Lease { client: ClientId(1) };
    let lock = || Request::Lock { owner: at(9), wanted: vec![(key(b'a'), Mode::Shared)] };
    for (asked, told) in [(lease(), "Leased"), (lock(), "Locked")] {
        let mut back = again(&disk).unacknowledged();
        assert_eq!(ask(&mut back, asked.clone()), [], "{asked:?} shows what one disk has");
        // What is recorded meanwhile is shown when it is durable, too.
        assert_eq!(ask(&mut back, prepare(2, Guard::Open)), []);
        let recorded = back.log_mut().sequence();
        back.durable(recorded);
        let replies: Vec<String> =
            back.take_replies().iter().map(|(_, reply)| format!("{reply:?}")).collect();
        assert!(replies.iter().any(|reply| reply.starts_with(told)), "{replies:?}");
        assert_eq!(ask(&mut back, lease()).len(), 1, "nothing waits any more");
        let mut shorter = LogWriter::after(Tail::START);
        for record in snapshot_records(back.store().snapshot()) {
            shorter.append(&record);
        }
        assert!(shorter.take_batch().is_some());
        assert_eq!(back.replace_log(shorter), Ok(()));
        assert_eq!(ask(&mut back, lease()).len(), 1, "a shorter log ends with a smaller number");
    }
}

#[test]
fn who_wants_to_read_what_may_never_be_durable_is_told_why_not() {
    let mut before = participant();
    assert_eq!(ask(&mut before, prepare_whole(1, Guard::Open)), []);
    let disk = before.log_mut().take_batch().unwrap().bytes.clone();
    let lease = || Request::Lease { client: ClientId(1) };
    let mut back = again(&disk).unacknowledged();
    assert_eq!(ask(&mut back, lease()), []);
    let why = Refusal::Unrecorded { why: "no replica".to_owned() };
    back.refuse_new(Some(why.clone()));
    let refused = Reply::Refused { why };
    assert_eq!(back.take_replies(), [(Peer(1), refused.clone())], "who has waited");
    assert_eq!(ask(&mut back, lease()), [refused], "who comes");
    back.durable(back.log.sequence());
    assert!(matches!(ask(&mut back, lease())[..], [Reply::Leased { .. }]), "reads need no replica then");
    back.client_lost(ClientId(1));
    assert_eq!(back.leases.len(), 0);
}

#[test]
fn a_scan_is_cut_by_keys_and_by_bytes_and_says_whether_there_is_more() {
    let mut participant = participant();
    let items = (b'a'..=b'f').map(|name| (key(name), Value::new(&[name; 10_000]).unwrap())).collect();
    let metadata = Metadata::Timestamp;
    let part = Part { timestamp: at(1), participants: Vec::new(), guard: Guard::Open, metadata, items };
    ask(&mut participant, Request::Put { part, preconditions: Default::default() });
    let [Reply::Leased { lease, .. }] = ask(&mut participant, Request::Lease { client: ClientId(1) })[..]
    else {
        panic!("no lease")
    };
    let mut scan = |after: Option<Key>, most| {
        let replies = ask(&mut participant, scan_of(lease, after, most));
        let [Reply::Scanned { items, more }] = &replies[..] else { panic!("{replies:?}") };
        (items.iter().map(|(key, _)| key.bytes()[0]).collect::<Vec<u8>>(), *more)
    };
    assert_eq!(scan(None, 2), (b"ab".to_vec(), true));
    assert_eq!(scan(None, 9), (b"abc".to_vec(), true), "four do not fit an answer");
    assert_eq!(scan(Some(key(b'c')), 9), (b"def".to_vec(), false));
    let lease = LeaseId::default();
    let replies = ask(&mut participant, scan_of(lease, None, 1));
    assert_eq!(replies, [Reply::Unleased]);
}

#[test]
fn a_scan_without_values_says_only_what_is_there_and_what_is_deleted() {
    let mut participant = participant();
    let items = vec![(key(b'a'), Value::new(b"long").unwrap()), (key(b'b'), Value::DELETED)];
    let part = Part {
        timestamp: at(1),
        participants: Vec::new(),
        guard: Guard::Open,
        metadata: Metadata::Timestamp,
        items,
    };
    ask(&mut participant, Request::Put { part, preconditions: Default::default() });
    let [Reply::Leased { lease, .. }] = ask(&mut participant, Request::Lease { client: ClientId(1) })[..]
    else {
        panic!("no lease")
    };
    let range = KeyRange { most: 9, ..KeyRange::default() };
    let replies = ask(&mut participant, Request::Scan { lease, range });
    let [Reply::Scanned { items, more: false }] = &replies[..] else { panic!("{replies:?}") };
    let found: Vec<_> = items.iter().map(|(_, found)| found.version.value.clone()).collect();
    assert_eq!(found, [Value::new(b"").unwrap(), Value::DELETED]);
}

#[test]
fn a_feed_has_the_transactions_of_its_keys_and_no_others() {
    let feed = Feed::new(SlotVector::zeroed(4096), OPTIONS.life).unwrap();
    let mut participant = participant().feeding(feed, b"a");
    let [Reply::Marked { tail }] = ask(&mut participant, Request::Mark)[..] else { panic!("no mark") };
    let part = |time, name| {
        let items = vec![(key(name), Value::new(b"value").unwrap())];
        let participants = vec![ParticipantId(0), ParticipantId(1)];
        Part { timestamp: at(time), participants, guard: Guard::Open, metadata: Metadata::Timestamp, items }
    };
    for (time, name) in [(1, b'a'), (2, b'b'), (3, b'a')] {
        ask(
            &mut participant,
            Request::Prepare {
                part: part(time, name),
                settled: Vec::new(),
                preconditions: Default::default(),
            },
        );
    }
    ask(&mut participant, Request::Abort { timestamp: at(3) });
    ask(&mut participant, Request::Abort { timestamp: at(4) });
    ask(&mut participant, Request::Commit { timestamp: at(2) });
    ask(&mut participant, Request::Commit { timestamp: at(1) });
    ask(&mut participant, Request::Commit { timestamp: at(1) });
    ask(&mut participant, Request::Put { part: part(5, b'a'), preconditions: Default::default() });
    participant.publish_feed();
    let memory = participant.feed_memory().unwrap().as_slice();
    let (records, ..) = read(tail, &memory[crate::limits::FEED_HEADER_BYTES..]);
    let expected = [
        Record::Prepare(part(1, b'a')),
        Record::Prepare(part(3, b'a')),
        Record::Refuse(at(3)),
        Record::Commit(at(1)),
        Record::Put(part(5, b'a')),
    ];
    assert_eq!(records, expected);
}

#[test]
fn votes_and_ends_are_told_when_they_are_durable() {
    let mut participant = participant();
    assert_eq!(ask(&mut participant, prepare(1, Guard::Open)), []);
    assert_eq!(ask(&mut participant, Request::Inquire { timestamp: at(1) }), [], "the vote is not durable");
    let batch = participant.log_mut().take_batch().unwrap();
    assert_eq!(ask(&mut participant, Request::Commit { timestamp: at(1) }), []);
    participant.durable(batch.sequence);
    let told: Vec<Reply> = participant.take_replies().into_iter().map(|(_, reply)| reply).collect();
    assert_eq!(told, [Reply::Prepared, Reply::Voted { vote: Vote::Prepared }]);
    participant.durable(2);
    assert_eq!(participant.take_replies(), [(Peer(1), Reply::Committed)]);
    let again = again(&batch.bytes);
    assert_eq!(again.store().vote(at(1)), Some(Vote::Prepared), "the commit was not durable");
}

#[test]
#[should_panic(expected = "record 2 is said to be durable, but the last one is 1")]
fn a_record_that_does_not_exist_is_not_durable() {
    let mut participant = participant();
    ask(&mut participant, prepare(1, Guard::Open));
    participant.durable(2);
}

#[test]
fn a_transaction_of_one_participant_is_committed_when_its_vote_is_durable_and_not_visible_before() {
    let feed = Feed::new(SlotVector::zeroed(4096), OPTIONS.life).unwrap();
    let mut participant = participant().feeding(feed, b"a");
    let [Reply::Marked { tail }] = ask(&mut participant, Request::Mark)[..] else { panic!("no mark") };
    let fed = |participant: &mut Participant<SlotVector>| {
        participant.publish_feed();
        read(tail, &participant.feed_memory().unwrap().as_slice()[crate::limits::FEED_HEADER_BYTES..]).0
    };
    assert_eq!(ask(&mut participant, prepare_whole(1, Guard::Open)), []);
    // Who says more before that changes nothing: neither is it visible sooner, nor is it taken
    // back.
    for request in [Request::Commit { timestamp: at(1) }, Request::Abort { timestamp: at(1) }] {
        assert_eq!(ask(&mut participant, request), []);
    }
    assert_eq!(ask(&mut participant, prepare_whole(1, Guard::Open)), [], "said twice");
    assert_eq!((participant.store().latest(&key(b'a')), fed(&mut participant)), (Timestamp::FIRST, vec![]));
    let batch = participant.log_mut().take_batch().unwrap();
    assert_eq!(
        again(&[]).store().latest(&key(b'a')),
        Timestamp::FIRST,
        "a crash before has undone nothing visible"
    );
    participant.durable(batch.sequence);
    let told: Vec<Reply> = participant.take_replies().into_iter().map(|(_, reply)| reply).collect();
    assert_eq!(told, [Reply::Committed, Reply::Committed, Reply::Committed, Reply::Committed]);
    assert_eq!(participant.store().latest(&key(b'a')), at(1));
    assert_eq!(fed(&mut participant), [Record::Put(part_of(&[ParticipantId(0)], 1, Guard::Open))]);
    assert!(participant.log_mut().take_batch().is_none(), "its vote is all that is written down");
    let again = again(&batch.bytes);
    assert_eq!((again.store().latest(&key(b'a')), again.store().vote(at(1))), (at(1), Some(Vote::Committed)));
}

#[test]
fn a_long_transaction_of_one_participant_is_told_of_in_pieces_that_are_read_at_once_and_published_together() {
    let feed = Feed::new(SlotVector::zeroed(8 << 20), OPTIONS.life).unwrap();
    let store = Store::new(StoreOptions { budget_bytes: 16 << 20, ..OPTIONS }, SlotVector::zeroed(4096));
    let mut participant = Participant::new(store, LogWriter::after(Tail::START)).feeding(feed, b"a");
    let [Reply::Marked { tail }] = ask(&mut participant, Request::Mark)[..] else { panic!("no mark") };
    let value = Value::new(&[7; 10_000]).unwrap();
    let items: Vec<_> =
        (0..200_u8).map(|number| (Key::new(&[b'a', number]).unwrap(), value.clone())).collect();
    let part = Part { items: items.clone(), ..part_of(&[ParticipantId(0)], 1, Guard::Open) };
    ask(&mut participant, Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() });
    let fed = |participant: &Participant<SlotVector>| {
        read(tail, &participant.feed_memory().unwrap().as_slice()[crate::limits::FEED_HEADER_BYTES..]).0
    };
    participant.durable(1);
    assert_eq!(fed(&participant), [], "it is not published yet");
    participant.publish_feed();
    let mut told = Vec::new();
    for record in fed(&participant) {
        let Record::Put(part) = record else { panic!("{record:?}") };
        let bytes: usize = part.items.iter().map(|(key, value)| key.bytes().len() + value.len()).sum();
        assert!(part.timestamp == at(1) && bytes <= crate::limits::FEED_PIECE_BYTES, "{bytes}");
        told.extend(part.items);
    }
    assert_eq!(told, items);
}

#[test]
fn locks_of_a_transaction_of_one_participant_go_when_its_vote_is_durable() {
    let mut participant = participant();
    let lock = |time| Request::Lock { owner: at(time), wanted: vec![(key(b'a'), Mode::Exclusive)] };
    assert!(matches!(ask(&mut participant, lock(1))[..], [Reply::Locked { .. }]));
    ask(&mut participant, prepare_whole(1, Guard::Locked));
    assert_eq!(ask(&mut participant, lock(2)), []);
    participant.durable(1);
    let told: Vec<Reply> = participant.take_replies().into_iter().map(|(_, reply)| reply).collect();
    assert!(matches!(told[..], [Reply::Locked { .. }, Reply::Committed]), "{told:?}");
}

#[test]
fn a_promise_is_kept_over_a_crash() {
    let mut participant = participant();
    assert_eq!(ask(&mut participant, Request::Inquire { timestamp: at(1) }), []);
    let batch = participant.log_mut().take_batch().unwrap();
    participant.durable(batch.sequence);
    assert_eq!(participant.take_replies(), [(Peer(1), Reply::Voted { vote: Vote::Refused })]);
    let mut again = again(&batch.bytes);
    let refused = Reply::Refused { why: Refusal::Promised { timestamp: at(1) } };
    assert_eq!(ask(&mut again, prepare(1, Guard::Open)), [refused]);
}

#[test]
fn what_is_committed_is_not_aborted() {
    let mut participant = participant();
    ask(&mut participant, prepare(1, Guard::Open));
    ask(&mut participant, Request::Commit { timestamp: at(1) });
    participant.durable(2);
    participant.take_replies();
    assert_eq!(ask(&mut participant, Request::Abort { timestamp: at(1) }), [Reply::Committed]);
}

#[test]
fn a_lease_ends_with_the_life_of_the_participant() {
    let mut participant = participant();
    let found = ask(&mut participant, Request::Lease { client: ClientId(1) });
    let lease = LeaseId { life: 3, number: 1 };
    assert_eq!(found, [Reply::Leased { lease, epoch: Epoch(0), newest: Timestamp::FIRST }]);
    let get = || Request::Get { lease, keys: vec![key(b'a')] };
    assert!(matches!(&ask(&mut participant, get())[..], [Reply::Found { .. }]));
    let mut again = again(&[]);
    ask(&mut again, Request::Lease { client: ClientId(1) });
    assert_eq!(ask(&mut again, get()), [Reply::Unleased]);
}

#[test]
fn locks_are_needed_where_they_are_counted_on_and_come_back_with_what_is_in_doubt() {
    let mut participant = participant();
    let missing = Refusal::NotLocked { timestamp: at(1), key: key(b'a') };
    assert_eq!(ask(&mut participant, prepare(1, Guard::Locked)), [Reply::Refused { why: missing }]);
    let lock = |time, mode| Request::Lock { owner: at(time), wanted: vec![(key(b'a'), mode)] };
    assert_eq!(ask(&mut participant, lock(1, Mode::Exclusive)), [Reply::Locked { items: vec![] }]);
    ask(&mut participant, prepare(1, Guard::Locked));
    assert_eq!(ask(&mut participant, lock(2, Mode::Shared)), []);
    let batch = participant.log_mut().take_batch().unwrap();
    participant.request(Peer(2), Request::Commit { timestamp: at(1) });
    let freed = participant.take_replies();
    assert!(
        matches!(&freed[..], [(Peer(1), Reply::Locked { items })] if items[0].1.version.timestamp == at(1))
    );
    let mut again = again(&batch.bytes);
    assert_eq!(ask(&mut again, lock(2, Mode::Shared)), [], "1 is in doubt and has its lock");
    again.request(Peer(2), Request::Abort { timestamp: at(1) });
    assert_eq!(again.take_replies().len(), 1, "2 has its lock; the abort is not durable");
    assert_eq!(ask(&mut again, Request::Unlock { owner: at(9) }), [Reply::Unlocked { held: false }]);
}

#[test]
fn a_lost_client_leaves_no_locks_but_what_it_has_prepared() {
    let mut participant = participant();
    let lock = |time, client, name| {
        let owner = Timestamp { time, client: ClientId(client) };
        Request::Lock { owner, wanted: vec![(key(name), Mode::Exclusive)] }
    };
    ask(&mut participant, lock(1, 1, b'a'));
    ask(&mut participant, prepare(1, Guard::Locked));
    ask(&mut participant, lock(2, 1, b'b'));
    assert_eq!(ask(&mut participant, lock(3, 2, b'b')), []);
    assert_eq!(participant.client_lost(ClientId(1)), [(at(1), vec![ParticipantId(0), ParticipantId(1)])]);
    assert_eq!(participant.take_replies().len(), 1, "b is free");
    assert_eq!(ask(&mut participant, lock(4, 2, b'a')), [], "a is in doubt");
}

#[test]
fn an_answer_that_is_too_long_comes_in_parts() {
    let mut participant = participant();
    let lease = LeaseId { life: 3, number: 1 };
    ask(&mut participant, Request::Lease { client: ClientId(1) });
    let value = Value::new(&vec![1; REPLY_BYTES_MAX / 3]).unwrap();
    let items = (b'a'..=b'h').map(|name| (key(name), value.clone())).collect();
    let metadata = Metadata::Timestamp;
    let part = Part { timestamp: at(1), participants: vec![], guard: Guard::Open, metadata, items };
    ask(&mut participant, Request::Put { part, preconditions: Default::default() });
    let keys: Vec<Key> = (b'a'..=b'h').map(key).collect();
    let counts = |replies: Vec<Reply>| -> Vec<usize> {
        let count = |reply| match reply {
            Reply::Found { items, .. } => items.len(),
            Reply::Named { items } => items.len(),
            _ => 0,
        };
        replies.into_iter().map(count).collect()
    };
    let found = ask(&mut participant, Request::Get { lease, keys: keys.clone() });
    assert_eq!(counts(found), [2, 2, 2, 2]);
    let named = ask(&mut participant, Request::Among { lease, keys, timestamps: vec![at(1)] });
    assert_eq!(counts(named), [2, 2, 2, 2]);
    assert_eq!(
        ask(&mut participant, Request::Get { lease, keys: vec![] }).len(),
        1,
        "an answer to every question"
    );
}

#[test]
fn leases_of_a_lost_client_end() {
    let mut participant = participant();
    for client in [1, 1, 2] {
        ask(&mut participant, Request::Lease { client: ClientId(client) });
    }
    participant.client_lost(ClientId(1));
    assert_eq!(participant.store().status().leases, 1);
}

#[test]
fn a_log_is_replaced_when_all_of_it_is_durable() {
    let mut participant = participant();
    ask(&mut participant, prepare(1, Guard::Open));
    let mut other = LogWriter::after(Tail::START);
    for record in snapshot_records(participant.store().snapshot()) {
        other.append(&record);
    }
    assert_eq!(participant.replace_log(other.clone()), Err(1));
    participant.durable(1);
    let disk = other.take_batch().unwrap().bytes;
    assert_eq!(participant.replace_log(other), Ok(()));
    ask(&mut participant, Request::Commit { timestamp: at(1) });
    let batch = participant.log_mut().take_batch().unwrap();
    assert_eq!(batch.offset_bytes, disk.len() as u64);
    let again = again(&[disk, batch.bytes].concat());
    assert_eq!(again.store().latest(&key(b'a')), at(1));
}

#[test]
fn a_log_that_is_full_stops_new_transactions_only() {
    let mut participant = participant();
    ask(&mut participant, prepare(1, Guard::Open));
    participant.durable(1);
    participant.take_replies();
    ask(&mut participant, prepare(7, Guard::Open));
    participant.refuse_new(Some(Refusal::LogFull));
    // At once, though what was recorded before is not durable, and may never be.
    assert_eq!(ask(&mut participant, prepare(2, Guard::Open)), [Reply::Refused { why: Refusal::LogFull }]);
    ask(&mut participant, Request::Commit { timestamp: at(1) });
    assert_eq!(participant.store().latest(&key(b'a')), at(1));
    // Who asks again about what is prepared is told, when it is durable.
    assert_eq!(ask(&mut participant, prepare(7, Guard::Open)), []);
    participant.durable(3);
    assert_eq!(participant.take_replies().last().map(|(_, reply)| reply.clone()), Some(Reply::Prepared));
}

#[test]
fn a_request_for_locks_that_is_given_up_is_answered() {
    let mut participant = participant();
    let lock = |time| Request::Lock { owner: at(time), wanted: vec![(key(b'a'), Mode::Exclusive)] };
    assert!(matches!(ask(&mut participant, lock(1))[..], [Reply::Locked { .. }]));
    assert_eq!(ask(&mut participant, lock(2)), [], "it waits");
    let found = ask(&mut participant, Request::Unlock { owner: at(2) });
    assert_eq!(
        found,
        [Reply::Unlocked { held: false }, Reply::Unlocked { held: false }],
        "for both requests"
    );
    assert_eq!(ask(&mut participant, Request::Unlock { owner: at(1) }), [Reply::Unlocked { held: true }]);
}

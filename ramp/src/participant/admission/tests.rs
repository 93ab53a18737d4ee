//! Tests when a participant prepares a part: its timestamp must be newer than all versions of its
//! keys, its conditions must hold, and its client's clock must not be ahead of the participant's
//! host.

use crate::{
    item::{Key, Metadata, Value},
    limits::{CLOCK_SKEW_MS_MAX, TIME_MAX, TIME_STEP_MAX},
    log::{LogWriter, Tail, read, recover},
    message::{Guard, Part, ParticipantId, Preconditions, Refusal, Reply, Request},
    participant::{Participant, Peer},
    slot::SlotVector,
    store::{Store, StoreOptions},
    timestamp::{ClientId, Timestamp},
};

const OPTIONS: StoreOptions = StoreOptions { budget_bytes: 1 << 20, life: 3 };
const NOON_MS: u64 = 1_764_072_000_000;
const YEAR_MS: u64 = 31_556_952_000;

/// A participant whose log is durable at once, and what its disk has.
struct Bench {
    participant: Participant<SlotVector>,
    disk: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let store = Store::new(OPTIONS, SlotVector::zeroed(4096));
        Self {
            participant: Participant::new(store, LogWriter::after(Tail::START)).on_host("east"),
            disk: Vec::new(),
        }
    }

    fn ask(&mut self, request: Request) -> Reply {
        self.participant.request(Peer(1), request);
        if let Some(batch) = self.participant.log_mut().take_batch() {
            self.disk.extend(&batch.bytes);
            self.participant.durable(batch.sequence);
        }
        let mut replies = self.participant.take_replies();
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0).1
    }

    fn refusal(&mut self, request: Request) -> Refusal {
        match self.ask(request) {
            Reply::Refused { why } => why,
            other => panic!("a refusal was expected, not {other:?}"),
        }
    }

    /// After a crash.
    fn again(&self) -> Self {
        let (records, tail, _) = read(Tail::START, &self.disk);
        let store = recover(OPTIONS, SlotVector::zeroed(4096), records).unwrap();
        Self { participant: Participant::new(store, LogWriter::after(tail)), disk: self.disk.clone() }
    }
}

fn at(time: u64) -> Timestamp {
    Timestamp { time, client: ClientId(1) }
}

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

/// How parts come: to one participant of two, to the only one, with locks or without a vote.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    OfTwo,
    Whole,
    Put,
}

const KINDS: [Kind; 3] = [Kind::OfTwo, Kind::Whole, Kind::Put];

fn write_on(kind: Kind, time: u64, names: &[&str], preconditions: Preconditions) -> Request {
    let items = names.iter().map(|name| (key(name), Value::new(b"value").unwrap())).collect();
    let participants = match kind {
        Kind::OfTwo => vec![ParticipantId(0), ParticipantId(1)],
        Kind::Whole => vec![ParticipantId(0)],
        Kind::Put => vec![],
    };
    let part =
        Part { timestamp: at(time), participants, guard: Guard::Open, metadata: Metadata::Timestamp, items };
    match kind {
        Kind::Put => Request::Put { part, preconditions },
        _ => Request::Prepare { part, settled: Vec::new(), preconditions },
    }
}

fn write(kind: Kind, time: u64, names: &[&str]) -> Request {
    write_on(kind, time, names, Preconditions::default())
}

fn voted(kind: Kind) -> Reply {
    if kind == Kind::OfTwo { Reply::Prepared } else { Reply::Committed }
}

#[test]
fn what_is_not_newer_than_every_version_of_its_keys_is_refused_with_the_newest_of_them() {
    for before in KINDS {
        for kind in KINDS {
            let mut bench = Bench::new();
            assert_eq!(bench.ask(write(before, 20, &["a", "b"])), voted(before));
            assert_eq!(bench.ask(write(before, 30, &["b"])), voted(before));
            for time in [10, 21, 29] {
                let why = bench.refusal(write(kind, time, &["a", "b", "c"]));
                let outdated = Refusal::Outdated { timestamp: at(time), key: key("b"), newest: at(30) };
                assert_eq!(why, outdated, "{before:?} {kind:?}");
                assert_eq!(why.newest(), Some(at(30)));
            }
            assert_eq!(
                bench.participant.store().latest(&key("c")),
                Timestamp::FIRST,
                "nothing of it was done"
            );
            assert_eq!(bench.ask(write(kind, 25, &["a", "c"])), voted(kind), "b has another one");
            assert_eq!(bench.ask(write(kind, 31, &["a", "b", "c"])), voted(kind));
        }
    }
}

#[test]
fn an_aborted_version_is_in_nobodys_way_and_a_prepared_one_is_also_after_a_crash() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(write(Kind::OfTwo, 20, &["a"])), Reply::Prepared);
    let mut again = bench.again();
    for bench in [&mut bench, &mut again] {
        let why = bench.refusal(write(Kind::Whole, 10, &["a"]));
        assert_eq!(why, Refusal::Outdated { timestamp: at(10), key: key("a"), newest: at(20) });
        assert_eq!(bench.ask(Request::Abort { timestamp: at(20) }), Reply::Aborted);
        assert_eq!(bench.ask(write(Kind::Whole, 11, &["a"])), Reply::Committed);
    }
}

#[test]
fn a_log_in_which_an_older_version_was_written_later_is_read_as_before() {
    let part = |time| Part {
        timestamp: at(time),
        participants: vec![ParticipantId(0)],
        guard: Guard::Open,
        metadata: Metadata::Timestamp,
        items: vec![(key("a"), Value::DELETED)],
    };
    let records = [20, 10].map(|time| crate::log::Record::Prepare(part(time)));
    let store = recover(OPTIONS, SlotVector::zeroed(4096), records).unwrap();
    assert_eq!(store.latest(&key("a")), at(20));
}

#[test]
fn a_client_whose_clock_is_ahead_is_refused_with_both_clocks_and_one_that_is_behind_is_not() {
    for kind in KINDS {
        let mut bench = Bench::new();
        bench.participant.set_wall_ms(NOON_MS);
        let from = |wall_ms, time| {
            write_on(kind, time, &["a"], Preconditions { wall_ms, ..Preconditions::default() })
        };
        let mut time = 0;
        for ms in [0, NOON_MS - 10 * YEAR_MS, NOON_MS, NOON_MS + CLOCK_SKEW_MS_MAX] {
            time += 1;
            assert_eq!(bench.ask(from(ms, time)), voted(kind), "{ms}");
        }
        for client_ms in [NOON_MS + CLOCK_SKEW_MS_MAX + 1, NOON_MS + 10 * YEAR_MS, u64::MAX] {
            let why = bench.refusal(from(client_ms, 50));
            let host = "east".to_owned();
            assert_eq!(why, Refusal::ClockAhead { client_ms, host, host_ms: NOON_MS });
            assert_eq!(why.newest(), None, "another timestamp does not help");
        }
        let text = bench.refusal(from(NOON_MS + 3_600_000, 50)).to_string();
        for part in ["2025-11-25 13:00:00 UTC", "3600 s ahead", "east", "2025-11-25 12:00:00 UTC", "60 s"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        bench.participant.set_wall_ms(NOON_MS + 3_600_000);
        assert_eq!(bench.ask(from(NOON_MS + 3_600_000, 50)), voted(kind), "ours was set");
    }
}

#[test]
fn what_was_written_by_a_clock_that_was_ahead_is_overwritten_by_a_right_one_also_beside_other_keys() {
    let mut bench = Bench::new();
    bench.participant.set_wall_ms(NOON_MS);
    let ahead = (NOON_MS + 10 * YEAR_MS) << 16;
    let right = || Preconditions { wall_ms: NOON_MS, ..Preconditions::default() };
    // Here the timestamp was never seen: it is what the client has heard elsewhere.
    assert_eq!(bench.ask(write_on(Kind::OfTwo, ahead + 1, &["a", "b"], right())), Reply::Prepared);
    assert_eq!(bench.ask(Request::Commit { timestamp: at(ahead + 1) }), Reply::Committed);
    let why = bench.refusal(write_on(Kind::Whole, NOON_MS << 16, &["a"], right()));
    assert_eq!(why.newest(), Some(at(ahead + 1)));
    assert_eq!(bench.ask(write_on(Kind::Whole, ahead + 2, &["a"], right())), Reply::Committed);
}

#[test]
fn no_client_takes_the_last_timestamps_and_a_key_beyond_the_horizon_can_still_be_written() {
    let mut bench = Bench::new();
    for time in [u64::MAX, TIME_MAX + 1] {
        let why = bench.refusal(write(Kind::Whole, time, &["a"]));
        assert_eq!(why, Refusal::BeyondHorizon { timestamp: at(time), limit: TIME_MAX });
    }
    assert_eq!(bench.ask(write(Kind::Whole, TIME_MAX, &["a"])), Reply::Committed);
    let limit = TIME_MAX + TIME_STEP_MAX;
    let why = bench.refusal(write(Kind::Whole, limit + 1, &["a"]));
    assert_eq!(why, Refusal::BeyondHorizon { timestamp: at(limit + 1), limit });
    assert_eq!(bench.ask(write(Kind::Whole, TIME_MAX + 1, &["a"])), Reply::Committed);
}

#[test]
fn a_write_on_a_condition_is_prepared_if_the_newest_version_is_the_expected_one() {
    let on = |expected: &[(u32, u64)]| Preconditions {
        expected: expected.iter().map(|(item, time)| (*item, at(*time))).collect(),
        wall_ms: 0,
    };
    let nothing = |item| Preconditions { expected: vec![(item, Timestamp::FIRST)], wall_ms: 0 };
    let conflict =
        |name, expected, found, committed| Refusal::Conflict { key: key(name), expected, found, committed };
    for kind in KINDS {
        let is_committed = kind != Kind::OfTwo;
        let mut bench = Bench::new();
        assert_eq!(bench.ask(write_on(kind, 10, &["a", "b"], nothing(1))), voted(kind));
        let why = bench.refusal(write_on(kind, 20, &["b"], nothing(0)));
        assert_eq!(why, conflict("b", Timestamp::FIRST, at(10), is_committed));
        let why = bench.refusal(write_on(kind, 20, &["c"], on(&[(0, 10)])));
        assert_eq!(why, conflict("c", at(10), Timestamp::FIRST, true), "there is none");
        assert_eq!(bench.ask(write_on(kind, 20, &["a", "b"], on(&[(1, 10)]))), voted(kind));
        for expected in [10, 15, 30] {
            let why = bench.refusal(write_on(kind, 30, &["a", "b"], on(&[(0, 20), (1, expected)])));
            assert_eq!(why, conflict("b", at(expected), at(20), is_committed));
        }
        let why = bench.refusal(write_on(kind, 5, &["a"], on(&[(0, 10)])));
        assert_eq!(why, conflict("a", at(10), at(20), is_committed), "a newer timestamp would not help");
        let why = bench.refusal(write_on(kind, 5, &["a"], on(&[(0, 20)])));
        assert_eq!(why.newest(), Some(at(20)), "here it would");
        assert_eq!(bench.ask(write_on(kind, 30, &["a", "b"], on(&[(0, 20), (1, 20)]))), voted(kind));
    }
}

#[test]
fn of_two_writes_on_one_condition_the_second_is_refused_also_after_a_crash_until_the_first_is_aborted() {
    let on = || Preconditions { expected: vec![(0, at(10))], wall_ms: 0 };
    let mut bench = Bench::new();
    bench.ask(write(Kind::Whole, 10, &["a"]));
    assert_eq!(bench.ask(write_on(Kind::OfTwo, 20, &["a"], on())), Reply::Prepared);
    let mut again = bench.again();
    for bench in [&mut bench, &mut again] {
        let why = bench.refusal(write_on(Kind::OfTwo, 30, &["a"], on()));
        let (key, expected, found) = (key("a"), at(10), at(20));
        assert_eq!(why, Refusal::Conflict { key, expected, found, committed: false });
        assert_eq!(bench.ask(Request::Abort { timestamp: at(20) }), Reply::Aborted);
        assert_eq!(bench.ask(write_on(Kind::OfTwo, 31, &["a"], on())), Reply::Prepared);
    }
}

#[test]
fn conditions_on_no_item_of_the_part_are_refused() {
    let mut bench = Bench::new();
    for expected in
        [vec![(1, at(1))], vec![(u32::MAX, at(1))], vec![(0, Timestamp::FIRST), (0, Timestamp::FIRST)]]
    {
        let item = expected.last().unwrap().0;
        let preconditions = Preconditions { expected, wall_ms: 0 };
        let why = bench.refusal(write_on(Kind::Whole, 10, &["a"], preconditions));
        assert_eq!(why, Refusal::NoSuchItem { item, items: 1 });
    }
}

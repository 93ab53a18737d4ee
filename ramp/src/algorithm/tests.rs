//! Tests the messages and outcomes of each algorithm. Each test passes events to one coordinator
//! directly.

use super::{
    Abortion, Algorithm, Begun, Cluster, Coordinator, Event, Interruption, Message, Outcome, Step,
    begin_listing,
};
use crate::{
    item::{Key, Metadata, Value, Version, Write as Item},
    message::{
        Epoch, Found, KeyRange, LeaseId, Mode, ParticipantId, Preconditions, Refusal, Reply, Request, Vote,
    },
    timestamp::{ClientId, Timestamp},
};
use std::collections::BTreeMap;

/// The key `a1` is at participant 1.
struct Letters;

impl Cluster for Letters {
    fn participant(&self, key: &Key) -> ParticipantId {
        ParticipantId(u16::from(key.bytes()[1] - b'0'))
    }

    fn lease(&self, participant: ParticipantId) -> LeaseId {
        LeaseId { life: 1, number: u64::from(participant.0) }
    }
}

fn at(time: u64) -> Timestamp {
    Timestamp { time, client: ClientId(1) }
}

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| key(name)).collect()
}

fn version(algorithm: Algorithm, time: u64, names: &[&str]) -> Version {
    Version { timestamp: at(time), metadata: algorithm.metadata(&keys(names)), value: Value::DELETED }
}

fn found(name: &str, version: Version, beside: Vec<Version>) -> Reply {
    Reply::Found { items: vec![(key(name), Found { version, beside, place: None })], epoch: Epoch(0) }
}

fn reply(coordinator: &mut Coordinator, from: u16, reply: Reply) -> Step {
    coordinator.step(Event::Reply { from: ParticipantId(from), reply })
}

fn timestamps(step: &Step) -> Vec<(String, u64)> {
    let Some(Outcome::Read { items, .. }) = &step.outcome else { panic!("{step:?}") };
    items.iter().map(|(key, version)| (key.to_string(), version.timestamp.time)).collect()
}

fn pairs(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(name, time)| (format!("'{name}'"), *time)).collect()
}

fn read(algorithm: Algorithm, names: &[&str]) -> (Coordinator, Vec<Message>) {
    algorithm.begin_read(at(100), &keys(names), &Letters).unwrap()
}

fn write(algorithm: Algorithm, names: &[&str]) -> (Coordinator, Vec<Message>) {
    let items = names.iter().map(|name| (key(name), Value::DELETED).into()).collect();
    algorithm.begin_write(begun(5, &[at(3)]), items, &Letters).unwrap()
}

fn begun(time: u64, settled: &[Timestamp]) -> Begun<'_> {
    Begun { timestamp: at(time), wall_ms: 77, settled }
}

fn to(messages: &[Message]) -> Vec<u16> {
    messages.iter().map(|message| message.to.0).collect()
}

fn all_to(messages: &[Message], participants: &[u16], request: &Request) {
    assert_eq!(to(messages), participants);
    assert!(messages.iter().all(|message| message.request == *request), "{messages:?}");
}

const COMMIT: fn() -> Request = || Request::Commit { timestamp: at(5) };
const ABORT: fn() -> Request = || Request::Abort { timestamp: at(5) };

#[test]
fn an_algorithm_is_chosen_by_its_name() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    let error = "mvcc".parse::<Algorithm>().unwrap_err().to_string();
    let expected =
        "the algorithm 'mvcc' does not exist, expected one of ramp-fast, ramp-small, ramp-hybrid, s2pl, none";
    assert_eq!(error, expected);
}

#[test]
fn a_read_that_meets_nobody_takes_one_round() {
    for algorithm in [Algorithm::Fast, Algorithm::Hybrid, Algorithm::None] {
        let (mut coordinator, messages) = read(algorithm, &["a1", "b2"]);
        assert_eq!(to(&messages), [1, 2]);
        let both = || version(algorithm, 5, &["a1", "b2"]);
        assert_eq!(reply(&mut coordinator, 1, found("a1", both(), vec![])), Step::default());
        let end = reply(&mut coordinator, 2, found("b2", both(), vec![]));
        assert_eq!(timestamps(&end), pairs(&[("a1", 5), ("b2", 5)]));
        assert!(matches!(end.outcome, Some(Outcome::Read { rounds: 1, .. })));
        assert_eq!(coordinator.step(Event::GiveUp), Step::default(), "it has ended");
    }
}

#[test]
fn what_a_sibling_tells_of_is_asked_for_in_a_second_round() {
    for algorithm in [Algorithm::Fast, Algorithm::Hybrid] {
        let (mut coordinator, _) = read(algorithm, &["a1", "b2"]);
        let _ = reply(&mut coordinator, 1, found("a1", version(algorithm, 5, &["a1", "b2"]), vec![]));
        let step = reply(&mut coordinator, 2, found("b2", version(algorithm, 3, &["b2"]), vec![]));
        let lease = LeaseId { life: 1, number: 2 };
        all_to(&step.messages, &[2], &Request::Among { lease, keys: keys(&["b2"]), timestamps: vec![at(5)] });
        let named = vec![(key("b2"), Some(version(algorithm, 5, &["a1", "b2"])))];
        let end = reply(&mut coordinator, 2, Reply::Named { items: named });
        assert_eq!(timestamps(&end), pairs(&[("a1", 5), ("b2", 5)]));
        assert!(matches!(end.outcome, Some(Outcome::Read { rounds: 2, .. })));
    }
}

#[test]
fn what_lies_beside_what_was_found_needs_no_second_round() {
    let fast = Algorithm::Fast;
    let (mut coordinator, _) = read(fast, &["a1", "b2"]);
    let both = || version(fast, 5, &["a1", "b2"]);
    let _ = reply(&mut coordinator, 1, found("a1", both(), vec![]));
    let beside = vec![version(fast, 4, &["b2", "c3"]), both(), version(fast, 6, &["b2", "c3"])];
    let end = reply(&mut coordinator, 2, found("b2", version(fast, 3, &["b2"]), beside));
    assert_eq!(timestamps(&end), pairs(&[("a1", 5), ("b2", 5)]), "not the prepared 6, which nobody has met");
    assert!(matches!(end.outcome, Some(Outcome::Read { rounds: 1, .. })));
}

#[test]
fn a_filter_that_tells_of_what_was_not_written_does_no_harm() {
    let hybrid = Algorithm::Hybrid;
    let (mut coordinator, _) = read(hybrid, &["a1", "b2"]);
    // The filter of a transaction that wrote b2, too; but the participant knows of no such version.
    let _ = reply(&mut coordinator, 1, found("a1", version(hybrid, 5, &["a1", "b2"]), vec![]));
    let step = reply(&mut coordinator, 2, found("b2", version(hybrid, 3, &["b2"]), vec![]));
    assert_eq!(to(&step.messages), [2]);
    let end = reply(&mut coordinator, 2, Reply::Named { items: vec![(key("b2"), None)] });
    assert_eq!(timestamps(&end), pairs(&[("a1", 5), ("b2", 3)]));
}

#[test]
fn slots_may_answer_key_by_key() {
    let fast = Algorithm::Fast;
    let (mut coordinator, _) = read(fast, &["a1", "b1"]);
    let one = || version(fast, 5, &["a1"]);
    assert_eq!(reply(&mut coordinator, 1, found("b1", one(), vec![])), Step::default());
    assert_eq!(reply(&mut coordinator, 1, found("b1", one(), vec![])), Step::default(), "said twice");
    assert!(reply(&mut coordinator, 1, found("a1", one(), vec![])).outcome.is_some());
}

#[test]
fn small_asks_for_the_newest_of_all_timestamps() {
    let (mut coordinator, messages) = read(Algorithm::Small, &["a1", "b2", "c2"]);
    assert_eq!(to(&messages), [1, 2]);
    let _ = reply(&mut coordinator, 1, Reply::Latest { timestamps: vec![(key("a1"), at(5))] });
    let second = vec![(key("b2"), at(3)), (key("c2"), Timestamp::FIRST)];
    let step = reply(&mut coordinator, 2, Reply::Latest { timestamps: second });
    let Request::Among { timestamps: asked, .. } = &step.messages[1].request else { panic!("{step:?}") };
    assert_eq!((to(&step.messages), asked), (vec![1, 2], &vec![at(3), at(5)]));
    let item = |name, time| (key(name), Some(version(Algorithm::Small, time, &["a1"])));
    let _ = reply(&mut coordinator, 1, Reply::Named { items: vec![item("a1", 5)] });
    let end = reply(&mut coordinator, 2, Reply::Named { items: vec![item("b2", 5), (key("c2"), None)] });
    assert_eq!(timestamps(&end), pairs(&[("a1", 5), ("b2", 5), ("c2", 0)]));
    let (mut coordinator, _) = read(Algorithm::Small, &["a1"]);
    let end = reply(&mut coordinator, 1, Reply::Latest { timestamps: vec![(key("a1"), Timestamp::FIRST)] });
    assert!(matches!(end.outcome, Some(Outcome::Read { rounds: 1, .. })));
}

#[test]
fn a_read_whose_participant_is_lost_or_new_says_so() {
    for algorithm in [Algorithm::Fast, Algorithm::Small] {
        let end = |event| read(algorithm, &["a1", "b2"]).0.step(event).outcome;
        let why = |why| Some(Outcome::Interrupted { why });
        assert_eq!(
            end(Event::Lost { participant: ParticipantId(2) }),
            why(Interruption::Lost { participant: ParticipantId(2) })
        );
        assert_eq!(
            end(Event::Lost { participant: ParticipantId(3) }),
            None,
            "a participant that it does not need"
        );
        let unleased = Event::Reply { from: ParticipantId(1), reply: Reply::Unleased };
        assert_eq!(end(unleased), why(Interruption::Unleased { participant: ParticipantId(1) }));
        assert_eq!(end(Event::GiveUp), why(Interruption::GivenUp));
    }
    let (mut coordinator, _) = read(Algorithm::Fast, &["a1", "b2"]);
    let _ = reply(&mut coordinator, 1, found("a1", version(Algorithm::Fast, 5, &["a1"]), vec![]));
    assert_eq!(
        coordinator.step(Event::Lost { participant: ParticipantId(1) }),
        Step::default(),
        "it has answered"
    );
}

#[test]
fn commit_goes_out_after_all_have_prepared() {
    for algorithm in [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid] {
        let (mut coordinator, messages) = write(algorithm, &["a1", "b2", "c2"]);
        assert_eq!(to(&messages), [1, 2]);
        let Request::Prepare { part, settled, preconditions } = &messages[1].request else {
            panic!("{messages:?}")
        };
        assert_eq!((part.participants.len(), part.items.len(), &settled[..]), (2, 2, &[at(3)][..]));
        assert_eq!(*preconditions, Preconditions { wall_ms: 77, expected: vec![] });
        assert_eq!(reply(&mut coordinator, 2, Reply::Prepared), Step::default());
        assert_eq!(reply(&mut coordinator, 2, Reply::Prepared), Step::default(), "said twice");
        let step = reply(&mut coordinator, 1, Reply::Prepared);
        all_to(&step.messages, &[1, 2], &COMMIT());
        assert_eq!(reply(&mut coordinator, 1, Reply::Committed), Step::default());
        let end = reply(&mut coordinator, 2, Reply::Committed);
        assert_eq!(end.outcome, Some(Outcome::Committed { timestamp: at(5) }));
    }
}

#[test]
fn metadata_is_what_the_algorithm_needs() {
    let of = |algorithm: Algorithm, names: &[&str]| algorithm.metadata(&keys(names));
    assert!(
        matches!(of(Algorithm::Fast, &["a1", "b2"]), Metadata::WriteSet(set) if set.len() == 2 && set.is_sorted())
    );
    assert!(matches!(of(Algorithm::Hybrid, &["a1", "b2"]), Metadata::Filter(_)));
    assert_eq!(of(Algorithm::Small, &["a1", "b2"]), Metadata::Timestamp);
    assert_eq!(of(Algorithm::Fast, &["a1"]), Metadata::Timestamp, "no siblings");
}

#[test]
fn conditions_go_to_the_participants_of_their_keys_by_the_positions_of_the_items() {
    for algorithm in [Algorithm::Fast, Algorithm::None] {
        let item = |name, expected: Option<u64>| Item {
            expected: expected.map(at),
            ..(key(name), Value::DELETED).into()
        };
        let items = vec![item("c1", Some(3)), item("b2", None), item("a1", None), item("d1", Some(0))];
        let (_, messages) = algorithm.begin_write(begun(5, &[]), items, &Letters).unwrap();
        let conditions = messages.into_iter().map(|message| match message.request {
            Request::Prepare { preconditions, .. } | Request::Put { preconditions, .. } => {
                preconditions.expected
            }
            other => panic!("{other:?}"),
        });
        let conditions: Vec<_> = conditions.collect();
        assert_eq!(conditions, [vec![(1, at(3)), (2, at(0))], vec![]]);
    }
}

#[test]
fn one_refusal_aborts() {
    let (mut coordinator, _) = write(Algorithm::Fast, &["a1", "b2"]);
    let _ = reply(&mut coordinator, 1, Reply::Prepared);
    let why = Refusal::LogFull;
    let end = reply(&mut coordinator, 2, Reply::Refused { why: why.clone() });
    all_to(&end.messages, &[1], &ABORT());
    let why = Abortion::Refused { participant: ParticipantId(2), why };
    assert_eq!(end.outcome, Some(Outcome::Aborted { timestamp: at(5), why }));
}

#[test]
fn a_lost_participant_is_asked_when_it_is_back() {
    let lost = Event::Lost { participant: ParticipantId(2) };
    let back = || Event::Back { participant: ParticipantId(2) };
    let prepared = || {
        let (mut coordinator, _) = write(Algorithm::Fast, &["a1", "b2"]);
        let _ = reply(&mut coordinator, 1, Reply::Prepared);
        coordinator
    };
    let mut coordinator = prepared();
    assert_eq!(coordinator.step(lost.clone()), Step::default(), "it may have prepared");
    all_to(&coordinator.step(back()).messages, &[2], &Request::Inquire { timestamp: at(5) });
    let step = reply(&mut coordinator, 2, Reply::Voted { vote: Vote::Prepared });
    all_to(&step.messages, &[1, 2], &COMMIT());
    let _ = reply(&mut coordinator, 1, Reply::Committed);
    let _ = coordinator.step(lost);
    all_to(&coordinator.step(back()).messages, &[2], &COMMIT());
    let in_part = Outcome::CommittedInPart { timestamp: at(5), missing: vec![ParticipantId(2)] };
    assert_eq!(coordinator.step(Event::GiveUp).outcome, Some(in_part));

    let mut coordinator = prepared();
    let end = reply(&mut coordinator, 2, Reply::Voted { vote: Vote::Refused });
    all_to(&end.messages, &[1], &ABORT());
    let mut coordinator = prepared();
    let step = reply(&mut coordinator, 2, Reply::Voted { vote: Vote::Committed });
    all_to(&step.messages, &[1, 2], &COMMIT());
    let unknown = Outcome::Unknown { timestamp: at(5), missing: vec![ParticipantId(2)] };
    let forgotten = Reply::Voted { vote: Vote::Forgotten };
    assert_eq!(
        reply(&mut prepared(), 2, forgotten).outcome,
        Some(unknown.clone()),
        "others may have ended it long ago"
    );
    assert_eq!(prepared().step(Event::GiveUp).outcome, Some(unknown));
}

#[test]
fn locks_are_taken_participant_by_participant() {
    let (mut coordinator, messages) = write(Algorithm::Locking, &["b2", "a1", "c1"]);
    let lock = |names: &[&str], mode| Request::Lock {
        owner: at(5),
        wanted: names.iter().map(|name| (key(name), mode)).collect(),
    };
    all_to(&messages, &[1], &lock(&["a1", "c1"], Mode::Exclusive));
    let step = reply(&mut coordinator, 1, Reply::Locked { items: vec![] });
    all_to(&step.messages, &[2], &lock(&["b2"], Mode::Exclusive));
    let step = reply(&mut coordinator, 2, Reply::Locked { items: vec![] });
    assert!(matches!(step.messages[0].request, Request::Prepare { .. }));
    let _ = reply(&mut coordinator, 1, Reply::Prepared);
    let step = reply(&mut coordinator, 2, Reply::Prepared);
    all_to(&step.messages, &[1, 2], &COMMIT());
    let (mut coordinator, _) = write(Algorithm::Locking, &["b2", "a1"]);
    let _ = reply(&mut coordinator, 1, Reply::Locked { items: vec![] });
    let end = reply(&mut coordinator, 2, Reply::Busy { found: 9, most: 8 });
    all_to(&end.messages, &[1, 2], &Request::Unlock { owner: at(5) });
    let why = Abortion::NotLocked(Interruption::Busy { participant: ParticipantId(2), found: 9, most: 8 });
    assert_eq!(end.outcome, Some(Outcome::Aborted { timestamp: at(5), why }));
}

#[test]
fn a_read_under_locks_counts_if_they_were_held_to_the_end() {
    let locked = |name| {
        let found = Found { version: version(Algorithm::Locking, 3, &[name]), beside: vec![], place: None };
        Reply::Locked { items: vec![(key(name), found)] }
    };
    let all_locked = || {
        let (mut coordinator, _) = read(Algorithm::Locking, &["a1", "b2"]);
        let _ = reply(&mut coordinator, 1, locked("a1"));
        let step = reply(&mut coordinator, 2, locked("b2"));
        all_to(&step.messages, &[1, 2], &Request::Unlock { owner: at(100) });
        coordinator
    };
    let mut coordinator = all_locked();
    assert_eq!(reply(&mut coordinator, 2, Reply::Unlocked { held: true }), Step::default());
    let end = reply(&mut coordinator, 1, Reply::Unlocked { held: true });
    assert_eq!(timestamps(&end), pairs(&[("a1", 3), ("b2", 3)]));
    let end = reply(&mut all_locked(), 1, Reply::Unlocked { held: false });
    assert_eq!(
        end.outcome,
        Some(Outcome::Interrupted { why: Interruption::Unlocked { participant: ParticipantId(1) } })
    );
    let (mut coordinator, _) = read(Algorithm::Locking, &["a1"]);
    let end = reply(&mut coordinator, 1, locked("a1"));
    assert_eq!(
        (to(&end.messages), timestamps(&end)),
        (vec![1], pairs(&[("a1", 3)])),
        "one participant says it all at once"
    );
}

#[test]
fn a_put_that_some_have_refused_is_torn_and_says_why() {
    let (mut coordinator, messages) = write(Algorithm::None, &["a1", "b2"]);
    assert!(matches!(&messages[0].request, Request::Put { part, .. } if part.participants.is_empty()));
    let _ = reply(&mut coordinator, 1, Reply::Committed);
    let end = reply(&mut coordinator, 2, Reply::Refused { why: Refusal::LogFull });
    let why = |participant, why| Abortion::Refused { participant: ParticipantId(participant), why };
    let torn = |missing: &[u16], why| Outcome::Torn {
        timestamp: at(5),
        missing: missing.iter().copied().map(ParticipantId).collect(),
        why,
    };
    assert_eq!(end.outcome, Some(torn(&[2], why(2, Refusal::LogFull))));
    let outdated = |name, newest| Refusal::Outdated { timestamp: at(5), key: key(name), newest: at(newest) };
    let with = |third: Refusal| {
        let (mut coordinator, _) = write(Algorithm::None, &["a1", "b2", "c3", "d4"]);
        let _ = reply(&mut coordinator, 1, Reply::Committed);
        let _ = reply(&mut coordinator, 2, Reply::Refused { why: outdated("b2", 9) });
        let _ = reply(&mut coordinator, 3, Reply::Refused { why: third });
        reply(&mut coordinator, 4, Reply::Refused { why: outdated("d4", 7) }).outcome
    };
    assert_eq!(with(outdated("c3", 8)), Some(torn(&[2, 3, 4], why(2, outdated("b2", 9)))), "the newest");
    assert_eq!(
        with(Refusal::LogFull),
        Some(torn(&[2, 3, 4], why(3, Refusal::LogFull))),
        "a newer timestamp does not help there"
    );
    let (mut coordinator, _) = write(Algorithm::None, &["a1"]);
    let end = reply(&mut coordinator, 1, Reply::Refused { why: Refusal::LogFull });
    assert!(matches!(end.outcome, Some(Outcome::Aborted { .. })));
}

#[test]
fn a_transaction_of_too_many_keys_or_none_is_refused() {
    let many: Vec<Key> = (0..4097).map(|at| key(&format!("k1{at}"))).collect();
    let error = Algorithm::Fast.begin_read(at(1), &many, &Letters).unwrap_err().to_string();
    assert_eq!(
        error,
        "a transaction would read 4097 keys, expected 1 to 4096: divide the transaction, or omit it if it has no keys"
    );
    let items = many.into_iter().map(|key| (key, Value::DELETED).into()).collect();
    assert!(Algorithm::Fast.begin_write(begun(1, &[]), items, &Letters).is_err());
    assert!(Algorithm::Fast.begin_write(begun(1, &[]), vec![], &Letters).is_err());
}

#[test]
fn a_listing_ends_where_a_participant_may_have_more_and_leaves_out_what_is_deleted() {
    let value = || Version { value: Value::new(b"v").unwrap(), ..version(Algorithm::Fast, 1, &["a1"]) };
    let deleted = || version(Algorithm::Fast, 1, &["a1"]);
    let item = |name: &str, version, beside| (key(name), Found { version, beside, place: None });
    let list = |most, first: Reply, second: Reply| {
        let listing = KeyRange { prefix: b"a".to_vec(), most, ..KeyRange::default() };
        let participants = BTreeMap::from(
            [1, 2].map(|participant| (ParticipantId(participant), Letters.lease(ParticipantId(participant)))),
        );
        let (mut coordinator, messages) = begin_listing(&listing, &participants);
        assert_eq!(messages.len(), 2);
        assert_eq!(reply(&mut coordinator, 1, first), Step::default());
        let step = reply(&mut coordinator, 2, second);
        let Some(Outcome::Listed { keys, goes_on }) = step.outcome else { panic!("{step:?}") };
        (keys, goes_on)
    };
    let first = |more| {
        let items =
            vec![item("a1", value(), vec![]), item("d1", deleted(), vec![]), item("e1", value(), vec![])];
        Reply::Scanned { items, more }
    };
    let second = |more| {
        let items = vec![item("b2", deleted(), vec![value()]), item("f2", value(), vec![])];
        Reply::Scanned { items, more }
    };
    assert_eq!(list(9, first(false), second(false)), (keys(&["a1", "b2", "e1", "f2"]), None));
    assert_eq!(list(9, first(true), second(false)), (keys(&["a1", "b2", "e1"]), Some(key("e1"))));
    assert_eq!(list(9, first(true), second(true)), (keys(&["a1", "b2", "e1"]), Some(key("e1"))));
    assert_eq!(list(2, first(false), second(false)), (keys(&["a1", "b2"]), Some(key("b2"))));
    assert_eq!(list(3, first(true), second(false)), (keys(&["a1", "b2", "e1"]), Some(key("e1"))));
    assert_eq!(list(4, first(false), second(false)), (keys(&["a1", "b2", "e1", "f2"]), None));
}

#[test]
fn a_listing_is_interrupted_where_a_participant_is_lost_or_knows_no_lease() {
    let begin = || {
        let listing = KeyRange { most: 1, ..KeyRange::default() };
        let participants = BTreeMap::from([(ParticipantId(1), Letters.lease(ParticipantId(1)))]);
        begin_listing(&listing, &participants).0
    };
    let step = reply(&mut begin(), 1, Reply::Unleased);
    let why = Interruption::Unleased { participant: ParticipantId(1) };
    assert_eq!(step.outcome, Some(Outcome::Interrupted { why }));
    let step = begin().step(Event::Lost { participant: ParticipantId(1) });
    assert_eq!(
        step.outcome,
        Some(Outcome::Interrupted { why: Interruption::Lost { participant: ParticipantId(1) } })
    );
}

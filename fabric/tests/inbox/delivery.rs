//! Promises about which messages arrive in an inbox, from which sender and in which order.

use std::time::Instant;

use rackscan_fabric::{
    Access, Done, Event, Operation, Region, RemoteRegion, Report,
    inbox::{ArrivalKind, AssignError, Inbox, InboxConfig, Ring, WhenFull},
    limits::{MESSAGE_BYTES_MAX, VERBS_SLOT_BYTES_MAX},
};

use crate::stage::{
    Attendant, Audience, Dice, TestWire, accept, call, listen, meet, play, small, soon, stage,
};

/// Runs several senders at once, until everything that they send has arrived. Between arrivals
/// `direct` may act on the inbox.
fn many_senders(
    wire: TestWire,
    config: InboxConfig,
    messages: u64,
    mut direct: impl FnMut(&mut Inbox, &mut Dice, &Audience),
) {
    const SENDERS: u64 = 6;
    let (mut inbox, mut listener) = stage(wire, config);
    let mut audience = Audience::new(config.packet_bytes);
    let mut accepted = Vec::new();
    let mut players = Vec::new();
    for script in 0..SENDERS {
        let (mut caller, theirs, sender) = meet(&mut listener);
        audience.expect(sender, script);
        accepted.push(Attendant::new(theirs));
        players.push(std::thread::spawn(move || {
            play(&mut caller, script, 0..messages, config.packet_bytes);
            caller
        }));
    }
    let (mut bytes, mut dice) = (Vec::new(), Dice(17));
    while audience.total() < SENDERS * messages {
        audience.hear(&mut inbox, &mut bytes);
        direct(&mut inbox, &mut dice, &audience);
    }
    for player in players {
        drop(player.join().expect("a player"));
    }
    assert_eq!(inbox.counters().messages, SENDERS * messages);
    let memory = inbox.memory();
    assert!(memory.assembly_bytes <= memory.assembly_bytes_max);
}

pub(crate) fn messages_of_many_senders_in_one_ring_are_neither_lost_nor_mixed(wire: TestWire) {
    for when_full in [WhenFull::Stall, WhenFull::Refuse] {
        let config = InboxConfig { private_rings: 0, shared_rings: 1, when_full, ..small() };
        many_senders(wire, config, 400, |_, _, _| {});
    }
}

pub(crate) fn a_senders_order_survives_its_moves_between_rings(wire: TestWire) {
    let config = InboxConfig { private_rings: 3, shared_rings: 2, ..small() };
    let mut moves = 0;
    many_senders(wire, config, 400, |inbox, dice, _| {
        if dice.roll(3) > 0 {
            return;
        }
        let traffic = inbox.traffic();
        let chosen = traffic[dice.roll(traffic.len())];
        let moved = match chosen.ring {
            Ring::Private(_) => inbox.make_shared(chosen.sender),
            Ring::Shared(_) => inbox.make_private(chosen.sender),
        };
        match &moved {
            Ok(ring) => assert_eq!(inbox.ring_of(chosen.sender), Some(*ring)),
            Err(error) => assert_eq!(*error, AssignError::NoneFree { private_rings: 3 }),
        }
        moves += u64::from(moved.is_ok());
        assert_eq!(inbox.counters().moves, moves);
    });
    assert!(moves > 100, "{moves} moves");
}

/// A megabyte in each direction: to us through the inbox, and from us over the plain connection, at
/// the same time.
pub(crate) fn the_longest_messages_pass_with_and_without_an_inbox(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, InboxConfig::default());
    let (mut caller, mut accepted, sender) = meet(&mut listener);
    let make = |seed: usize| -> Vec<u8> {
        (0..MESSAGE_BYTES_MAX).map(|at| (at * 31 + seed + at / 4096).to_string().as_bytes()[0]).collect()
    };
    let region = Region::allocate(2 * MESSAGE_BYTES_MAX).expect("allocate");
    let (up, down) = (make(1), make(2));
    region.copy_in(0, &up).expect("copy in");
    region.copy_in(MESSAGE_BYTES_MAX, &down).expect("copy in");
    for report in [Report::PerMessage, Report::PerPacket] {
        let part = |at| region.slice(at, MESSAGE_BYTES_MAX).expect("a slice");
        caller.post(1, Operation::SendRegion { source: part(0), report }).expect("post");
        accepted.post(2, Operation::SendRegion { source: part(MESSAGE_BYTES_MAX), report }).expect("post");
        let (mut from_inbox, mut bytes) = (Vec::new(), Vec::new());
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        let deadline = soon();
        while from_inbox.len() < MESSAGE_BYTES_MAX || theirs.len() < 2 || ours.is_empty() {
            if let Some(arrival) = inbox.next(&mut bytes) {
                assert_eq!(arrival.sender, sender);
                assert_eq!(arrival.kind == ArrivalKind::Message, report == Report::PerMessage);
                from_inbox.extend_from_slice(&bytes);
            }
            caller.poll(&mut theirs);
            accepted.poll(&mut ours);
            assert!(
                Instant::now() < deadline,
                "{} bytes, {} and {} events",
                from_inbox.len(),
                theirs.len(),
                ours.len()
            );
        }
        let moved =
            |id| Event::Completed { id, outcome: Ok(Done::Moved { bytes: MESSAGE_BYTES_MAX as u64 }) };
        assert!(from_inbox == up, "through the inbox");
        assert!(theirs.contains(&Event::Message { bytes: down.clone() }), "over the plain connection");
        assert!(theirs.contains(&moved(1)) && ours == [moved(2)]);
    }
    let traffic = inbox.traffic()[0];
    // The slots of adapters are shorter.
    let packet_bytes = InboxConfig::default().packet_bytes;
    let packet_bytes = if wire.fills_rings() { packet_bytes } else { packet_bytes.min(VERBS_SLOT_BYTES_MAX) };
    let cut = (MESSAGE_BYTES_MAX / packet_bytes) as u64;
    // Over tcp the one that is reported whole was not cut.
    let packets = if wire == TestWire::Tcp { cut + 1 } else { 2 * cut };
    assert_eq!((traffic.messages, traffic.packets), (2, packets));
    assert_eq!(traffic.bytes, 2 * MESSAGE_BYTES_MAX as u64);
}

pub(crate) fn immediates_and_messages_keep_their_order(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, small());
    let (mut caller, mut accepted, sender) = meet(&mut listener);
    let region = Region::allocate(4096).expect("allocate");
    let remote = accepted.register(&region, Access::Write).expect("register");
    let _attended = Attendant::new(accepted);
    let writer = std::thread::spawn(move || {
        let source = Region::allocate(4096).expect("allocate");
        for round in 0..200_u32 {
            source.store_u64(0, u64::from(round)).expect("store");
            let write = Operation::WriteWithImmediate {
                source: source.slice(0, 8).expect("a slice"),
                target: remote,
                target_offset: u64::from(round) * 8,
                immediate: round,
            };
            caller.post(0, write).expect("post");
            caller.post(0, Operation::Send { bytes: &round.to_le_bytes() }).expect("post");
            let mut events = Vec::new();
            while caller.in_flight() > 0 {
                assert!(caller.wait(&mut events, soon()) > 0);
            }
            assert!(events.iter().all(|event| matches!(event, Event::Completed { outcome: Ok(_), .. })));
        }
        caller
    });
    let mut bytes = Vec::new();
    for round in 0..200_u32 {
        let first = inbox.wait(&mut bytes, soon()).expect("an immediate");
        assert_eq!(first.kind, ArrivalKind::Immediate { immediate: round, bytes: 8 });
        assert_eq!((first.sender, first.message), (sender, u64::from(round)));
        let place = usize::try_from(round * 8).expect("small");
        assert_eq!(region.load_u64(place).expect("load"), u64::from(round), "told before it was written");
        let second = inbox.wait(&mut bytes, soon()).expect("a message");
        assert_eq!((second.kind, second.message), (ArrivalKind::Message, u64::from(round)));
        assert_eq!(bytes, round.to_le_bytes());
    }
    drop(writer.join().expect("the writer"));
}

pub(crate) fn callers_are_distributed_to_the_inboxes_in_turn(wire: TestWire) {
    let mut inboxes: Vec<_> = (0..3).map(|_| Inbox::new(small()).expect("an inbox")).collect();
    let mut listener = listen(wire, &inboxes.iter().collect::<Vec<_>>());
    for round in 0..9_usize {
        let mut caller = call(&listener).expect("connect");
        let accepted = accept(&mut listener);
        let (which, sender) = accepted.inbox().expect("a place");
        assert_eq!(which, round % 3);
        assert_eq!(caller.inbox(), None, "the sender knows nothing");
        caller.post(0, Operation::Send { bytes: b"here" }).expect("post");
        let mut bytes = Vec::new();
        let arrival = inboxes[which].wait(&mut bytes, soon()).expect("a message");
        assert_eq!(
            (arrival.sender, arrival.kind, bytes.as_slice()),
            (sender, ArrivalKind::Message, &b"here"[..])
        );
        drop((caller, accepted));
        assert_eq!(inboxes[which].wait(&mut bytes, soon()).expect("it leaves").kind, ArrivalKind::Left);
    }
}

pub(crate) fn a_caller_goes_where_the_fewest_are(wire: TestWire) {
    let mut inboxes: Vec<_> = (0..3).map(|_| Inbox::new(small()).expect("an inbox")).collect();
    let mut listener = listen(wire, &inboxes.iter().collect::<Vec<_>>());
    let mut meet = || {
        let caller = call(&listener).expect("connect");
        let accepted = accept(&mut listener);
        let (which, _) = accepted.inbox().expect("a place");
        (which, caller, accepted)
    };
    let mut here: Vec<_> = (0..3).map(|_| Some(meet())).collect();
    // If callers only took turns, the next ones would go to the first inbox.
    for leaving in [2, 1, 2] {
        drop(here[leaving].take());
        let mut bytes = Vec::new();
        assert_eq!(inboxes[leaving].wait(&mut bytes, soon()).expect("it leaves").kind, ArrivalKind::Left);
        here[leaving] = Some(meet());
        assert_eq!(here[leaving].as_ref().map(|(which, ..)| *which), Some(leaving));
    }
}

pub(crate) fn a_connection_through_an_inbox_is_otherwise_like_any_other(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, small());
    let (mut caller, mut accepted, _) = meet(&mut listener);
    // The caller sends the name of its memory through the inbox; we read and write the memory.
    let theirs = Region::allocate(8192).expect("allocate");
    theirs.copy_in(0, b"read me").expect("copy in");
    let remote = caller.register(&theirs, Access::ReadWrite).expect("register");
    caller.post(0, Operation::Send { bytes: &remote.to_bytes() }).expect("post");
    let mut bytes = Vec::new();
    inbox.wait(&mut bytes, soon()).expect("a name");
    let remote = RemoteRegion::from_bytes(bytes.as_slice().try_into().expect("a name"));
    let ours = Region::allocate(4096).expect("allocate");
    let target = ours.slice(0, 7).expect("a slice");
    accepted.post(1, Operation::Read { source: remote, source_offset: 0, target }).expect("post");
    let mut events = Vec::new();
    assert!(accepted.wait(&mut events, soon()) > 0, "the read completes");
    let source = ours.slice(0, 4).expect("a slice");
    accepted.post(2, Operation::Write { source, target: remote, target_offset: 4096 }).expect("post");
    accepted.post(3, Operation::FetchAdd { target: remote, target_offset: 8184, add: 5 }).expect("post");
    let answer = ours.slice(0, 4096).expect("a slice");
    accepted.post(4, Operation::SendRegion { source: answer, report: Report::PerPacket }).expect("post");
    while accepted.in_flight() > 0 {
        assert!(accepted.wait(&mut events, soon()) > 0, "{events:?}");
    }
    let outcome = |id, done| Event::Completed { id, outcome: Ok(done) };
    assert_eq!(
        events,
        [
            outcome(1, Done::Moved { bytes: 7 }),
            outcome(2, Done::Moved { bytes: 4 }),
            outcome(3, Done::Found { value: 0 }),
            outcome(4, Done::Moved { bytes: 4096 }),
        ]
    );
    assert_eq!(theirs.to_vec(4096, 4).expect("copy out"), b"read");
    assert_eq!(theirs.load_u64(8184).expect("load"), 5);
    let mut events = Vec::new();
    while !events.iter().any(|event| matches!(event, Event::Message { .. })) {
        assert!(caller.wait(&mut events, soon()) > 0);
    }
    let answer = Event::Message { bytes: ours.to_vec(0, 4096).expect("copy out") };
    assert!(events.contains(&answer), "an answer of the receiver");
}

pub(crate) fn rings_are_assigned_while_there_are_any(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, small());
    let people: Vec<_> = (0..3).map(|_| meet(&mut listener)).collect();
    let name = |at: usize| people[at].2;
    for at in 0..3 {
        assert_eq!(inbox.ring_of(name(at)), Some(Ring::Shared(0)));
        assert_eq!(inbox.make_shared(name(at)), Ok(Ring::Shared(0)), "it shares already");
    }
    assert_eq!(inbox.make_private(name(0)), Ok(Ring::Private(0)));
    assert_eq!(inbox.make_private(name(0)), Ok(Ring::Private(0)), "it keeps its ring");
    assert_eq!(inbox.make_private(name(2)), Ok(Ring::Private(1)));
    assert_eq!(inbox.make_private(name(1)), Err(AssignError::NoneFree { private_rings: 2 }));
    assert_eq!(inbox.make_shared(name(0)), Ok(Ring::Shared(0)));
    assert_eq!(inbox.make_private(name(1)), Ok(Ring::Private(0)));
    let rings: Vec<_> = inbox.traffic().iter().map(|sender| (sender.sender, sender.ring)).collect();
    assert_eq!(rings, [(name(0), Ring::Shared(0)), (name(1), Ring::Private(0)), (name(2), Ring::Private(1))]);
    let gone = name(2);
    drop(people);
    let mut bytes = Vec::new();
    for _ in 0..3 {
        assert_eq!(inbox.wait(&mut bytes, soon()).expect("they leave").kind, ArrivalKind::Left);
    }
    assert_eq!(inbox.make_private(gone), Err(AssignError::NoSuchSender(gone)));
    assert_eq!((inbox.ring_of(gone), inbox.traffic()), (None, vec![]));
}

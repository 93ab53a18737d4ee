//! Promises about full rings, and about the maximum number of senders.

use std::time::{Duration, Instant};

use rackscan_fabric::{
    ConnectError, Event, Operation, OperationError,
    inbox::{ArrivalKind, Inbox, InboxConfig, InboxError, WhenFull},
    limits::{INBOX_GRANULE_BYTES, MESSAGE_BYTES_MAX},
};

use crate::stage::{Attendant, Audience, TestWire, call, meet, play, small, soon, stage, try_post};

pub(crate) fn a_full_inbox_stalls_its_senders_and_goes_on(wire: TestWire) {
    for length in [8, 700, 9000, 20_000] {
        let (mut inbox, mut listener) = stage(wire, InboxConfig { private_rings: 0, ..small() });
        let (mut caller, accepted, _) = meet(&mut listener);
        let _attended = Attendant::new(accepted);
        let (mut posted, mut events) = (0_u64, Vec::new());
        // Nobody takes arrivals, so at some point nothing completes any more.
        let mut last_progress = Instant::now();
        while last_progress.elapsed() < Duration::from_millis(200) {
            let mut message = posted.to_le_bytes().to_vec();
            message.resize(length, 1);
            if try_post(&mut caller, &message) {
                posted += 1;
            }
            if caller.poll(&mut events) > 0 {
                last_progress = Instant::now();
            }
        }
        let waiting = caller.in_flight();
        assert!(waiting > 0, "{posted} messages of {length} bytes went into a small inbox");
        assert!(inbox.counters().stalls > 0 || !wire.fills_rings());
        let mut bytes = Vec::new();
        for number in 0..posted {
            let deadline = soon();
            let arrival = loop {
                let arrival = inbox.wait(&mut bytes, Instant::now() + Duration::from_millis(2));
                // On shm the sender's own thread moves its bytes, and on verbs it learns that there
                // is room.
                caller.poll(&mut events);
                assert!(arrival.is_some() || Instant::now() < deadline, "message {number} is stuck");
                if let Some(arrival) = arrival {
                    break arrival;
                }
            };
            assert_eq!((arrival.message, arrival.kind), (number, ArrivalKind::Message));
            assert_eq!((&bytes[..8], bytes.len()), (&number.to_le_bytes()[..], length));
        }
        while caller.in_flight() > 0 {
            assert!(caller.wait(&mut events, soon()) > 0, "{} still wait", caller.in_flight());
        }
        assert!(events.iter().all(|event| matches!(event, Event::Completed { outcome: Ok(_), .. })));
        assert_eq!(events.len() as u64, posted);
        assert!(inbox.counters().stalls > 0);
    }
}

pub(crate) fn a_stalled_sender_that_gets_a_ring_of_its_own_goes_on_at_once(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, small());
    let (mut full, _first, _) = meet(&mut listener);
    let (mut caller, _second, sender) = meet(&mut listener);
    // The shared ring is full, and nobody takes packets from it.
    let mut events = Vec::new();
    let mut last_progress = Instant::now();
    while last_progress.elapsed() < Duration::from_millis(100) {
        try_post(&mut full, &[1; 2000]);
        if full.poll(&mut events) > 0 {
            last_progress = Instant::now();
        }
    }
    let sleeper = std::thread::spawn(move || {
        let mut events = Vec::new();
        caller.post(7, Operation::Send { bytes: &[2; 2000] }).expect("post");
        assert!(caller.wait(&mut events, soon()) > 0, "it sleeps for ever");
        assert!(matches!(events[0], Event::Completed { id: 7, outcome: Ok(_) }), "{events:?}");
        caller
    });
    let deadline = soon();
    // Both have stalled, and have had the time to fall asleep.
    while inbox.counters().stalls < 2 {
        assert!(Instant::now() < deadline, "{:?}", inbox.counters());
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(!sleeper.is_finished());
    inbox.make_private(sender).expect("a free ring");
    while !sleeper.is_finished() {
        assert!(Instant::now() < deadline, "the move woke nobody");
        std::thread::sleep(Duration::from_millis(1));
    }
    let slept = sleeper.join().expect("the sleeper").counters().sleeps;
    assert!((1..10).contains(&slept), "it slept {slept} times");
}

pub(crate) fn a_full_inbox_refuses_all_of_a_message_and_takes_it_later(wire: TestWire) {
    let config = InboxConfig { private_rings: 0, when_full: WhenFull::Refuse, ..small() };
    for length in [8_usize, 700, 9000, 20_000] {
        let (mut inbox, mut listener) = stage(wire, config);
        let (mut caller, accepted, _) = meet(&mut listener);
        let _attended = Attendant::new(accepted);
        let mut number = 0_u64;
        let mut send = |number: u64| {
            let mut message = number.to_le_bytes().to_vec();
            message.resize(length, 2);
            caller.post(number, Operation::Send { bytes: &message }).expect("post");
            let mut events = Vec::new();
            // A message that has begun to arrive stalls; then this one waits for the receiver.
            caller.wait(&mut events, Instant::now() + Duration::from_millis(200));
            events.pop()
        };
        let refusal = loop {
            match send(number) {
                Some(Event::Completed { outcome: Ok(_), .. }) => number += 1,
                other => break other,
            }
            assert!(number < 100_000);
        };
        let mut bytes = Vec::new();
        if length <= 4096 {
            let outcome = Err(OperationError::InboxFull { bytes: length as u64 });
            assert_eq!(refusal, Some(Event::Completed { id: number, outcome }));
            assert!(inbox.counters().refusals > 0 || !wire.fills_rings());
            for expected in 0..number {
                let arrival = inbox.wait(&mut bytes, soon()).expect("what was not refused");
                assert_eq!((arrival.message, &bytes[..8]), (expected, &expected.to_le_bytes()[..]));
            }
            assert_eq!(inbox.next(&mut bytes), None, "nothing of the refused message");
            // The same message again.
            let (mut sent, deadline) = (send(number), soon());
            while !wire.fills_rings() && matches!(sent, Some(Event::Completed { outcome: Err(_), .. })) {
                // The notice that there is room is on its way.
                assert!(Instant::now() < deadline, "{sent:?}");
                sent = send(number);
            }
            assert!(matches!(sent, Some(Event::Completed { outcome: Ok(_), .. })), "{sent:?}");
            let arrival = inbox.wait(&mut bytes, soon()).expect("the retried message");
            assert_eq!((arrival.message, &bytes[..8]), (number, &number.to_le_bytes()[..]));
            assert!(inbox.counters().refusals > 0);
        }
    }
}

pub(crate) fn the_memory_is_what_was_configured(wire: TestWire) {
    let config = InboxConfig { private_rings: 9, shared_rings: 1, senders_max: 64, ..small() };
    let (mut inbox, mut listener) = stage(wire, config);
    let empty = inbox.memory();
    assert_eq!((empty.ring_bytes, empty.ring_bytes_in_use), (10 * config.ring_bytes, 0));
    assert_eq!(empty.assembly_bytes_max, (64 + 3) * MESSAGE_BYTES_MAX);
    // For every granule an entry of one line and a claim, rounded up to a power of two.
    let granules = (10 * config.ring_bytes / INBOX_GRANULE_BYTES).next_power_of_two();
    assert!((granules * 72..granules * 72 + 128).contains(&empty.status_bytes), "{empty:?}");
    assert!(empty.table_bytes < 32 * 1024, "{empty:?}");
    assert_eq!(empty.assembly_bytes, 0);
    let adapter_bytes = if wire.fills_rings() { 0 } else { config.ring_bytes };
    assert_eq!((empty.adapter_bytes, empty.adapter_bytes_in_use), (adapter_bytes, 0));
    let mut audience = Audience::new(config.packet_bytes);
    let (mut caller, accepted, sender) = meet(&mut listener);
    let attended = Attendant::new(accepted);
    audience.expect(sender, 5);
    let player = std::thread::spawn(move || {
        play(&mut caller, 5, 0..300, 4096);
        caller
    });
    let mut bytes = Vec::new();
    while audience.heard(sender) < 300 {
        audience.hear(&mut inbox, &mut bytes);
        let memory = inbox.memory();
        assert!(memory.ring_bytes_in_use <= config.ring_bytes, "{memory:?}");
        assert!(memory.adapter_bytes_in_use <= adapter_bytes, "{memory:?}");
        assert!(memory.assembly_bytes <= 2 * MESSAGE_BYTES_MAX, "one message and a spare: {memory:?}");
    }
    drop((player.join().expect("the player"), attended));
    assert_eq!(audience.hear(&mut inbox, &mut bytes).kind, ArrivalKind::Left);
    assert_eq!(inbox.next(&mut bytes), None);
    let after = inbox.memory();
    assert_eq!((after.ring_bytes_in_use, after.ring_bytes), (0, empty.ring_bytes));
    assert_eq!((after.adapter_bytes_in_use, after.adapter_bytes), (0, adapter_bytes));
}

pub(crate) fn a_caller_beyond_the_limit_is_turned_away_until_a_sender_leaves(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, InboxConfig { senders_max: 2, ..small() });
    let first = meet(&mut listener);
    let _second = meet(&mut listener);
    let caller = call(&listener);
    let refusal = listener.accept_until(soon());
    assert!(
        matches!(&refusal, Err(ConnectError::NoSeat { reason, .. }) if reason.contains("2 senders")),
        "{refusal:?}"
    );
    drop(caller);
    let name = first.2;
    drop(first);
    let mut bytes = Vec::new();
    let left = inbox.wait(&mut bytes, soon()).expect("somebody leaves");
    assert_eq!((left.sender, left.kind), (name, ArrivalKind::Left));
    // Its index is free as soon as its process can no longer touch the memory.
    let deadline = soon();
    let third = loop {
        assert!(Instant::now() < deadline, "the place does not become free");
        assert_eq!(inbox.wait(&mut bytes, Instant::now() + Duration::from_millis(1)), None);
        let caller = call(&listener);
        if let Ok(Some(accepted)) = listener.accept_until(soon()) {
            break (caller.expect("connect"), accepted);
        }
    };
    let (_, again) = third.1.inbox().expect("a place");
    assert_ne!(again, name, "a name is never given twice");
}

#[test]
fn a_wire_without_inboxes_says_so() {
    use rackscan_fabric::{
        ListenError, Listener,
        sim::{Seed, SimConfig, SimNet},
    };
    let network = SimNet::new(Seed::new(1), SimConfig::default());
    let inbox = Inbox::new(small()).expect("an inbox");
    let refusal =
        Listener::bind_inboxes(&network.address("node"), &crate::stage::key(), vec![inbox.handle()]);
    assert!(matches!(refusal, Err(ListenError::Inbox { .. })), "{refusal:?}");
}

#[test]
fn sizes_that_do_not_go_together_are_refused() {
    let bad = [
        InboxConfig { ring_bytes: 3000, ..small() },
        InboxConfig { ring_bytes: 16 << 20, ..small() },
        InboxConfig { private_rings: 0, shared_rings: 0, ..small() },
        InboxConfig { private_rings: 1024, ..small() },
        InboxConfig { senders_max: 0, ..small() },
        InboxConfig { senders_max: 4097, ..small() },
        InboxConfig { packet_bytes: 511, ..small() },
        InboxConfig { packet_bytes: 16 * 1024 + 1, ..small() },
    ];
    for config in bad {
        let refusal = Inbox::new(config);
        assert!(matches!(refusal, Err(InboxError::Config { .. })), "{config:?}: {refusal:?}");
    }
    assert!(Inbox::new(InboxConfig { packet_bytes: 16 * 1024, ..small() }).is_ok());
}

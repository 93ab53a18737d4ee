//! Promises about senders that leave: on purpose, dropped by their receiver, or by `kill -9`.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Connection, Ending, Event, Listener, Operation, PostError, Region, Report, connect,
    inbox::{ArrivalKind, Inbox, InboxConfig, SenderId},
    limits::SEND_BYTES_MAX,
};

use crate::stage::{
    Attendant, Audience, Dice, PATIENCE, TestWire, accept, call, key, meet, play, seen_by_caller, small,
    soon, stage,
};

const SENDER_ADDRESS: &str = "RACKSCAN_INBOX_SENDER";
const SENDER_SCRIPT: &str = "RACKSCAN_INBOX_SCRIPT";

pub(crate) fn a_sender_that_closes_leaves_after_everything_it_sent(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, InboxConfig { senders_max: 3, ..small() });
    let mut audience = Audience::new(4096);
    let mut bytes = Vec::new();
    let mut names: Vec<SenderId> = Vec::new();
    // More rounds than indices, so that they are used again.
    for round in 0..10 {
        let (mut caller, mut accepted, sender) = meet(&mut listener);
        assert!(!names.contains(&sender));
        names.push(sender);
        audience.expect(sender, round);
        let player = std::thread::spawn(move || {
            play(&mut caller, round, 0..50, 4096);
            caller.close();
        });
        let mut events = Vec::new();
        while !audience.has_left(sender) {
            if let Some(arrival) = inbox.wait(&mut bytes, Instant::now() + Duration::from_millis(5)) {
                audience.check(arrival, &bytes);
            }
            accepted.poll(&mut events);
        }
        player.join().expect("the player");
        assert_eq!(audience.heard(sender), 50);
        // The connection may say so a little earlier or later.
        accepted.wait(&mut events, soon());
        assert_eq!(events, [Event::Closed(Ending::Orderly)]);
        assert_eq!(inbox.ring_of(sender), None);
    }
    assert_eq!(inbox.next(&mut bytes), None);
}

pub(crate) fn a_message_longer_than_may_be_put_together_ends_its_sender_and_nobody_else(wire: TestWire) {
    let config = InboxConfig { message_bytes_max: SEND_BYTES_MAX, ..small() };
    let (mut inbox, mut listener) = stage(wire, config);
    let (mut honest, kept, honest_name) = meet(&mut listener);
    let _attended = Attendant::new(kept);
    let (mut greedy, mut accepted, greedy_name) = meet(&mut listener);
    let memory = Region::allocate(2 * SEND_BYTES_MAX).expect("allocate");
    let whole = |length| {
        let source = memory.slice(0, length).expect("slice");
        Operation::SendRegion { source, report: Report::PerMessage }
    };
    greedy.post(0, whole(SEND_BYTES_MAX)).expect("post");
    greedy.post(1, whole(SEND_BYTES_MAX + 1)).expect("post");
    let (mut bytes, mut events, mut arrivals) = (Vec::new(), Vec::new(), Vec::new());
    let deadline = soon();
    while !arrivals.contains(&(greedy_name, ArrivalKind::Left)) {
        assert!(Instant::now() < deadline, "{arrivals:?}");
        // On shm the sender's own thread moves what waits.
        greedy.poll(&mut events);
        accepted.poll(&mut events);
        let soon = Instant::now() + Duration::from_millis(1);
        arrivals.extend(inbox.wait(&mut bytes, soon).map(|arrival| (arrival.sender, arrival.kind)));
    }
    assert_eq!(arrivals, [(greedy_name, ArrivalKind::Message), (greedy_name, ArrivalKind::Left)]);
    // The connection may say so a little later.
    while accepted.ended().is_none() {
        assert!(accepted.wait(&mut events, soon()) > 0, "the connection goes on");
    }
    assert!(matches!(accepted.ended(), Some(Ending::Violation { .. })), "{:?}", accepted.ended());
    honest.post(0, whole(SEND_BYTES_MAX)).expect("post");
    let arrival = loop {
        assert!(Instant::now() < deadline, "the other sender is not heard");
        honest.poll(&mut events);
        if let Some(arrival) = inbox.next(&mut bytes) {
            break arrival;
        }
    };
    assert_eq!(
        (arrival.sender, arrival.kind, bytes.len()),
        (honest_name, ArrivalKind::Message, SEND_BYTES_MAX)
    );
}

pub(crate) fn a_connection_that_its_receiver_drops_leaves_too(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, InboxConfig { senders_max: 20, ..small() });
    let mut bytes = Vec::new();
    for round in 0..20_usize {
        let (mut caller, accepted, sender) = meet(&mut listener);
        let attended = Attendant::new(accepted);
        let sending = std::thread::spawn(move || {
            // Sends until it learns that the inbox is gone.
            let mut events = Vec::new();
            let deadline = soon();
            while caller.ended().is_none() {
                match caller.post(0, Operation::Send { bytes: &[7; 3000] }) {
                    Ok(()) | Err(PostError::QueueFull { .. } | PostError::Closed(_)) => {}
                    Err(other) => panic!("{other}"),
                }
                caller.poll(&mut events);
                assert!(Instant::now() < deadline, "the caller does not hear that it was hung up on");
            }
            assert!(matches!(caller.ended(), Some(Ending::Orderly | Ending::Lost { .. })));
        });
        for _ in 0..=round {
            let arrival = inbox.wait(&mut bytes, soon()).expect("a message");
            assert_eq!((arrival.sender, arrival.kind), (sender, ArrivalKind::Message));
        }
        drop(attended);
        loop {
            let arrival = inbox.wait(&mut bytes, soon()).expect("it leaves");
            assert_eq!(arrival.sender, sender);
            if arrival.kind == ArrivalKind::Left {
                break;
            }
        }
        // Nothing more arrives from it, though it may still be sending, and its space is given
        // back.
        assert_eq!(inbox.wait(&mut bytes, Instant::now() + Duration::from_millis(1)), None);
        sending.join().expect("the sender");
    }
    let deadline = soon();
    while inbox.memory().ring_bytes_in_use + inbox.memory().adapter_bytes_in_use > 0 {
        assert_eq!(inbox.wait(&mut bytes, Instant::now() + Duration::from_millis(1)), None);
        assert!(Instant::now() < deadline, "{:?}", inbox.memory());
    }
}

/// The program of the process that is killed while it sends its script. Everything is prepared
/// before, so that it does little else.
pub(crate) fn be_the_sender() {
    let Ok(address) = std::env::var(SENDER_ADDRESS) else { return };
    let script = std::env::var(SENDER_SCRIPT).expect("a script").parse().expect("a number");
    let mut connection = connect(&address.parse().expect("an address"), &key(), soon()).expect("connect");
    let prepared: Vec<_> =
        (0..400).map(|number| crate::stage::script(script, number, KILLED_PACKET)).collect();
    let region = Region::allocate(16 << 20).expect("allocate");
    let mut offset = 0;
    let mut messages = Vec::new();
    for (report, bytes) in prepared {
        region.copy_in(offset, &bytes).expect("a script of at most 16 MiB");
        let source = region.slice(offset, bytes.len()).expect("a slice");
        messages.push(Operation::SendRegion { source, report });
        offset += bytes.len();
    }
    // Once told to begin, it sends as fast as it can, and kills itself at a random time.
    let mut events = Vec::new();
    assert!(connection.wait(&mut events, soon()) > 0, "nobody says when to begin");
    let mut dice = Dice(script);
    let delay = Duration::from_micros(dice.roll(8000) as u64);
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        let ourselves = rustix::process::getpid();
        rustix::process::kill_process(ourselves, rustix::process::Signal::KILL).expect("kill -9");
    });
    for (id, message) in (0..).zip(&messages) {
        connection.post(id, message.clone()).expect("post");
        // Yields while it waits, so that the receiver runs and most of the time is spent on
        // writing.
        while connection.in_flight() > 0 {
            if connection.poll(&mut events) == 0 {
                std::thread::yield_now();
            }
            events.clear();
        }
    }
    std::thread::sleep(PATIENCE);
}

/// Long packets, so that processes are mostly killed while they write one.
const KILLED_PACKET: usize = 32 * 1024;

fn start(listener: &mut Listener, script: u64) -> (Child, Connection, SenderId) {
    let child = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", "sender_in_a_process_of_its_own", "--nocapture"])
        .env(SENDER_ADDRESS, seen_by_caller(listener).to_string())
        .env(SENDER_SCRIPT, script.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let accepted = accept(listener);
    let (_, sender) = accepted.inbox().expect("a place");
    (child, accepted, sender)
}

/// Takes arrivals while `children` are killed, and checks them afterwards, so that the children
/// mostly write and seldom wait.
fn hear_dying(inbox: &mut Inbox, audience: &mut Audience, children: &mut [(Child, SenderId)]) {
    let mut taken = Vec::new();
    let deadline = soon();
    while children.iter_mut().any(|(child, _)| child.try_wait().expect("wait").is_none()) {
        for _ in 0..100 {
            let mut bytes = Vec::new();
            taken.extend(inbox.next(&mut bytes).map(|arrival| (arrival, bytes)));
        }
        std::thread::yield_now();
        assert!(Instant::now() < deadline, "they do not die");
    }
    for (arrival, bytes) in taken {
        audience.check(arrival, &bytes);
    }
}

fn hear_until(
    inbox: &mut Inbox,
    audience: &mut Audience,
    accepted: &mut Vec<(Connection, SenderId)>,
    mut done: impl FnMut(&Audience) -> bool,
) {
    let (mut events, deadline) = (Vec::new(), soon());
    while !done(audience) {
        for _ in 0..50 {
            let mut bytes = Vec::new();
            let Some(arrival) = inbox.next(&mut bytes) else { break };
            audience.check(arrival, &bytes);
        }
        for (connection, _) in accepted.iter_mut() {
            connection.poll(&mut events);
        }
        assert!(Instant::now() < deadline, "stuck: {audience:?}");
    }
    accepted.retain(|(_, sender)| !audience.has_left(*sender));
}

pub(crate) fn a_killed_sender_wedges_nobody_and_its_space_comes_back(wire: TestWire) {
    let rounds = if wire == TestWire::Shm { 40 } else { 10 };
    // Few indices, so that those of dead senders are used again.
    let (ring_bytes, packet_bytes) = (4 * KILLED_PACKET, KILLED_PACKET);
    let config = InboxConfig { ring_bytes, packet_bytes, private_rings: 0, senders_max: 4, ..small() };
    let (mut inbox, mut listener) = stage(wire, config);
    let mut audience = Audience::new(KILLED_PACKET);
    let (mut living, theirs, survivor) = meet(&mut listener);
    audience.expect(survivor, 1000);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&stop);
    let player = std::thread::spawn(move || {
        let mut sent = 0;
        while !told.load(std::sync::atomic::Ordering::SeqCst) {
            play(&mut living, 1000, sent..sent + 10, KILLED_PACKET);
            sent += 10;
        }
        (living, sent)
    });
    let mut accepted = vec![(theirs, survivor)];
    for round in 0..rounds {
        let victims: Vec<_> = (0..2).map(|at| start(&mut listener, 2 * round + at)).collect();
        let mut children = Vec::new();
        for (at, (child, connection, sender)) in (0..).zip(victims) {
            audience.expect(sender, 2 * round + at);
            accepted.push((connection, sender));
            children.push((child, sender));
        }
        for (connection, _) in &mut accepted[1..] {
            connection.post(0, Operation::Send { bytes: b"begin" }).expect("post");
        }
        hear_dying(&mut inbox, &mut audience, &mut children);
        let before = audience.heard(survivor);
        hear_until(&mut inbox, &mut audience, &mut accepted, |audience| {
            children.iter().all(|(_, sender)| audience.has_left(*sender))
                && audience.heard(survivor) > before + 5
        });
        for (child, _) in &mut children {
            assert!(!child.wait().expect("wait").success(), "nobody killed it");
        }
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    hear_until(&mut inbox, &mut audience, &mut accepted, |_| player.is_finished());
    let (living, sent) = player.join().expect("the player");
    hear_until(&mut inbox, &mut audience, &mut accepted, |audience| audience.heard(survivor) == sent);
    assert_eq!(inbox.next(&mut Vec::new()), None);
    let memory = inbox.memory();
    assert_eq!((memory.ring_bytes_in_use, memory.adapter_bytes_in_use), (0, 0), "space of the dead");
    drop(living);
    hear_until(&mut inbox, &mut audience, &mut accepted, |audience| audience.has_left(survivor));
    assert_eq!(inbox.traffic(), [], "everybody has left");
}

pub(crate) fn an_inbox_that_is_dropped_ends_its_connections(wire: TestWire) {
    let (inbox, mut listener) = stage(wire, small());
    let (mut caller, mut accepted, _) = meet(&mut listener);
    drop(inbox);
    let mut events = Vec::new();
    assert!(accepted.wait(&mut events, soon()) > 0);
    assert!(
        matches!(events.as_slice(), [Event::Closed(Ending::Violation { reason })] if reason.contains("dropped")),
        "{events:?}"
    );
    drop(accepted);
    events.clear();
    assert!(caller.wait(&mut events, soon()) > 0);
    assert!(matches!(events.as_slice(), [Event::Closed(_)]), "{events:?}");
    let late = call(&listener);
    assert!(listener.accept_until(soon()).is_err(), "nobody can send to an inbox that is gone: {late:?}");
}

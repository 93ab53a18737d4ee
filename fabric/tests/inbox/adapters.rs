//! Promises about senders whose packets arrive through an RDMA adapter.

use std::time::{Duration, Instant};

use rackscan_fabric::{
    Access, Connection, Ending, Event, Operation, Region, RemoteRegion,
    inbox::{ArrivalKind, AssignError, Assignment, AssignmentConfig, Inbox, InboxConfig, Ring},
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::stage::{Attendant, Audience, TestWire, listen, meet, play, small, soon, stage};

pub(crate) fn all_senders_of_an_adapter_share_its_queue(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, small());
    let mut people: Vec<_> = (0..3).map(|_| meet(&mut listener)).collect();
    for (_, _, name) in &people {
        assert_eq!(inbox.ring_of(*name), Some(Ring::Shared(1)), "there is one shared ring besides");
        assert_eq!(inbox.make_private(*name), Err(AssignError::SharesAdapter(*name)));
        assert_eq!(inbox.make_shared(*name), Ok(Ring::Shared(1)), "it shares already");
    }
    let (caller, _, name) = &mut people[0];
    let mut bytes = Vec::new();
    for number in 0..3 {
        caller.post(number, Operation::Send { bytes: b"often" }).expect("post");
        assert_eq!(inbox.wait(&mut bytes, soon()).expect("a message").message, number);
    }
    let traffic = inbox.traffic();
    let sent: Vec<_> = traffic.iter().filter(|sender| sender.sender == *name).collect();
    assert_eq!((sent[0].messages, sent[0].bytes, sent[0].can_move), (3, 15, false));
    let mut assignment = Assignment::new(AssignmentConfig { messages_min: 1, ..AssignmentConfig::new(2) });
    assert_eq!(assignment.decide(&traffic), [], "nobody is asked to move who cannot");
    assert_eq!(inbox.counters().moves, 0);
}

pub(crate) fn one_inbox_hears_adapters_and_rings_in_turn(wire: TestWire) {
    let mut inbox = Inbox::new(small()).expect("an inbox");
    let mut names = Vec::new();
    let mut people: Vec<(Connection, Attendant)> = Vec::new();
    for wire in [wire, TestWire::Tcp, TestWire::Shm] {
        let mut listener = listen(wire, &[&inbox]);
        let (mut caller, accepted, name) = meet(&mut listener);
        // As many packets as one sender may have there.
        for number in 0..4 {
            caller.post(number, Operation::Send { bytes: &[1; 700] }).expect("post");
        }
        let mut events = Vec::new();
        while caller.in_flight() > 0 {
            assert!(caller.wait(&mut events, soon()) > 0);
        }
        names.push(name);
        people.push((caller, Attendant::new(accepted)));
    }
    // Everything has been sent; on tcp its arrival may take a short time.
    std::thread::sleep(Duration::from_millis(50));
    let mut heard = Vec::new();
    let mut bytes = Vec::new();
    while heard.len() < 12 {
        heard.push(inbox.wait(&mut bytes, soon()).expect("a message").sender);
    }
    for name in &names {
        assert_eq!(heard.iter().filter(|sender| *sender == name).count(), 4);
    }
    let by_adapter = heard[..8].iter().filter(|sender| **sender == names[0]).count();
    assert_eq!(by_adapter, 4, "every second one: {heard:?}");
    assert_ne!((heard[0] == names[0], heard[1] == names[0]), (true, true), "every second one: {heard:?}");
    // A sleeper is woken by either.
    for ((mut caller, attended), name) in people.into_iter().zip(names) {
        let (go, told) = std::sync::mpsc::channel();
        let sending = std::thread::spawn(move || {
            let mut events = Vec::new();
            while let Ok(number) = told.recv() {
                caller.post(number, Operation::Send { bytes: &[2; 700] }).expect("post");
                while caller.in_flight() > 0 {
                    assert!(caller.wait(&mut events, soon()) > 0);
                }
            }
            caller
        });
        for number in 0..50 {
            while !inbox.arm() {
                assert_eq!(inbox.next(&mut bytes), None);
            }
            go.send(number).expect("the sender");
            let mut fds = [PollFd::from_borrowed_fd(inbox.wait_fd(), PollFlags::IN)];
            let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(1), "message {number} wakes nobody");
            assert_eq!(inbox.wait(&mut bytes, soon()).expect("a message").sender, name);
        }
        drop(go);
        drop((sending.join().expect("the sender"), attended));
        let left = inbox.wait(&mut bytes, soon()).expect("it leaves");
        assert_eq!((left.sender, left.kind), (name, ArrivalKind::Left));
    }
}

pub(crate) fn what_had_arrived_is_heard_though_its_connection_is_gone(wire: TestWire) {
    for (ends_by_itself, script) in [(true, 3), (false, 4)] {
        let config = InboxConfig { ring_bytes: 256 * 1024, ..small() };
        let (mut inbox, mut listener) = stage(wire, config);
        let (mut caller, accepted, name) = meet(&mut listener);
        let mut audience = Audience::new(config.packet_bytes);
        audience.expect(name, script);
        // Nobody takes packets, so there must be room for all.
        play(&mut caller, script, 0..3, config.packet_bytes);
        if ends_by_itself {
            drop(caller);
        }
        drop(accepted);
        let mut bytes = Vec::new();
        while audience.hear(&mut inbox, &mut bytes).kind != ArrivalKind::Left {}
        assert_eq!(audience.heard(name), 3);
        assert_eq!(inbox.memory().adapter_bytes_in_use, 0);
    }
}

pub(crate) fn answers_go_on_while_their_room_comes_back_through_the_inbox(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, small());
    let (mut caller, mut accepted, _) = meet(&mut listener);
    let hearing = std::thread::spawn(move || {
        let mut events = Vec::new();
        while caller.counters().messages < 30 {
            assert!(caller.wait(&mut events, soon()) > 0, "{} answers", caller.counters().messages);
        }
        caller
    });
    let (mut bytes, mut events, deadline) = (Vec::new(), Vec::new(), soon());
    for number in 0..30 {
        accepted.post(number, Operation::Send { bytes: &[5; 40_000] }).expect("post");
    }
    while !hearing.is_finished() {
        assert_eq!(inbox.next(&mut bytes), None);
        accepted.poll(&mut events);
        assert!(Instant::now() < deadline, "{} of 30 were sent", events.len());
    }
    drop(hearing.join().expect("the hearer"));
}

pub(crate) fn a_peer_that_fails_takes_only_itself_away(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, small());
    let (mut failing, mut accepted, name) = meet(&mut listener);
    let (mut staying, other, other_name) = meet(&mut listener);
    let _attended = Attendant::new(other);
    let region = Region::allocate(4096).expect("allocate");
    let remote = accepted.register(&region, Access::Read).expect("register");
    let mut bytes = Vec::new();
    failing.post(1, Operation::Send { bytes: b"my last" }).expect("post");
    let unknown = RemoteRegion { key: remote.key ^ 0xFF, ..remote };
    failing
        .post(2, Operation::WriteBytes { bytes: b"12345678", target: unknown, target_offset: 0 })
        .expect("post");
    let (mut events, deadline) = (Vec::new(), soon());
    while accepted.ended().is_none() {
        failing.poll(&mut Vec::new());
        accepted.poll(&mut events);
        assert!(Instant::now() < deadline, "the peer's failure is not noticed");
    }
    assert!(matches!(events.last(), Some(Event::Closed(Ending::Failed { .. }))), "{events:?}");
    let last = inbox.wait(&mut bytes, soon()).expect("what was sent before");
    assert_eq!((last.sender, last.kind, bytes.as_slice()), (name, ArrivalKind::Message, &b"my last"[..]));
    let left = inbox.wait(&mut bytes, soon()).expect("it leaves");
    assert_eq!((left.sender, left.kind), (name, ArrivalKind::Left));
    staying.post(1, Operation::Send { bytes: b"still here" }).expect("post");
    let arrival = inbox.wait(&mut bytes, soon()).expect("a message");
    assert_eq!((arrival.sender, bytes.as_slice()), (other_name, &b"still here"[..]));
}

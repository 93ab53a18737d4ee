//! Promises about sleep: a sleeper is always woken, whatever the timing.

use std::time::{Duration, Instant};

use rackscan_fabric::{
    Operation,
    inbox::{ArrivalKind, InboxConfig},
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::stage::{Attendant, Dice, TestWire, meet, small, soon, stage, try_post};

pub(crate) fn no_wake_up_of_a_sleeping_receiver_is_lost(wire: TestWire) {
    const SENDERS: u64 = 3;
    const ROUNDS: u64 = 1500;
    let (mut inbox, mut listener) = stage(wire, small());
    let mut accepted = Vec::new();
    let mut senders = Vec::new();
    for number in 0..SENDERS {
        let (mut caller, theirs, _) = meet(&mut listener);
        accepted.push(Attendant::new(theirs));
        senders.push(std::thread::spawn(move || {
            let (mut dice, mut events) = (Dice(number), Vec::new());
            for round in 0..ROUNDS {
                // From "while it polls" to "when it has just fallen asleep".
                let pause = Instant::now() + Duration::from_micros(dice.roll(200) as u64);
                while Instant::now() < pause {
                    std::hint::spin_loop();
                }
                if dice.roll(32) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                caller.post(round, Operation::Send { bytes: &vec![1; dice.roll(2) * 600] }).expect("post");
                while caller.in_flight() > 0 {
                    assert!(caller.wait(&mut events, soon()) > 0, "a sender is stuck");
                }
            }
            caller
        }));
    }
    let mut bytes = Vec::new();
    for number in 0..SENDERS * ROUNDS {
        // A lost wake-up would take the whole time limit.
        let arrival = inbox.wait(&mut bytes, soon());
        assert!(arrival.is_some(), "nothing woke the receiver for message {number}");
    }
    let mut callers: Vec<_> = senders.into_iter().map(|sender| sender.join().expect("a sender")).collect();
    // On a busy machine it may have had no time to sleep so far.
    for round in 0..20 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(3));
                callers[0].post(round, Operation::Send { bytes: b"wake up" }).expect("post");
            });
            assert!(inbox.wait(&mut bytes, soon()).is_some(), "nothing woke the receiver in round {round}");
        });
    }
    assert!(inbox.counters().sleeps > 0, "it never slept, so this proves nothing");
}

pub(crate) fn no_wake_up_of_a_stalled_sender_is_lost(wire: TestWire) {
    // Where the receiver must announce room, every packet takes a round trip.
    let rounds: u64 = if wire.fills_rings() { 3000 } else { 500 };
    let config = InboxConfig { ring_bytes: 4096, packet_bytes: 2048, private_rings: 0, ..small() };
    let (mut inbox, mut listener) = stage(wire, config);
    let mut accepted = Vec::new();
    let mut senders = Vec::new();
    for number in 0..2_u64 {
        let (mut caller, theirs, _) = meet(&mut listener);
        accepted.push(Attendant::new(theirs));
        senders.push(std::thread::spawn(move || {
            let (mut dice, mut events) = (Dice(number), Vec::new());
            for _ in 0..rounds {
                let message = vec![7; 1000 + dice.roll(3000)];
                while !try_post(&mut caller, &message) {
                    assert!(caller.wait(&mut events, soon()) > 0, "a stalled sender sleeps for ever");
                }
                if dice.roll(4) == 0 {
                    while caller.in_flight() > 0 {
                        assert!(caller.wait(&mut events, soon()) > 0, "a stalled sender sleeps for ever");
                    }
                }
            }
            while caller.in_flight() > 0 {
                assert!(caller.wait(&mut events, soon()) > 0, "a stalled sender sleeps for ever");
            }
            caller
        }));
    }
    let (mut bytes, mut dice) = (Vec::new(), Dice(5));
    for number in 0..2 * rounds {
        if dice.roll(16) == 0 {
            std::thread::sleep(Duration::from_micros(dice.roll(150) as u64));
        }
        assert!(inbox.wait(&mut bytes, soon()).is_some(), "message {number}");
    }
    for sender in senders {
        drop(sender.join().expect("a sender"));
    }
    assert!(inbox.counters().stalls > 100, "{:?}", inbox.counters());
}

pub(crate) fn a_reactor_sleeps_on_an_inbox(wire: TestWire) {
    let (mut inbox, mut listener) = stage(wire, small());
    let (mut caller, accepted, sender) = meet(&mut listener);
    let attended = Attendant::new(accepted);
    let mut bytes = Vec::new();
    let sleep = |inbox: &rackscan_fabric::inbox::Inbox, ms: i64| {
        let mut fds = [PollFd::from_borrowed_fd(inbox.wait_fd(), PollFlags::IN)];
        let timeout = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
        rustix::event::poll(&mut fds, Some(&timeout)).expect("poll")
    };
    for round in 0..200_u64 {
        while !inbox.arm() {
            assert_eq!(inbox.next(&mut bytes), None, "round {round}");
        }
        caller.post(0, Operation::Send { bytes: &round.to_le_bytes() }).expect("post");
        let (deadline, mut events) = (soon(), Vec::new());
        while sleep(&inbox, 50) == 0 {
            // Where the receiver announces room, the sender continues when it learns of it.
            caller.poll(&mut events);
            assert!(Instant::now() < deadline, "nothing woke the reactor in round {round}");
        }
        let arrival = loop {
            assert!(Instant::now() < deadline);
            if let Some(arrival) = inbox.next(&mut bytes) {
                break arrival;
            }
        };
        assert_eq!((arrival.sender, arrival.message), (sender, round));
        while caller.in_flight() > 0 {
            caller.wait(&mut events, soon());
        }
    }
    while !inbox.arm() {
        assert_eq!(inbox.next(&mut bytes), None);
    }
    assert_eq!(sleep(&inbox, 20), 0, "with nothing to do it sleeps on");
    assert!(inbox.arm());
    // A sender that leaves wakes it, too.
    drop(caller);
    drop(attended);
    assert_eq!(sleep(&inbox, 10_000), 1);
    assert_eq!(inbox.wait(&mut bytes, soon()).expect("it leaves").kind, ArrivalKind::Left);
}

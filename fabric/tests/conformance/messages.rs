//! Promises about order, messages, full queues and wake-ups.

use std::time::{Duration, Instant};

use rackscan_fabric::{
    Access, BatchError, Connection, Done, Event, Operation, PostError, Region, Report,
    limits::{MESSAGE_BYTES_MAX, QUEUE_DEPTH_MAX, SEND_BYTES_MAX},
};

use crate::pair::{
    TestWire, events, events_of, hear, listen, meet, message, next_message, pair, pattern, soon, tell,
};

pub(crate) fn a_message_is_seen_after_the_bytes_written_before_it(wire: TestWire) {
    const BYTES: usize = 32 * 1024;
    let (mut ours, mut theirs) = pair(wire);
    let region = Region::allocate(BYTES).expect("allocate");
    let remote = theirs.register(&region, Access::Write).expect("register");
    tell(&mut theirs, &remote);
    let remote = hear(&mut ours);
    let writer = std::thread::spawn(move || {
        let local = Region::allocate(BYTES).expect("allocate");
        let mut stash = Vec::new();
        for round in 0..300_u64 {
            let byte = round.to_le_bytes()[0];
            local.copy_in(0, &[byte; BYTES]).expect("copy in");
            let write = Operation::Write { source: local.whole(), target: remote, target_offset: 0 };
            ours.post(0, write).expect("post");
            ours.post(1, Operation::Send { bytes: &[byte] }).expect("post");
            assert_eq!(next_message(&mut ours, &mut stash), b"next", "permission to overwrite");
        }
        ours
    });
    let mut stash = Vec::new();
    for round in 0..300_u64 {
        let told = next_message(&mut theirs, &mut stash);
        assert_eq!(told, [round.to_le_bytes()[0]]);
        assert!(region.to_vec(0, BYTES).expect("copy out") == vec![told[0]; BYTES], "round {round}");
        theirs.post(0, Operation::Send { bytes: b"next" }).expect("post");
    }
    drop(writer.join().expect("the writer"));
}

pub(crate) fn messages_of_every_length_arrive_in_order(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    let lengths = [0, 1, 15, 16, 17, 1000, 4096, 40_000, SEND_BYTES_MAX];
    let sender = std::thread::spawn(move || {
        for round in 0..20 {
            for length in lengths {
                ours.post(0, Operation::Send { bytes: &pattern(length, round) }).expect("post");
                let _ = events(&mut ours);
            }
        }
        ours
    });
    let mut received = Vec::new();
    while received.len() < 20 * lengths.len() {
        received.extend(events(&mut theirs));
    }
    for (at, event) in received.into_iter().enumerate() {
        let expected = pattern(lengths[at % lengths.len()], at / lengths.len());
        assert!(event == Event::Message { bytes: expected }, "message {at}");
    }
    drop(sender.join().expect("the sender"));
}

pub(crate) fn messages_out_of_registered_memory_arrive_in_order(wire: TestWire) {
    let mark = |seed: usize| u8::try_from(seed).expect("few lengths");
    let (mut ours, mut theirs) = pair(wire);
    // Lengths around every place where a message may be cut, at an odd offset; plain messages in
    // between keep their place.
    let lengths = [0, 1, 7, 16, 191, 193, 4096, 65_535, 65_536, 65_537, 131_072, 300_000, MESSAGE_BYTES_MAX];
    let sender = std::thread::spawn(move || {
        let local = Region::allocate(MESSAGE_BYTES_MAX + 4096).expect("allocate");
        for (seed, length) in lengths.into_iter().enumerate() {
            let report = if seed % 2 == 0 { Report::PerMessage } else { Report::PerPacket };
            let offset = 2 * seed + 1;
            local.copy_in(offset, &pattern(length, seed)).expect("copy in");
            let source = local.slice(offset, length).expect("slice");
            ours.post(1, Operation::SendRegion { source, report }).expect("post");
            ours.post(2, Operation::Send { bytes: &[mark(seed)] }).expect("post");
            let moved = |bytes| Ok(Done::Moved { bytes });
            let expected = [
                Event::Completed { id: 1, outcome: moved(length as u64) },
                Event::Completed { id: 2, outcome: moved(1) },
            ];
            assert_eq!(events_of(&mut ours, 2), expected, "{length} bytes");
        }
        ours
    });
    let mut stash = Vec::new();
    for (seed, length) in lengths.into_iter().enumerate() {
        assert!(next_message(&mut theirs, &mut stash) == pattern(length, seed), "{length} bytes");
        assert_eq!(next_message(&mut theirs, &mut stash), [mark(seed)]);
    }
    drop(sender.join().expect("the sender"));
}

pub(crate) fn a_batch_is_executed_in_order_and_reported_completely(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    let region = Region::allocate(8192).expect("allocate");
    let remote = theirs.register(&region, Access::ReadWrite).expect("register");
    tell(&mut theirs, &remote);
    let remote = hear(&mut ours);
    let local = Region::allocate(8192).expect("allocate");
    for round in 0..50_u64 {
        let byte = round.to_le_bytes()[0];
        local.copy_in(0, &[byte; 1000]).expect("copy in");
        let source = local.slice(0, 1000).expect("slice");
        let target = local.slice(4000, 1000).expect("slice");
        let batch = [
            (1, Operation::Write { source: source.clone(), target: remote, target_offset: 8 }),
            (2, Operation::Read { source: remote, source_offset: 8, target }),
            (3, Operation::WriteBytes { bytes: &[!byte; 1000], target: remote, target_offset: 4000 }),
            (4, Operation::FetchAdd { target: remote, target_offset: 0, add: 1 }),
            (5, Operation::WriteWithImmediate { source, target: remote, target_offset: 2000, immediate: 9 }),
            (6, Operation::Send { bytes: &[byte] }),
        ];
        if round % 2 == 0 {
            ours.post_batch(&batch).expect("post");
        } else {
            // The same, posted one by one and held back until the end.
            ours.hold();
            batch.iter().for_each(|(id, operation)| ours.post(*id, operation.clone()).expect("post"));
            ours.release();
        }
        let outcomes = events_of(&mut ours, batch.len());
        let expected = [1000, 1000, 1000, round, 1000, 1].into_iter().enumerate().map(|(at, number)| {
            let done = if at == 3 { Done::Found { value: number } } else { Done::Moved { bytes: number } };
            Event::Completed { id: at as u64 + 1, outcome: Ok(done) }
        });
        assert_eq!(outcomes, expected.collect::<Vec<_>>(), "round {round}");
        let told = [Event::Immediate { immediate: 9, bytes: 1000 }, Event::Message { bytes: vec![byte] }];
        assert_eq!(events_of(&mut theirs, 2), told);
        assert!(
            local.to_vec(4000, 1000).expect("copy out") == [byte; 1000],
            "the read saw the write before it"
        );
        assert!(region.to_vec(4000, 1000).expect("copy out") == [!byte; 1000]);
    }
    // The second operation is malformed, so one is accepted; an empty batch does nothing.
    let wrong = Operation::FetchAdd { target: remote, target_offset: 4, add: 1 };
    let send = || Operation::Send { bytes: b"x" };
    let refusal =
        ours.post_batch(&[(1, send()), (2, wrong), (3, send())]).expect_err("a malformed operation");
    assert!(matches!(refusal, BatchError { accepted: 1, error: PostError::Misaligned { .. } }), "{refusal}");
    ours.post_batch(&[]).expect("an empty batch");
    assert!(matches!(events_of(&mut ours, 1).as_slice(), [Event::Completed { id: 1, outcome: Ok(_) }]));
    // A batch that is longer than the queue is accepted up to its depth.
    let batch: Vec<_> = (0..QUEUE_DEPTH_MAX as u64 + 10).map(|id| (id, send())).collect();
    let refusal = ours.post_batch(&batch).expect_err("more than the queue's depth");
    let (in_flight, depth_max) = (QUEUE_DEPTH_MAX, QUEUE_DEPTH_MAX);
    let full = PostError::QueueFull { in_flight, depth_max };
    assert_eq!(refusal, BatchError { accepted: QUEUE_DEPTH_MAX, error: full });
    assert_eq!(events_of(&mut theirs, QUEUE_DEPTH_MAX + 1).len(), QUEUE_DEPTH_MAX + 1);
    assert_eq!(events_of(&mut ours, QUEUE_DEPTH_MAX).len(), QUEUE_DEPTH_MAX);
}

pub(crate) fn an_immediate_is_seen_after_its_bytes(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    let region = Region::allocate(8192).expect("allocate");
    let remote = theirs.register(&region, Access::Write).expect("register");
    tell(&mut theirs, &remote);
    let remote = hear(&mut ours);
    let local = Region::allocate(8192).expect("allocate");
    local.copy_in(0, &[9; 8192]).expect("copy in");
    let source = local.slice(0, 5000).expect("slice");
    let write =
        Operation::WriteWithImmediate { source, target: remote, target_offset: 8, immediate: 0xFEED_BEEF };
    ours.post(1, write).expect("post");
    assert_eq!(events(&mut theirs), [Event::Immediate { immediate: 0xFEED_BEEF, bytes: 5000 }]);
    assert!(region.to_vec(8, 5000).expect("copy out") == vec![9; 5000]);
    assert_eq!(events(&mut ours).len(), 1);
    // A refused write is not announced.
    let source = local.slice(0, 16).expect("slice");
    let target = rackscan_fabric::RemoteRegion { key: !remote.key, ..remote };
    let write = Operation::WriteWithImmediate { source, target, target_offset: 0, immediate: 1 };
    ours.post(2, write).expect("post");
    assert!(matches!(events(&mut ours).as_slice(), [Event::Completed { id: 2, outcome: Err(_) }]));
    ours.post(3, Operation::Send { bytes: b"after" }).expect("post");
    assert_eq!(message(&mut theirs), b"after");
}

pub(crate) fn completions_come_in_the_order_of_posting(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    let region = Region::allocate(4096).expect("allocate");
    let remote = theirs.register(&region, Access::ReadWrite).expect("register");
    tell(&mut theirs, &remote);
    let remote = hear(&mut ours);
    let local = Region::allocate(4096).expect("allocate");
    let wrong = rackscan_fabric::RemoteRegion { key: !remote.key, ..remote };
    for id in 0..250_u64 {
        let target = if id % 7 == 0 { wrong } else { remote };
        let operation = match id % 5 {
            0 => Operation::WriteBytes { bytes: b"abc", target, target_offset: 0 },
            1 => Operation::Read { source: target, source_offset: 0, target: local.whole() },
            2 => Operation::FetchAdd { target, target_offset: 8, add: 1 },
            3 => Operation::Send { bytes: b"hello" },
            _ => Operation::Write { source: local.whole(), target, target_offset: 0 },
        };
        ours.post(id, operation).expect("post");
    }
    for (expected, event) in events_of(&mut ours, 250).into_iter().enumerate() {
        let Event::Completed { id, outcome } = event else { panic!("{event:?}") };
        assert_eq!(id, expected as u64);
        assert_eq!(outcome.is_err(), id % 7 == 0 && id % 5 != 3, "{id}: {outcome:?}");
    }
}

pub(crate) fn a_full_queue_is_an_error_with_numbers_and_drains(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    // The receiver does not poll, so nothing that fills its ring or queue completes.
    let big = vec![1; SEND_BYTES_MAX];
    let mut posted = 0;
    let refusal = loop {
        match ours.post(posted, Operation::Send { bytes: &big }) {
            Ok(()) => posted += 1,
            Err(refusal) => break refusal,
        }
        assert!(posted <= QUEUE_DEPTH_MAX as u64, "the queue has no end");
    };
    let full = PostError::QueueFull { in_flight: QUEUE_DEPTH_MAX, depth_max: QUEUE_DEPTH_MAX };
    assert_eq!((posted, refusal), (QUEUE_DEPTH_MAX as u64, full));
    assert_eq!(ours.in_flight(), QUEUE_DEPTH_MAX);
    let (mut received, mut completed, mut found) = (0, 0, Vec::new());
    let deadline = soon();
    while (received, completed) != (posted, posted) {
        assert!(Instant::now() < deadline, "{received} received, {completed} completed of {posted}");
        ours.poll(&mut found);
        completed += found.drain(..).count() as u64;
        theirs.poll(&mut found);
        received += found.drain(..).filter(|event| matches!(event, Event::Message { .. })).count() as u64;
    }
    ours.post(0, Operation::Send { bytes: b"again" }).expect("the queue has room again");
}

/// Sends `count` large messages and receives as many, on one thread and sleeping when there is
/// nothing to do.
fn exchange(connection: &mut Connection, count: usize) {
    let big = vec![3; SEND_BYTES_MAX];
    let (mut posted, mut completed, mut received) = (0, 0, 0);
    let mut found = Vec::new();
    while completed < count || received < count {
        while posted < count && connection.in_flight() < QUEUE_DEPTH_MAX {
            connection.post(0, Operation::Send { bytes: &big }).expect("post");
            posted += 1;
        }
        let progress = connection.wait(&mut found, soon());
        assert!(progress > 0, "stuck: {posted} posted, {completed} completed, {received} received");
        for event in found.drain(..) {
            match event {
                Event::Completed { outcome: Ok(_), .. } => completed += 1,
                Event::Message { .. } => received += 1,
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(crate) fn both_sides_may_send_more_than_fits_in_between(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    let other = std::thread::spawn(move || {
        exchange(&mut theirs, 600);
        theirs
    });
    exchange(&mut ours, 600);
    drop(other.join().expect("the other side"));
}

pub(crate) fn a_sleeper_is_woken_however_the_race_goes(wire: TestWire) {
    // Pauses of varying length around the time that `wait` spins make the message meet every step
    // of falling asleep.
    let (mut ours, mut theirs) = pair(wire);
    let answerer = std::thread::spawn(move || {
        let mut stash = Vec::new();
        for _ in 0..2000 {
            let bytes = next_message(&mut theirs, &mut stash);
            theirs.post(0, Operation::Send { bytes: &bytes }).expect("post");
        }
        theirs
    });
    let mut stash = Vec::new();
    for round in 0..2000_u64 {
        let until = Instant::now() + Duration::from_nanos(round % 50 * 1000);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        ours.post(0, Operation::Send { bytes: &round.to_le_bytes() }).expect("post");
        assert_eq!(next_message(&mut ours, &mut stash), round.to_le_bytes());
    }
    drop(answerer.join().expect("the answerer"));
}

pub(crate) fn one_reactor_sleeps_on_many_connections(wire: TestWire) {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut listener = listen(wire);
    let (mut callers, mut reactor): (Vec<_>, Vec<_>) = (0..8).map(|_| meet(&mut listener)).unzip();
    let mut found = Vec::new();
    for round in 0..200_usize {
        let speaker = round * 5 % callers.len();
        for connection in &mut reactor {
            // Earlier events are polled until the connection can sleep.
            while !connection.arm() {
                connection.poll(&mut found);
            }
        }
        assert!(found.is_empty(), "round {round}: {found:?}");
        callers[speaker].post(0, Operation::Send { bytes: b"wake up" }).expect("post");
        let mut fds: Vec<_> =
            reactor.iter().map(|c| PollFd::from_borrowed_fd(c.wait_fd(), PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut fds, Some(&timeout)).expect("poll");
        assert!(ready >= 1 && !fds[speaker].revents().is_empty(), "round {round}: {ready} ready");
        let deadline = soon();
        while found.is_empty() && Instant::now() < deadline {
            for connection in &mut reactor {
                connection.poll(&mut found);
            }
        }
        assert_eq!(found, [Event::Message { bytes: b"wake up".to_vec() }], "round {round}");
        found.clear();
        let _ = events(&mut callers[speaker]);
    }
}

pub(crate) fn an_owner_that_is_woken_by_one_connection_polls_the_memory_of_the_others_and_misses_nothing(
    wire: TestWire,
) {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut listener = listen(wire);
    let (mut callers, mut reactor): (Vec<_>, Vec<_>) = (0..8).map(|_| meet(&mut listener)).unzip();
    let mut woken = vec![true; reactor.len()];
    let (mut said, mut heard) = (vec![0; reactor.len()], vec![0; reactor.len()]);
    let look = |reactor: &mut [Connection], woken: &mut [bool], heard: &mut [usize]| {
        for ((connection, woken), heard) in reactor.iter_mut().zip(woken).zip(heard) {
            let mut found = Vec::new();
            match std::mem::take(woken) {
                true => connection.poll(&mut found),
                false => connection.poll_memory(&mut found),
            };
            *heard += found.iter().filter(|event| matches!(event, Event::Message { .. })).count();
        }
    };
    for round in 0..300_usize {
        let deadline = soon();
        while !reactor.iter_mut().all(Connection::arm) {
            look(&mut reactor, &mut woken, &mut heard);
            assert!(Instant::now() < deadline, "round {round}: nobody lets the reactor sleep");
        }
        // One connection wakes the reactor, and another gets a message while it is awake.
        let (first, second) = (round * 5 % callers.len(), round * 3 % callers.len());
        let mut say = |speaker: usize| {
            callers[speaker].post(0, Operation::Send { bytes: b"here" }).expect("post");
            said[speaker] += 1;
            // Some wires report a message only when it has been taken.
            callers[speaker].poll(&mut Vec::new());
        };
        say(first);
        let mut fds: Vec<_> =
            reactor.iter().map(|c| PollFd::from_borrowed_fd(c.wait_fd(), PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut fds, Some(&timeout)).expect("poll");
        assert!(ready >= 1, "round {round}: nobody has woken the reactor");
        woken = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        say(second);
        look(&mut reactor, &mut woken, &mut heard);
    }
    // The end of a peer is noticed by `poll_memory` alone, too.
    drop(callers);
    let mut closed = vec![false; reactor.len()];
    let deadline = soon();
    while (heard != said || closed.contains(&false)) && Instant::now() < deadline {
        for (at, connection) in reactor.iter_mut().enumerate() {
            let mut found = Vec::new();
            connection.poll_memory(&mut found);
            closed[at] |= found.iter().any(|event| matches!(event, Event::Closed(_)));
            heard[at] += found.iter().filter(|event| matches!(event, Event::Message { .. })).count();
            let _ = connection.arm();
        }
    }
    assert_eq!((heard, closed), (said, vec![true; reactor.len()]));
}

//! Promises about messages in post boxes: arrival, wake-ups, endings.

use std::time::{Duration, Instant};

use rackscan_fabric::{
    Connection, Done, Event, RemoteRegion,
    post::{IMMEDIATE, PostBoxError, PostBoxes, PostSender, PostShape},
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::pair::{TestWire, hear, listen, meet, pair, pattern, soon, tell};

const BOXES: usize = 3;
const BODY_BYTES_MAX: usize = 5000;

/// One side of a connection with boxes in both directions.
struct Side {
    connection: Connection,
    boxes: PostBoxes,
    sender: PostSender,
    events: Vec<Event>,
}

fn shape() -> PostShape {
    PostShape::new(BOXES, BODY_BYTES_MAX).expect("a shape")
}

fn open(connection: &mut Connection) -> (PostBoxes, RemoteRegion) {
    let boxes = PostBoxes::new(shape()).expect("boxes");
    let name = boxes.register(connection).expect("register");
    (boxes, name)
}

fn sides_of((mut ours, mut theirs): (Connection, Connection)) -> (Side, Side) {
    let (our_boxes, our_name) = open(&mut ours);
    let (their_boxes, their_name) = open(&mut theirs);
    tell(&mut ours, &our_name);
    let at_theirs = hear(&mut theirs);
    tell(&mut theirs, &their_name);
    let at_ours = hear(&mut ours);
    let side = |connection, boxes, remote| Side {
        connection,
        boxes,
        sender: PostSender::new(remote, shape()).expect("a sender"),
        events: Vec::new(),
    };
    (side(ours, our_boxes, at_ours), side(theirs, their_boxes, at_theirs))
}

impl Side {
    fn send(&mut self, index: usize, body: &[u8]) {
        // Messages that are there already are taken without polling the connection, so completions
        // may remain.
        self.connection.poll(&mut self.events);
        self.check_events();
        self.sender.send(&mut self.connection, 1, index, body).expect("send");
    }

    /// Waits for the next message, polling and sleeping.
    fn next(&mut self) -> (usize, Vec<u8>) {
        let deadline = soon();
        loop {
            if let Some((index, body)) = self.boxes.next() {
                return (index, body.to_vec());
            }
            assert!(Instant::now() < deadline, "no message on {:?}", self.connection);
            self.connection.wait_or(&mut self.events, deadline, || self.boxes.look());
            self.check_events();
        }
    }

    fn check_events(&mut self) {
        for event in self.events.drain(..) {
            match event {
                Event::Completed { id: 1, outcome: Ok(Done::Moved { .. }) }
                | Event::Immediate { immediate: IMMEDIATE, .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(crate) fn messages_of_every_length_arrive_in_their_boxes_and_are_answered_there(wire: TestWire) {
    let (mut ours, mut theirs) = sides_of(pair(wire));
    let lengths = || {
        (0..70).chain([511, 512, 4071, 4072, 4073, BODY_BYTES_MAX - 1, BODY_BYTES_MAX]).chain((0..9).rev())
    };
    let answerer = std::thread::spawn(move || {
        for round in 0..lengths().count() * BOXES {
            let (index, body) = theirs.next();
            let answer: Vec<u8> = body.iter().rev().copied().collect();
            theirs.send(index, &answer);
            assert!(body.len() <= BODY_BYTES_MAX, "round {round}");
        }
        theirs
    });
    for (round, length) in lengths().enumerate() {
        for index in 0..BOXES {
            ours.send(index, &pattern(length, round * BOXES + index));
        }
        let mut seen = [false; BOXES];
        for _ in 0..BOXES {
            let (index, mut body) = ours.next();
            assert!(!std::mem::replace(&mut seen[index], true), "round {round}: box {index} twice");
            body.reverse();
            assert!(body == pattern(length, round * BOXES + index), "round {round}, box {index}");
        }
    }
    drop(answerer.join().expect("the answerer"));
}

pub(crate) fn a_sleeper_is_woken_by_a_message_in_a_box_however_the_race_goes(wire: TestWire) {
    // As with messages of the connection: pauses of varying length make the write meet every step
    // of falling asleep.
    let (mut ours, mut theirs) = sides_of(pair(wire));
    let answerer = std::thread::spawn(move || {
        for _ in 0..2000 {
            let (index, body) = theirs.next();
            theirs.send(index, &body);
        }
        theirs
    });
    for round in 0..2000_u64 {
        let until = Instant::now() + Duration::from_nanos(round % 50 * 1000);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let index = usize::try_from(round).expect("a round") % BOXES;
        ours.send(index, &round.to_le_bytes());
        assert_eq!(ours.next(), (index, round.to_le_bytes().to_vec()));
    }
    drop(answerer.join().expect("the answerer"));
}

/// Sleeps on all descriptors at once. Returns how many were readable.
fn sleep(reactor: &[Side]) -> usize {
    let mut fds: Vec<_> = reactor
        .iter()
        .map(|side| PollFd::from_borrowed_fd(side.connection.wait_fd(), PollFlags::IN))
        .collect();
    let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&timeout)).expect("poll")
}

pub(crate) fn a_reactor_that_sleeps_on_many_connections_is_woken_by_a_write_into_a_box(wire: TestWire) {
    let mut listener = listen(wire);
    let (mut callers, mut reactor): (Vec<_>, Vec<_>) = (0..6).map(|_| sides_of(meet(&mut listener))).unzip();
    for round in 0..200_usize {
        let speaker = round * 5 % callers.len();
        for side in &mut reactor {
            while !side.connection.arm() {
                side.connection.poll(&mut side.events);
            }
            side.check_events();
            assert!(!side.boxes.look(), "round {round}");
        }
        let index = round % BOXES;
        callers[speaker].send(index, b"wake up");
        let deadline = soon();
        // A wake-up may come for the first piece of the write, or for nothing; but one comes.
        loop {
            assert!(Instant::now() < deadline && sleep(&reactor) > 0, "round {round}: nobody was woken");
            for side in &mut reactor {
                side.connection.poll(&mut side.events);
                side.check_events();
            }
            for side in &mut reactor {
                while !side.connection.arm() {
                    side.connection.poll(&mut side.events);
                }
            }
            if reactor[speaker].boxes.look() {
                break;
            }
        }
        assert_eq!(reactor[speaker].boxes.next(), Some((index, &b"wake up"[..])), "round {round}");
        for side in &mut callers {
            side.connection.poll(&mut side.events);
            side.check_events();
        }
    }
}

pub(crate) fn a_message_that_fits_in_no_box_is_refused_and_uses_no_number(wire: TestWire) {
    let (mut ours, mut theirs) = sides_of(pair(wire));
    let long = vec![1; BODY_BYTES_MAX + 1];
    let refused = ours.sender.send(&mut ours.connection, 1, 0, &long);
    assert!(matches!(refused, Err(PostBoxError::TooLong { .. })), "{refused:?}");
    let refused = ours.sender.send(&mut ours.connection, 1, BOXES, b"");
    assert!(matches!(refused, Err(PostBoxError::NoSuchBox { index: BOXES, boxes: BOXES })), "{refused:?}");
    assert!(theirs.boxes.poll(BOXES).is_none());
    ours.send(0, b"this fits");
    assert_eq!(theirs.next(), (0, b"this fits".to_vec()));
}

pub(crate) fn a_receiver_that_takes_boxes_in_turn_sees_nothing_of_the_others(wire: TestWire) {
    let (mut ours, mut theirs) = sides_of(pair(wire));
    ours.send(1, b"second");
    let deadline = soon();
    theirs.connection.wait_or(&mut theirs.events, deadline, || theirs.boxes.look());
    theirs.check_events();
    assert!(theirs.boxes.look(), "it has arrived");
    assert!(!theirs.boxes.look_at(0) && theirs.boxes.poll(0).is_none());
    ours.send(0, b"first");
    for (index, body) in [(0, &b"first"[..]), (1, b"second")] {
        while !theirs.boxes.look_at(index) {
            assert!(Instant::now() < deadline, "no message in box {index}");
            theirs.connection.wait_or(&mut theirs.events, deadline, || theirs.boxes.look_at(index));
            theirs.check_events();
        }
        assert!(theirs.boxes.look_at(index), "looking takes nothing");
        assert_eq!(theirs.boxes.poll(index), Some(body));
    }
    assert!(!theirs.boxes.look_at(BOXES), "there is no such box");
}

pub(crate) fn the_end_of_a_connection_ends_the_wait_for_its_boxes(wire: TestWire) {
    let (ours, mut theirs) = sides_of(pair(wire));
    let waiter = std::thread::spawn(move || {
        let deadline = soon();
        while theirs.connection.ended().is_none() {
            assert!(Instant::now() < deadline, "no ending");
            theirs.connection.wait_or(&mut theirs.events, deadline, || theirs.boxes.look());
        }
        assert!(!theirs.boxes.look());
    });
    drop(ours);
    waiter.join().expect("the waiter");
}

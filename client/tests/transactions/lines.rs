//! Tests that one thread gets the replies of all of its nodes, and is told when one is lost.

use std::time::{Duration, Instant};

use rackscan_client::{LineError, LineEvent, Lines, LinesOptions};
use rackscan_device::Wait;
use rackscan_format::{
    codec,
    message::{Answer, Payload, Request, Target},
};
use rackscan_ramp::{
    message::Request as Asked,
    timestamp::{ClientId, Timestamp},
};

use crate::{
    node::{Place, key},
    scene::{Scene, WIRES, Wire},
};

fn options(scene: &Scene) -> LinesOptions {
    let nodes = scene.places.iter().map(Place::endpoint).collect();
    let patience = Duration::from_secs(10);
    LinesOptions { nodes, key: key(), wire: None, memory_bytes: 1 << 20, patience, posts: false }
}

/// Polls until there is an event that is wanted; the others are dropped.
fn until(lines: &mut Lines, wanted: impl Fn(&LineEvent) -> bool) -> LineEvent {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut events = Vec::new();
    while Instant::now() < deadline {
        lines.poll(Wait::Until(deadline), &mut events);
        if let Some(event) = events.drain(..).find(|event| wanted(event)) {
            return event;
        }
    }
    panic!("it did not happen")
}

fn is_status_of(event: &LineEvent, number: usize, wanted: u64) -> bool {
    matches!(event, LineEvent::Reply { node, tag, outcome: Ok(Answer::Status(_)) } if (*node, *tag) == (number, wanted))
}

#[test]
fn every_node_s_replies_come_back_under_their_tags_over_every_wire() {
    for wire in WIRES {
        let scene = Scene::start(wire, 3);
        let mut lines = Lines::connect(options(&scene)).unwrap();
        lines.hold();
        for round in 0..10 {
            (0..3).for_each(|node| lines.send(node, 100 * round + node as u64, Request::Status).unwrap());
        }
        lines.release();
        assert_eq!(lines.outstanding(1), 10, "{wire:?}");
        let mut missing: Vec<(usize, u64)> =
            (0..3).flat_map(|node| (0..10).map(move |round| (node, 100 * round + node as u64))).collect();
        let mut events = Vec::new();
        while !missing.is_empty() {
            lines.poll(Wait::ForOne, &mut events);
            for event in events.drain(..) {
                let LineEvent::Reply { node, tag, outcome: Ok(Answer::Status(status)) } = event else {
                    panic!("{event:?}")
                };
                assert_eq!(status.node, lines.id(node).unwrap());
                let at = missing.iter().position(|wanted| *wanted == (node, tag)).expect("asked, and once");
                missing.swap_remove(at);
            }
        }
        assert_eq!(lines.poll(Wait::ForOne, &mut events), 0, "nothing is owed, so nobody waits");
    }
}

#[test]
fn a_node_that_is_down_is_unavailable_and_reported_when_it_is_back() {
    for wire in WIRES {
        let mut scene = Scene::start(wire, 2);
        scene.stop(1);
        let mut lines = Lines::connect(options(&scene)).unwrap();
        until(&mut lines, |event| matches!(event, LineEvent::Lost { node: 1, .. }));
        let refused = lines.send(1, 1, Request::Status).unwrap_err();
        assert!(matches!(refused, LineError::Unavailable { .. }), "{refused}");
        lines.send(0, 1, Request::Status).unwrap();
        until(&mut lines, |event| is_status_of(event, 0, 1));
        scene.start_again(1);
        until(&mut lines, |event| *event == LineEvent::Back { node: 1 });
        lines.send(1, 2, Request::Status).unwrap();
        until(&mut lines, |event| is_status_of(event, 1, 2));
        scene.stop(1);
        until(&mut lines, |event| matches!(event, LineEvent::Lost { node: 1, .. }));
        assert!(lines.unavailable(1).is_some() && lines.unavailable(0).is_none());
    }
}

#[test]
fn a_node_that_owes_a_reply_and_is_silent_is_lost() {
    for wire in WIRES {
        let scene = Scene::start(wire, 2);
        let mut lines =
            Lines::connect(LinesOptions { patience: Duration::from_millis(50), ..options(&scene) }).unwrap();
        scene.knobs(1).silent.store(true, std::sync::atomic::Ordering::SeqCst);
        lines.send(1, 1, Request::OpenParticipant).unwrap();
        let lost = until(&mut lines, |event| matches!(event, LineEvent::Lost { .. }));
        let LineEvent::Lost { node: 1, reason } = lost else { panic!("{lost:?}") };
        assert!(reason.contains("owes 1 replies") && reason.contains("50ms"), "{reason}");
    }
}

#[test]
fn a_reply_that_was_forgotten_is_neither_owed_nor_reported() {
    let scene = Scene::start(Wire::Shm, 1);
    let mut lines = Lines::connect(options(&scene)).unwrap();
    lines.send(0, 1, Request::Status).unwrap();
    assert!(lines.forget(0, 1) && lines.outstanding(0) == 0);
    let in_use = lines.send(0, 1, Request::Status).unwrap_err();
    assert!(matches!(in_use, LineError::InUse { tag: 1 }), "its reply is still to come");
    lines.send(0, 2, Request::Status).unwrap();
    let first = until(&mut lines, |_| true);
    assert!(is_status_of(&first, 0, 2), "{first:?}");
}

#[test]
fn requests_at_a_node_are_bounded() {
    let scene = Scene::start(Wire::Shm, 1);
    let mut lines = Lines::connect(options(&scene)).unwrap();
    let depth = rackscan_client::limits::DIRECT_DEPTH_MAX as u64;
    (0..depth).for_each(|tag| lines.send(0, tag, Request::Status).unwrap());
    assert!(matches!(lines.send(0, depth, Request::Status), Err(LineError::Full { .. })));
}

/// A request about transactions that is answered with nothing, with so many messages.
fn unanswered(messages: usize) -> Request {
    let timestamps = vec![Timestamp { time: u64::MAX, client: ClientId(u32::MAX) }; 256];
    let bytes = codec::encode(&vec![Asked::Settled { timestamps }; messages]).expect("they are encoded");
    let target = Target { key: 0, offset_bytes: 0, length_bytes: 0 };
    Request::Transact { messages: Payload::Here(bytes), target }
}

#[test]
fn requests_go_in_boxes_in_turn_and_as_messages_where_they_would_overtake_others() {
    for wire in WIRES {
        let scene = Scene::start(wire, 1);
        let mut lines = Lines::connect(LinesOptions { posts: true, ..options(&scene) }).unwrap();
        assert!(lines.has_posts(0), "{wire:?}");
        let posted = || scene.knobs(0).posted.load(std::sync::atomic::Ordering::SeqCst);
        let is_reply =
            |event: &LineEvent, wanted: u64| matches!(event, LineEvent::Reply { tag, .. } if *tag == wanted);
        // The first is too long for a box, and the second would overtake it.
        lines.send(0, 1, unanswered(4)).unwrap();
        lines.send(0, 2, unanswered(0)).unwrap();
        until(&mut lines, |event| is_reply(event, 2));
        assert_eq!(posted(), 0, "{wire:?}");
        lines.send(0, 3, unanswered(0)).unwrap();
        until(&mut lines, |event| is_reply(event, 3));
        assert_eq!(posted(), 1, "{wire:?}");
        // Nothing is answered: four find a free box, also when nobody waits for them any more, and
        // the fifth none.
        scene.knobs(0).silent.store(true, std::sync::atomic::Ordering::SeqCst);
        for tag in 10..16 {
            lines.send(0, tag, unanswered(0)).unwrap();
            assert!(lines.forget(0, tag));
        }
        lines.send(0, 20, Request::Status).unwrap();
        until(&mut lines, |event| is_status_of(event, 0, 20));
        assert_eq!(posted(), 5, "{wire:?}");
    }
}

#[test]
fn a_bell_wakes_a_thread_that_waits_for_nothing_else() {
    let scene = Scene::start(Wire::Shm, 2);
    let mut lines = Lines::connect(options(&scene)).unwrap();
    let bell = lines.bell();
    let ringer = std::thread::spawn(move || bell.ring());
    let begun = Instant::now();
    let far = begun + Duration::from_secs(30);
    assert_eq!(lines.poll(Wait::Until(far), &mut Vec::new()), 0);
    assert!(Instant::now() < far, "it was woken");
    ringer.join().unwrap();
}

//! Tests messages in post boxes, on networks that tear and reorder writes and whose sender crashes.

use rackscan_fabric::{
    Event,
    post::{PostBoxes, PostSender, PostShape},
    sim::{Chance, Order, Random, Seed, SimConfig, Tearing},
};

use crate::scene::{CLIENT, Scene, all_seeds, each_seed};

const BOXES: usize = 2;
const BODY_BYTES_MAX: usize = 300;
const ROUNDS: usize = 6;

/// Bodies that look alike, so that remains of one fit into the next.
fn body(random: &mut Random) -> Vec<u8> {
    let length = random.index(BODY_BYTES_MAX + 1);
    let word = (random.index(8) as u64).to_le_bytes();
    (0..length).map(|at| word[at % 8]).collect()
}

/// Sends messages into boxes and takes them as they arrive. Returns how often a box was polled
/// while its message was on its way.
fn converse(seed: Seed, config: SimConfig) -> u64 {
    let mut random = Random::new(seed);
    let mut scene = Scene::new(seed, config);
    let shape = PostShape::new(BOXES, BODY_BYTES_MAX).expect("a shape");
    let mut boxes = PostBoxes::new(shape).expect("boxes");
    let name = boxes.register(&mut scene.server).expect("register");
    let mut sender = PostSender::new(name, shape).expect("a sender");
    let mut looks = 0;
    let mut sent: [Option<Vec<u8>>; BOXES] = [None, None];
    let mut left = ROUNDS * BOXES;
    loop {
        for (index, place) in sent.iter_mut().enumerate() {
            if place.is_none() && left > 0 {
                let body = body(&mut random);
                if sender.send(&mut scene.client, 0, index, &body).is_err() {
                    assert!(scene.net.crashes(CLIENT) > 0, "only a crash refuses a write");
                    return looks;
                }
                left -= 1;
                *place = Some(body);
            }
        }
        if sent.iter().all(Option::is_none) {
            return looks;
        }
        while let Some((index, found)) = boxes.next() {
            assert_eq!(sent[index].take().as_deref(), Some(found), "box {index}");
        }
        looks += 1;
        if sent.iter().any(Option::is_some) && !scene.net.step() {
            assert!(scene.net.crashes(CLIENT) > 0, "a message did not arrive and nobody has crashed");
            // The connection reports the dead sender.
            let mut events = Vec::new();
            while scene.server.poll(&mut events) > 0 {}
            assert!(matches!(events.last(), Some(Event::Closed(_))), "{events:?}");
            return looks;
        }
        // Takes its own completions, so that its queue does not fill.
        scene.client.poll(&mut Vec::new());
    }
}

#[test]
fn a_message_in_a_box_is_taken_whole_and_once_whatever_the_network_does() {
    for tearing in [Tearing::Whole, Tearing::At64, Tearing::At8] {
        for order in [Order::Ascending, Order::Any] {
            let chance = Chance {
                crash_per_million: 2000,
                faults_max: 1,
                mortal: vec![CLIENT.to_owned()],
                ..Chance::default()
            };
            let config = SimConfig { tearing, order, chance, ..SimConfig::default() };
            let mut looks = 0;
            each_seed(1000, |seed| looks += converse(seed, config.clone()));
            assert!(
                !all_seeds() || looks > 10_000,
                "{tearing:?} {order:?}: {looks} looks at messages on their way"
            );
        }
    }
}

#[test]
fn a_sender_that_crashes_within_its_write_leaves_no_message_and_an_ending() {
    let mut within = 0;
    each_seed(300, |seed| {
        let mut scene =
            Scene::new(seed, SimConfig { tearing: Tearing::At8, order: Order::Any, ..SimConfig::default() });
        let shape = PostShape::new(1, BODY_BYTES_MAX).expect("a shape");
        let mut boxes = PostBoxes::new(shape).expect("boxes");
        let name = boxes.register(&mut scene.server).expect("register");
        let mut sender = PostSender::new(name, shape).expect("a sender");
        let body = body(&mut Random::new(seed));
        sender.send(&mut scene.client, 0, 0, &body).expect("send");
        for _ in 0..seed.number() % 30 {
            scene.net.step();
        }
        scene.net.crash(CLIENT);
        let mut events = Vec::new();
        while scene.server.ended().is_none() {
            assert!(scene.server.poll(&mut events) > 0 || !scene.net.is_idle(), "no ending: {events:?}");
        }
        match boxes.next() {
            Some((0, found)) => assert_eq!(found, body),
            Some(other) => panic!("{other:?}"),
            None => within += 1,
        }
    });
    assert!(!all_seeds() || (1..300).contains(&within), "{within} of 300 senders crashed within the write");
}

//! Promises about losses and crashes at every point, and about the state that they leave.

use rackscan_fabric::{
    ConnectError, Ending, Event, Operation, OperationError,
    sim::{Chance, Fault, Moment, Random, Seed, SimConfig},
};

use crate::scene::{CLIENT, SERVER, Scene, all_seeds, cluster_key, completions, each_seed, meet, settle};

const ROUNDS: u8 = 3;
const BYTES: usize = 200;

/// What a client and a server know at the end of a small protocol, which a fault may have
/// interrupted.
#[derive(Debug)]
struct Outcome {
    client: Vec<Event>,
    server: Vec<Event>,
    /// The server's memory, slot by slot.
    slots: Vec<Vec<u8>>,
    steps: u64,
    posts: u64,
}

/// In each round the client fills a slot of the server's memory, tells the server, and continues
/// when the server has answered. The server checks that the slot is full.
fn play(seed: Seed, fault: Option<(Moment, Fault)>) -> Outcome {
    let mut scene = Scene::new(seed, SimConfig::default());
    if let Some((moment, fault)) = fault {
        scene.net.plan(moment, fault);
    }
    let (mut client, mut server, mut round) = (Vec::new(), Vec::new(), 0);
    // An end whose connection has ended cannot post and need not: its events show what it knows.
    let start = |scene: &mut Scene, round: u8| {
        let target_offset = u64::from(round) * 256;
        let bytes = &[round + 1; BYTES];
        let write = Operation::WriteBytes { bytes, target: scene.name, target_offset };
        if scene.client.post(10 * u64::from(round), write).is_ok() {
            let _ = scene.client.post(10 * u64::from(round) + 1, Operation::Send { bytes: &[round] });
        }
    };
    start(&mut scene, 0);
    while !scene.net.is_idle() {
        let seen = server.len();
        scene.server.poll(&mut server);
        for event in &server[seen..] {
            if let Event::Message { bytes } = event {
                let filled = scene.bytes(usize::from(bytes[0]) * 256, BYTES);
                assert_eq!(filled, [bytes[0] + 1; BYTES], "told of a slot that is not full");
                let _ = scene.server.post(u64::from(bytes[0]), Operation::Send { bytes: b"go on" });
            }
        }
        let seen = client.len();
        scene.client.poll(&mut client);
        for event in &client[seen..] {
            if matches!(event, Event::Message { .. }) && round + 1 < ROUNDS {
                round += 1;
                start(&mut scene, round);
            }
        }
    }
    client.extend(settle(&scene.net, &mut scene.client));
    server.extend(settle(&scene.net, &mut scene.server));
    let slots = (0..usize::from(ROUNDS)).map(|slot| scene.bytes(slot * 256, BYTES)).collect();
    let (steps, posts) = (scene.net.steps(), scene.net.posts());
    assert_eq!((scene.client.in_flight(), scene.server.in_flight()), (0, 0), "nobody waits for ever");
    Outcome { client, server, slots, steps, posts }
}

/// Checks what must hold wherever a fault happened.
fn check(outcome: &Outcome, memory_survives: bool) {
    for events in [&outcome.client, &outcome.server] {
        let closed = events.iter().filter(|event| matches!(event, Event::Closed(_))).count();
        assert_eq!(closed, 1, "{events:?}");
        assert!(matches!(events.last(), Some(Event::Closed(Ending::Lost { .. }))), "{events:?}");
        let ids: Vec<_> = completions(events).iter().map(|(id, _)| *id).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        let failed = completions(events).into_iter().skip_while(|(_, outcome)| outcome.is_ok());
        for (id, outcome) in failed {
            let lost = matches!(outcome, Err(OperationError::Closed(Ending::Lost { .. })));
            assert!(lost, "operation {id} behind one that was lost: {outcome:?}");
        }
    }
    // A slot holds new bytes only if all slots before it are full, because a message lay between
    // them.
    let started = |slot: &Vec<u8>| slot.iter().any(|byte| *byte != 0);
    let full = |(number, slot): (usize, &Vec<u8>)| slot.iter().all(|byte| usize::from(*byte) == number + 1);
    let begun = outcome.slots.iter().rposition(started).unwrap_or(0);
    assert!(outcome.slots.iter().enumerate().take(begun).all(full), "{:?}", outcome.slots);
    if memory_survives {
        for (id, outcome_of_write) in completions(&outcome.client) {
            let slot = usize::try_from(id / 10).expect("a slot");
            let done = id % 10 == 0 && outcome_of_write.is_ok();
            assert!(!done || full((slot, &outcome.slots[slot])), "a write that was done is not there");
        }
    }
}

#[test]
fn a_crash_or_cut_at_every_step_and_post_leaves_the_survivors_informed_and_the_memory_in_order() {
    let cut = Fault::Cut { one: SERVER.to_owned(), other: CLIENT.to_owned() };
    let crash = |place: &str| Fault::Crash { place: place.to_owned() };
    let faults = [(crash(CLIENT), true), (crash(SERVER), false), (cut, true)];
    let mut partial = 0;
    each_seed(30, |seed| {
        let whole = play(seed, None);
        let told = whole.server.iter().filter(|event| matches!(event, Event::Message { .. })).count();
        assert_eq!((told, whole.posts), (usize::from(ROUNDS), 3 * u64::from(ROUNDS)));
        assert!(completions(&whole.client).iter().all(|(_, outcome)| outcome.is_ok()));
        let steps = (0..whole.steps).map(Moment::Step);
        for moment in steps.chain((1..=whole.posts).map(Moment::Post)) {
            for (fault, memory_survives) in &faults {
                let outcome = play(seed, Some((moment, fault.clone())));
                check(&outcome, *memory_survives);
                let torn = |slot: &Vec<u8>| slot.contains(&0) && slot.iter().any(|byte| *byte != 0);
                partial += usize::from(outcome.slots.iter().any(torn));
            }
        }
    });
    assert!(!all_seeds() || partial > 0, "some crash leaves half of a write");
}

#[test]
fn random_faults_are_bounded_and_spare_places_that_must_not_crash() {
    let mut faults = [0; 2];
    each_seed(200, |seed| {
        let chance = Chance {
            loss_per_million: 20_000,
            crash_per_million: 20_000,
            faults_max: 1,
            mortal: vec![SERVER.to_owned()],
        };
        let mut scene = Scene::new(seed, SimConfig { chance, ..SimConfig::default() });
        for id in 0..20 {
            let _ = scene.client.post(id, Operation::Send { bytes: b"hello" });
        }
        let (client, server) = (settle(&scene.net, &mut scene.client), settle(&scene.net, &mut scene.server));
        let crashes = scene.net.crashes(SERVER);
        assert_eq!(scene.net.crashes(CLIENT), 0);
        let ended = |events: &[Event]| matches!(events.last(), Some(Event::Closed(Ending::Lost { .. })));
        assert_eq!(ended(&client), ended(&server));
        assert!(crashes == 0 || (crashes == 1 && ended(&client)));
        faults[0] += crashes;
        faults[1] += u64::from(ended(&client)) - crashes;
    });
    assert!(!all_seeds() || (faults[0] > 10 && faults[1] > 10), "{faults:?}");
}

#[test]
fn a_place_that_crashed_can_start_again() {
    each_seed(20, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        scene.net.crash(SERVER);
        let refusal = scene.net.connect(CLIENT, &scene.net.address(SERVER), &cluster_key());
        assert!(matches!(refusal, Err(ConnectError::Refused { .. })), "{refusal:?}");
        assert!(scene.listener.accept().expect("accept").is_none(), "the listener is gone");
        let mut again = scene.net.listen(SERVER, &cluster_key()).expect("listen");
        let (mut client, mut server) = meet(&scene.net, CLIENT, &mut again);
        drop(scene.listener);
        client.post(1, Operation::Send { bytes: b"again" }).expect("post");
        assert_eq!(settle(&scene.net, &mut server), [Event::Message { bytes: b"again".to_vec() }]);
        assert!(
            meet(&scene.net, CLIENT, &mut again).0.ended().is_none(),
            "the old listener took nothing along"
        );
        let old = settle(&scene.net, &mut scene.client);
        assert!(matches!(old.as_slice(), [Event::Closed(Ending::Lost { .. })]), "{old:?}");
    });
}

#[test]
fn places_that_are_cut_off_connect_when_the_cut_is_repaired() {
    let mut scene = Scene::new(Seed::new(5), SimConfig::default());
    scene.net.cut(CLIENT, SERVER);
    let refusal = scene.net.connect(CLIENT, &scene.net.address(SERVER), &cluster_key());
    assert!(matches!(refusal, Err(ConnectError::Refused { .. })), "{refusal:?}");
    let _ = meet(&scene.net, "elsewhere", &mut scene.listener);
    scene.net.repair(SERVER, CLIENT);
    let (mut client, _server) = meet(&scene.net, CLIENT, &mut scene.listener);
    client.post(1, Operation::Send { bytes: b"again" }).expect("post");
    assert!(completions(&settle(&scene.net, &mut client))[0].1.is_ok());
    for connection in [&mut scene.client, &mut scene.server] {
        let events = settle(&scene.net, connection);
        assert!(matches!(events.as_slice(), [Event::Closed(Ending::Lost { .. })]), "{events:?}");
    }
}

#[test]
fn nothing_lands_in_a_crashed_place_not_even_what_was_reported_as_done() {
    let mut unfinished = 0;
    each_seed(100, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        scene.write(1, 0, &[1; BYTES]);
        let mut events = Vec::new();
        while scene.client.poll(&mut events) == 0 {}
        assert!(completions(&events)[0].1.is_ok());
        scene.net.crash(SERVER);
        let left = scene.bytes(0, BYTES);
        scene.net.run_until_idle();
        assert_eq!(scene.bytes(0, BYTES), left);
        unfinished += usize::from(left.contains(&0));
    });
    assert!(!all_seeds() || unfinished > 0);
}

#[test]
fn nothing_is_stored_in_a_crashed_place_by_an_atomic_that_has_loaded() {
    each_seed(100, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let add = Operation::FetchAdd { target: scene.name, target_offset: 0, add: 1 };
        scene.client.post(1, add).expect("post");
        scene.net.step();
        scene.net.crash(SERVER);
        let left = scene.memory.load_u64(0).expect("load");
        scene.net.run_until_idle();
        assert_eq!(scene.memory.load_u64(0).expect("load"), left);
    });
}

#[test]
fn what_has_not_landed_when_a_connection_is_lost_never_lands() {
    let mut partial = 0;
    each_seed(200, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        scene.write(1, 0, &[1; BYTES]);
        for _ in 0..Random::new(seed).below(12) {
            scene.net.step();
        }
        scene.net.cut(CLIENT, SERVER);
        let left = scene.bytes(0, BYTES);
        let done = completions(&settle(&scene.net, &mut scene.client))[0].1.is_ok();
        assert_eq!(scene.bytes(0, BYTES), if done { vec![1; BYTES] } else { left.clone() });
        partial += usize::from(!done && left.contains(&0) && left.contains(&1));
    });
    assert!(!all_seeds() || partial > 0);
}

#[test]
fn a_crashed_place_keeps_no_word_from_other_atomics() {
    each_seed(100, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let (mut other, name, _server) = scene.another("other");
        let add = |target| Operation::FetchAdd { target, target_offset: 0, add: 1 };
        scene.client.post(1, add(scene.name)).expect("post");
        for _ in 0..Random::new(seed).below(3) {
            scene.net.step();
        }
        scene.net.crash(CLIENT);
        other.post(2, add(name)).expect("post");
        let found = completions(&settle(&scene.net, &mut other));
        assert!(found[0].1.is_ok(), "{found:?}");
        let sum = scene.memory.load_u64(0).expect("load");
        assert!((1..=2).contains(&sum), "{sum}");
    });
}

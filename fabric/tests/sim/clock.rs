//! Promises about virtual time: which calls advance it, and that equal seeds give equal histories.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Ending, Event, Listener, Operation, Region, connect,
    sim::{Chance, Fault, Moment, Random, Seed, SimConfig, SimNet},
};

use crate::scene::{CLIENT, SERVER, Scene, cluster_key, each_seed, settle};

/// Digest, steps, time and trace of two clients that use every kind of operation, some of them
/// interrupted.
fn busy(seed: Seed) -> (u64, u64, Duration, Vec<String>) {
    let chance =
        Chance { crash_per_million: 2000, loss_per_million: 2000, faults_max: 2, mortal: Vec::new() };
    let mut scene = Scene::new(seed, SimConfig { chance, ..SimConfig::default() });
    let (mut other, name, mut server) = scene.another("other");
    let local = Region::allocate(4096).expect("allocate");
    let mut random = Random::new(seed);
    let mut events = Vec::new();
    // The key of the name is random, too, and must be the same again.
    scene.server.post(0, Operation::Send { bytes: &scene.name.to_bytes() }).expect("post");
    for id in 0..60_u64 {
        let target_offset = random.below(100) * 8;
        let operation = match random.below(6) {
            0 => Operation::WriteBytes { bytes: &[1; 99], target: name, target_offset },
            1 => {
                Operation::Write { source: local.slice(3, 700).expect("slice"), target: name, target_offset }
            }
            2 => Operation::Read {
                source: name,
                source_offset: target_offset,
                target: local.slice(2000, 500).expect("slice"),
            },
            3 => Operation::FetchAdd { target: name, target_offset, add: 7 },
            4 => Operation::CompareSwap { target: name, target_offset, expected: 7, replacement: 8 },
            _ => Operation::Send { bytes: b"hello" },
        };
        // Either may have ended: that is part of the history.
        let _ = if random.below(2) == 0 {
            let bytes = id.to_le_bytes();
            scene.client.post(id, Operation::Send { bytes: &bytes })
        } else {
            other.post(id, operation)
        };
        for connection in [&mut scene.client, &mut other, &mut server, &mut scene.server] {
            connection.poll(&mut events);
        }
    }
    for connection in [&mut scene.client, &mut other, &mut server, &mut scene.server] {
        events.extend(settle(&scene.net, connection));
    }
    let net = &scene.net;
    (net.digest(), net.steps(), net.now(), net.trace())
}

#[test]
fn equal_seeds_give_equal_histories_and_others_differ() {
    let mut digests = HashSet::new();
    for number in 0..200 {
        let history = busy(Seed::new(number));
        assert_eq!(busy(Seed::new(number)), history, "seed {number}");
        digests.insert(history.0);
    }
    assert_eq!(digests.len(), 200);
}

#[test]
fn a_poll_takes_one_step_if_nothing_has_arrived_and_none_otherwise() {
    let mut scene = Scene::new(Seed::new(1), SimConfig::default());
    for byte in 0..2 {
        scene.client.post(0, Operation::Send { bytes: &[byte] }).expect("post");
    }
    assert_eq!((scene.net.steps(), scene.net.now()), (0, Duration::ZERO), "posting takes no time");
    scene.net.run_until_idle();
    let steps = scene.net.steps();
    let mut events = Vec::new();
    scene.client.post(0, Operation::Send { bytes: b"on its way" }).expect("post");
    assert_eq!((scene.server.poll(&mut events), scene.net.steps()), (2, steps));
    scene.net.run_until_idle();
    assert_eq!(scene.server.poll(&mut events), 1);
    let steps = scene.net.steps();
    scene.server.post(1, Operation::Send { bytes: b"answer" }).expect("post");
    events.clear();
    assert_eq!((scene.server.poll(&mut events), scene.net.steps()), (0, steps + 1));
    assert_eq!((scene.server.poll(&mut events), scene.net.steps()), (1, steps + 2));
    assert!(scene.net.is_idle());
    assert_eq!((scene.server.poll(&mut events), scene.net.steps()), (0, steps + 2));
}

#[test]
fn waiting_on_an_idle_network_returns_at_once() {
    let mut scene = Scene::new(Seed::new(2), SimConfig::default());
    let started = Instant::now();
    let late = started + Duration::from_secs(600);
    let mut events = Vec::new();
    assert_eq!(scene.server.wait(&mut events, late), 0);
    assert!(scene.listener.accept_until(late).expect("accept").is_none());
    scene.client.post(1, Operation::Send { bytes: b"wake up" }).expect("post");
    assert_eq!(scene.server.wait(&mut events, late), 1);
    assert_eq!(events, [Event::Message { bytes: b"wake up".to_vec() }]);
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn time_runs_to_where_it_is_sent_and_faults_happen_on_it() {
    each_seed(20, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let (early, late) = (Duration::from_millis(5), Duration::from_millis(9));
        scene.net.plan(Moment::Time(late), Fault::Crash { place: CLIENT.to_owned() });
        scene.net.run_until(early);
        assert_eq!((scene.net.now(), scene.net.crashes(CLIENT)), (early, 0));
        assert!(!scene.net.is_idle(), "the crash is still to come");
        let events = settle(&scene.net, &mut scene.server);
        assert!(matches!(events.as_slice(), [Event::Closed(Ending::Lost { .. })]), "{events:?}");
        let noticed = scene.net.now();
        assert_eq!(scene.net.crashes(CLIENT), 1);
        assert!(noticed >= late + Duration::from_micros(10) && noticed <= late + Duration::from_millis(1));
    });
}

#[test]
fn a_plain_call_comes_from_the_anonymous_place() {
    let mut scene = Scene::new(Seed::new(3), SimConfig::default());
    let address = scene.net.address(SERVER);
    let caller = connect(&address, &cluster_key(), Instant::now()).expect("connect");
    let accepted = scene.listener.accept().expect("accept").expect("a caller");
    assert_eq!(caller.peer(), address.to_string());
    assert_eq!(accepted.peer(), scene.net.address(rackscan_fabric::sim::ANONYMOUS).to_string());
    scene.net.crash(rackscan_fabric::sim::ANONYMOUS);
    assert_eq!(scene.net.connections(), 2, "the handles are still there");
    drop((caller, accepted));
    assert_eq!(scene.net.connections(), 1);
}

#[test]
fn on_a_calm_network_seeds_make_no_difference_but_for_keys() {
    let time_of = |number| {
        let mut scene = Scene::new(Seed::new(number), SimConfig::calm());
        scene.write(1, 0, &[1; 200]);
        let add = Operation::FetchAdd { target: scene.name, target_offset: 0, add: 1 };
        scene.client.post(2, add).expect("post");
        (scene.net.run_until_idle(), scene.net.now(), scene.net.trace())
    };
    let first = time_of(0);
    assert!((1..50).all(|number| time_of(number) == first));
}

#[test]
fn a_network_that_is_gone_is_named() {
    let net = SimNet::new(Seed::new(4), SimConfig::default());
    let address = net.address(SERVER);
    drop(net);
    let refusal = connect(&address, &cluster_key(), Instant::now()).expect_err("nobody is there").to_string();
    assert!(refusal.contains(&address.to_string()) && refusal.contains("no simulated network"), "{refusal}");
    let refusal = Listener::bind(&address, &cluster_key()).expect_err("nowhere").to_string();
    assert!(refusal.contains("no simulated network"), "{refusal}");
}

//! Promises about when the bytes of a write become visible: in which pieces and order, and what
//! comes after all of them.

use rackscan_fabric::{
    Access, Done, Event, Operation, Region,
    sim::{Order, Random, Seed, SimConfig, Tearing},
};

use crate::scene::{Scene, all_seeds, completions, each_seed, settle};

const OLD: u8 = 0x11;
const NEW: u8 = 0x22;

/// The server's memory after every step while the client writes `length` new bytes at `offset`.
fn sights(seed: Seed, config: &SimConfig, offset: usize, length: usize) -> Vec<Vec<u8>> {
    let mut scene = Scene::new(seed, config.clone());
    scene.memory.copy_in(0, &[OLD; 4096]).expect("copy in");
    scene.write(1, offset as u64, &vec![NEW; length]);
    let mut sights = Vec::new();
    while scene.net.step() {
        sights.push(scene.bytes(0, 1024));
    }
    let last = sights.last().expect("a step");
    assert!(last[offset..offset + length].iter().all(|byte| *byte == NEW), "all of it is there in the end");
    assert!(
        last[..offset].iter().chain(&last[offset + length..]).all(|byte| *byte == OLD),
        "and nothing else"
    );
    sights
}

fn is_mixed(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != bytes[0])
}

/// Over some seeds, the number of observations with a torn line, and of those with lines that
/// differ.
fn torn(tearing: Tearing) -> (usize, usize) {
    let config = SimConfig { tearing, ..SimConfig::default() };
    let (mut torn_lines, mut mixed_lines) = (0, 0);
    each_seed(100, |seed| {
        for sight in sights(seed, &config, 128, 512) {
            assert!(!sight.chunks(8).any(is_mixed), "an aligned word was torn");
            torn_lines += usize::from(sight.chunks(64).any(is_mixed));
            mixed_lines += usize::from(is_mixed(&sight[128..640]));
        }
    });
    (torn_lines, mixed_lines)
}

#[test]
fn tearing_at_8_bytes_is_seen_and_words_stay_whole() {
    let (torn_lines, mixed_lines) = torn(Tearing::At8);
    assert!(!all_seeds() || torn_lines > 0, "{torn_lines} of {mixed_lines}");
}

#[test]
fn tearing_at_64_bytes_is_seen_and_lines_stay_whole() {
    let (torn_lines, mixed_lines) = torn(Tearing::At64);
    assert_eq!(torn_lines, 0);
    assert!(!all_seeds() || mixed_lines > 0);
}

#[test]
fn without_tearing_a_write_is_seen_at_once() {
    assert_eq!(torn(Tearing::Whole), (0, 0));
}

#[test]
fn tearing_can_be_drawn_for_every_write() {
    let (torn_lines, mixed_lines) = torn(Tearing::Drawn);
    assert!(!all_seeds() || (torn_lines > 0 && mixed_lines > torn_lines), "{torn_lines} {mixed_lines}");
}

#[test]
fn a_write_at_an_odd_place_is_torn_at_aligned_words_only() {
    let config = SimConfig { tearing: Tearing::At8, ..SimConfig::default() };
    let mut seen = 0;
    each_seed(100, |seed| {
        let mut random = Random::new(seed);
        let (offset, length) = (random.index(100), 1 + random.index(200));
        for sight in sights(seed, &config, offset, length) {
            for word in (0..1024).step_by(8) {
                let part = word.max(offset)..(word + 8).min(offset + length);
                assert!(part.is_empty() || !is_mixed(&sight[part]), "seed {seed}: word at {word}");
            }
            seen += usize::from(is_mixed(&sight[offset..offset + length]));
        }
    });
    assert!(!all_seeds() || seen > 0);
}

#[test]
fn pieces_are_seen_in_any_order_or_from_the_lowest_address() {
    for (order, may_leave_holes) in [(Order::Any, true), (Order::Ascending, false)] {
        let config = SimConfig { order, ..SimConfig::default() };
        let mut holes = 0;
        each_seed(100, |seed| {
            let mut scene = Scene::new(seed, config.clone());
            scene.memory.copy_in(0, &[OLD; 4096]).expect("copy in");
            scene.write(1, 0, &[NEW; 256]);
            scene.write(2, 256, &[NEW; 256]);
            while scene.net.step() {
                let sight = scene.bytes(0, 512);
                let seen = sight.iter().position(|byte| *byte == OLD).unwrap_or(512);
                holes += usize::from(sight[seen..].contains(&NEW));
            }
        });
        assert!(!all_seeds() || (holes > 0) == may_leave_holes, "{order:?}: {holes} sights with holes");
    }
}

#[test]
fn the_later_of_two_writes_to_one_place_is_seen_last() {
    each_seed(300, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        for value in 1..=5 {
            scene.write(u64::from(value), 8 * u64::from(value % 3), &[value; 200]);
        }
        settle(&scene.net, &mut scene.client);
        assert_eq!(scene.bytes(16, 200), [5; 200]);
        assert_eq!(scene.bytes(8, 8), [4; 8]);
        assert_eq!(scene.bytes(0, 8), [3; 8]);
    });
}

#[test]
fn a_write_completes_before_its_bytes_are_seen_or_after() {
    let (mut before, mut after) = (0, 0);
    each_seed(200, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        scene.write(1, 0, &[NEW; 256]);
        let mut events = Vec::new();
        while scene.client.poll(&mut events) == 0 {}
        if scene.bytes(0, 256) == [NEW; 256] {
            after += 1
        } else {
            before += 1
        }
        scene.net.run_until_idle();
        assert_eq!(scene.bytes(0, 256), [NEW; 256]);
    });
    assert!(!all_seeds() || (before > 0 && after > 0), "{before} before, {after} after");
}

#[test]
fn messages_immediates_reads_and_atomics_come_after_the_bytes_written_before_them() {
    each_seed(500, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let local = Region::allocate(4096).expect("allocate");
        local.copy_in(0, &[2; 300]).expect("copy in");
        // Each round overwrites the bytes of the previous round, and is followed by another kind of
        // operation.
        scene.write(1, 3, &[1; 300]);
        scene.client.post(2, Operation::Send { bytes: b"one" }).expect("post");
        let (source, target) = (local.slice(0, 300).expect("slice"), scene.name);
        let write = Operation::WriteWithImmediate { source, target, target_offset: 3, immediate: 2 };
        scene.client.post(3, write).expect("post");
        let mut events = Vec::new();
        while scene.server.poll(&mut events) == 0 {}
        assert_eq!(events.remove(0), Event::Message { bytes: b"one".to_vec() });
        assert!(scene.bytes(3, 300).iter().all(|byte| [1, 2].contains(byte)), "at least the first write");
        while events.is_empty() && scene.server.poll(&mut events) == 0 {}
        assert_eq!(events.remove(0), Event::Immediate { immediate: 2, bytes: 300 });
        assert_eq!(scene.bytes(3, 300), [2; 300]);

        scene.write(4, 3, &[3; 300]);
        let target = local.slice(1000, 300).expect("slice");
        let read = Operation::Read { source: scene.name, source_offset: 3, target };
        scene.client.post(5, read).expect("post");
        scene.write(6, 0, &[4; 300]);
        let add = Operation::FetchAdd { target: scene.name, target_offset: 8, add: 0 };
        scene.client.post(7, add).expect("post");
        scene.write(8, 0, &[5; 300]);
        let found = completions(&settle(&scene.net, &mut scene.client));
        assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
        assert_eq!(
            local.to_vec(1000, 300).expect("copy out"),
            [3; 300],
            "not what was written before or after"
        );
        assert_eq!(found[6].1, Ok(Done::Found { value: u64::from_le_bytes([4; 8]) }));
        assert_eq!(scene.bytes(0, 300), [5; 300]);
    });
}

#[test]
fn a_read_is_torn_against_a_writer() {
    let mut torn = 0;
    each_seed(200, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let (mut reader, name, _server) = scene.another("reader");
        let local = Region::allocate(4096).expect("allocate");
        let target = local.slice(0, 256).expect("slice");
        scene.write(1, 0, &[NEW; 256]);
        reader.post(2, Operation::Read { source: name, source_offset: 0, target }).expect("post");
        settle(&scene.net, &mut reader);
        let read = local.to_vec(0, 256).expect("copy out");
        assert!(!read.chunks(8).any(is_mixed), "an aligned word was torn");
        torn += usize::from(is_mixed(&read));
    });
    assert!(!all_seeds() || torn > 0);
}

#[test]
fn a_source_that_is_changed_too_early_is_noticed() {
    let mut noticed = 0;
    each_seed(200, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let local = Region::allocate(4096).expect("allocate");
        local.copy_in(0, &[NEW; 256]).expect("copy in");
        let source = local.slice(0, 256).expect("slice");
        let write = Operation::Write { source, target: scene.name, target_offset: 0 };
        scene.client.post(1, write.clone()).expect("post");
        let mut events = Vec::new();
        while scene.client.poll(&mut events) == 0 {}
        local.zero(0, 256).expect("zero");
        scene.net.run_until_idle();
        assert_eq!(scene.bytes(0, 256), [NEW; 256], "after the completion the source is free");
        scene.memory.zero(0, 256).expect("zero");
        local.copy_in(0, &[NEW; 256]).expect("copy in");
        scene.client.post(2, write).expect("post");
        scene.net.step();
        local.zero(0, 256).expect("zero");
        scene.net.run_until_idle();
        noticed += usize::from(scene.bytes(0, 256) != [NEW; 256]);
    });
    assert!(!all_seeds() || noticed > 0);
}

#[test]
fn a_receiver_that_does_not_poll_holds_what_was_posted_behind_its_messages() {
    each_seed(5, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let big = vec![0; 64 * 1024];
        for id in 0..20 {
            scene.client.post(id, Operation::Send { bytes: &big }).expect("post");
        }
        scene.write(20, 0, &[NEW; 8]);
        let done = completions(&settle(&scene.net, &mut scene.client)).len();
        assert!(done < 20, "{done} messages were taken in");
        assert_eq!((scene.client.in_flight(), scene.bytes(0, 8)), (21 - done, vec![0; 8]));
        let received = settle(&scene.net, &mut scene.server).len();
        let rest = completions(&settle(&scene.net, &mut scene.client)).len();
        assert_eq!((received, done + rest, scene.bytes(0, 8)), (20, 21, vec![NEW; 8]));
    });
}

#[test]
fn closing_everything_leaves_no_registration() {
    each_seed(50, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let own = Region::allocate(4096).expect("allocate");
        scene.client.register(&own, Access::Read).expect("register");
        let source = own.slice(0, 2000).expect("slice");
        let write = Operation::Write { source, target: scene.name, target_offset: 0 };
        scene.client.post(1, write).expect("post");
        assert_eq!((scene.net.registrations(), scene.net.connections()), (2, 1));
        for _ in 0..Random::new(seed).below(8) {
            scene.net.step();
        }
        let Scene { net, client, mut server, memory, .. } = scene;
        drop(client);
        let events = settle(&net, &mut server);
        assert_eq!(events.last(), Some(&Event::Closed(rackscan_fabric::Ending::Orderly)));
        assert_eq!((net.registrations(), own.holders()), (0, 1), "nobody can use what ended");
        drop(server);
        net.run_until_idle();
        assert_eq!(net.connections(), 0);
        assert_eq!((own.holders(), memory.holders()), (1, 1));
    });
}

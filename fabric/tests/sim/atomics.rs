//! Promises about remote atomics: against which accesses they are atomic, and against which they
//! are not.

use rackscan_fabric::{
    Done, Operation,
    sim::{Atomicity, Random, SimConfig},
};

use crate::scene::{Scene, all_seeds, completions, each_seed, settle};

/// The value of the word after a remote addition of 1, when its owner stored 1000 at some step of
/// it.
fn met_by_a_local_store(atomicity: Atomicity) -> [usize; 3] {
    let config = SimConfig { atomicity, ..SimConfig::default() };
    let mut outcomes = [0; 3];
    each_seed(300, |seed| {
        let mut scene = Scene::new(seed, config.clone());
        let add = Operation::FetchAdd { target: scene.name, target_offset: 0, add: 1 };
        scene.client.post(1, add).expect("post");
        for _ in 0..Random::new(seed).below(4) {
            scene.net.step();
        }
        scene.memory.store_u64(0, 1000).expect("store");
        scene.net.run_until_idle();
        match scene.memory.load_u64(0).expect("load") {
            1001 => outcomes[0] += 1,
            1000 => outcomes[1] += 1,
            1 => outcomes[2] += 1,
            other => panic!("{other}"),
        }
    });
    outcomes
}

#[test]
fn a_weak_atomic_overwrites_a_local_store() {
    let [before, after, lost] = met_by_a_local_store(Atomicity::AgainstAtomics);
    assert!(!all_seeds() || (before > 0 && after > 0 && lost > 0), "{before} {after} {lost}");
}

#[test]
fn a_full_atomic_never_overwrites_a_local_store() {
    let [before, after, lost] = met_by_a_local_store(Atomicity::Full);
    assert_eq!(lost, 0);
    assert!(!all_seeds() || (before > 0 && after > 0), "{before} {after}");
}

#[test]
fn a_weak_atomic_overwrites_a_remote_write_of_another_connection() {
    let mut lost = 0;
    each_seed(300, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let (mut writer, name, _server) = scene.another("writer");
        let add = Operation::FetchAdd { target: scene.name, target_offset: 0, add: 1 };
        scene.client.post(1, add).expect("post");
        let bytes = &1000_u64.to_le_bytes();
        writer.post(2, Operation::WriteBytes { bytes, target: name, target_offset: 0 }).expect("post");
        scene.net.run_until_idle();
        lost += usize::from(scene.memory.load_u64(0).expect("load") == 1);
    });
    assert!(!all_seeds() || lost > 0);
}

#[test]
fn remote_atomics_lose_nothing_to_each_other() {
    each_seed(200, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let mut clients: Vec<_> = (0..4).map(|number| scene.another(&format!("client {number}"))).collect();
        for id in 0..10 {
            for (client, name, _) in &mut clients {
                let add = Operation::FetchAdd { target: *name, target_offset: 64, add: 1 };
                client.post(id, add).expect("post");
            }
        }
        let mut found: Vec<u64> = Vec::new();
        for (client, _, _) in &mut clients {
            for (_, outcome) in completions(&settle(&scene.net, client)) {
                let Ok(Done::Found { value }) = outcome else { panic!("{outcome:?}") };
                found.push(value);
            }
        }
        found.sort_unstable();
        assert_eq!(found, (0..40).collect::<Vec<_>>(), "every value is found once");
        assert_eq!(scene.memory.load_u64(64).expect("load"), 40);
    });
}

#[test]
fn of_many_compare_swaps_one_succeeds() {
    each_seed(200, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        let mut clients: Vec<_> =
            (1..5).map(|number| (number, scene.another(&format!("client {number}")))).collect();
        for (number, (client, name, _)) in &mut clients {
            let (expected, replacement) = (0, *number);
            let swap = Operation::CompareSwap { target: *name, target_offset: 0, expected, replacement };
            client.post(1, swap).expect("post");
        }
        scene.net.run_until_idle();
        let winner = scene.memory.load_u64(0).expect("load");
        for (number, (client, _, _)) in &mut clients {
            let found = completions(&settle(&scene.net, client));
            let expected = if *number == winner { 0 } else { winner };
            assert_eq!(found, [(1, Ok(Done::Found { value: expected }))], "client {number}, winner {winner}");
        }
    });
}

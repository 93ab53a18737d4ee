//! Tests that the real program keeps the writes that it has acknowledged while faults occur around
//! it.
//!
//! ```text
//! seed     draws clusters of 4 or 5 nodes, each for some rounds
//! round    clients work and faults occur; then all faults end
//! settle   waits until no transaction is in doubt
//! check    history::check compares all answers with what a correct store may answer
//! ```
//!
//! `RACKSCAN_CASES` is the number of rounds, `RACKSCAN_FAULTS` selects the faults to draw (decision
//! 0049), `RACKSCAN_SEED` is the seed. All random choices depend on the seed; processes and threads
//! do not, so runs of one seed are similar but not identical. A failure prints the seed, the round,
//! and the event log.

mod answers;
mod cluster;
mod disk;
mod faults;
mod history;
mod kinds;
mod network;
mod planted;
mod process;
mod round;
mod shell;
mod workload;
mod world;

use cluster::{Cluster, Stage};
use faults::Plan;
use kinds::{Counts, Fault};
use rackscan_fabric::sim::Seed;
use std::path::{Path, PathBuf};
use world::World;

const ROUNDS: u64 = 12;
/// First seed of a short run.
const SHORT_SEED: u64 = 0x5eed;
const ROUNDS_OF_A_CLUSTER: u64 = 25;
/// A run of this many rounds covers everything that is drawn.
const LONG: u64 = 400;

fn rounds() -> u64 {
    let cases = std::env::var("RACKSCAN_CASES").ok();
    cases.map_or(ROUNDS, |text| text.parse().expect("RACKSCAN_CASES is a number of rounds"))
}

/// The seed in `RACKSCAN_SEED`. Without it a long run draws one; a short run always uses the same,
/// so that a failure is caused by a change of the code.
fn first_seed(rounds: u64) -> u64 {
    if rounds <= ROUNDS && std::env::var_os("RACKSCAN_SEED").is_none() {
        return SHORT_SEED;
    }
    Seed::choose().expect("a seed").number()
}

/// A folder on a filesystem with direct IO.
fn folder(number: u64) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}-{number}", std::process::id()))
}

/// The faults that this host allows; prints the others with the reason.
fn possible(chosen: &[Fault]) -> (Vec<Fault>, Vec<Stage>) {
    let (mut possible, mut stages) = (chosen.to_vec(), vec![Stage::Memory]);
    let mut leave_out = |left_out: &[Fault], reason: &str| {
        possible.retain(|fault| {
            let stays = !left_out.contains(fault);
            if !stays {
                eprintln!("the fault {fault:?} is not drawn: {reason}");
            }
            stays
        });
    };
    if let Err(reason) = process::clocks_can_be_wrong() {
        leave_out(&[Fault::ClientClock, Fault::NodeClock], &reason);
    }
    if chosen.contains(&Fault::Cut) {
        match network::Network::new(1) {
            Ok(_) => stages.push(Stage::Network),
            Err(reason) => leave_out(&[Fault::Cut], &reason),
        }
    }
    if chosen.contains(&Fault::Full) {
        match disk::Disk::new(folder(0).with_extension("image"), folder(0), 64 << 20) {
            Ok(disk) => drop(disk),
            Err(reason) => leave_out(&[Fault::Full], &reason),
        }
        let _ = std::fs::remove_dir(folder(0));
        if possible.contains(&Fault::Full) {
            stages.push(Stage::Disks);
        }
    }
    (possible, stages)
}

/// Runs some rounds on one cluster. Returns its counters.
fn life(seed: u64, rounds: u64, possible: &[Fault], stages: &[Stage]) -> Counts {
    let mut random = fastrand::Rng::with_seed(seed);
    let stage = stages[random.usize(0..stages.len())];
    let nodes = random.usize(4..=5);
    let possible: Vec<Fault> = possible
        .iter()
        .copied()
        .filter(|fault| match fault {
            Fault::Cut => stage == Stage::Network,
            Fault::Full => stage == Stage::Disks,
            _ => true,
        })
        .collect();
    let mut cluster = Cluster::new(&folder(seed), nodes, stage, seed).expect("a cluster starts");
    let world = World::new();
    round::begin(&world, &cluster, &mut random);
    for number in 0..rounds {
        let plan = Plan::draw(&possible, nodes, &mut random);
        round::round(&world, &mut cluster, &plan, &mut random);
        world.state().counts.rounds += 1;
        let problems = std::mem::take(&mut world.state().problems);
        assert!(
            problems.is_empty(),
            "{}\n{}\nseed {seed:#018x}, round {number} of {rounds}, over {stage:?}, {plan:?}:\n{}\n\
             run it again: RACKSCAN_FAULTS={} RACKSCAN_SEED={seed:#018x} RACKSCAN_CASES={rounds} cargo test -p rackscan-cli --test chaos acknowledged -- --nocapture",
            world.events(),
            cluster.last_logged(30),
            problems.join("\n"),
            kinds::names(),
        );
    }
    let mut state = world.state();
    state.counts.clusters = 1;
    std::mem::take(&mut state.counts)
}

#[test]
fn acknowledged_writes_outlive_whatever_goes_wrong() {
    let chosen = kinds::chosen();
    let (possible, stages) = possible(&chosen);
    let (rounds, mut counts) = (rounds(), Counts::default());
    let first = first_seed(rounds);
    eprintln!("chaos from seed {first:#018x}, {rounds} rounds");
    let mut seed = first;
    while counts.rounds < rounds {
        let met = life(seed, ROUNDS_OF_A_CLUSTER.min(rounds - counts.rounds), &possible, &stages);
        counts.add(met);
        seed = seed.wrapping_add(1);
        eprintln!("{}", counts.line());
    }
    let missing = counts.missing(&possible);
    assert!(rounds < LONG || missing.is_empty(), "{rounds} rounds never met {}", missing.join(", "));
}

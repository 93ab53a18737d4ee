//! Tests that transactions stay atomic when messages are delayed, nodes and clients crash between
//! any two steps, logs are torn, readers read memory while it changes, and clocks are wrong and
//! jump.
//!
//! Goal: no run has a violation, and every defect that is added deliberately is reported. Method:
//! simulated nodes and clients in one thread and virtual time; everything is drawn from a seed.
//! What clients did and saw is a history for the checker; at the end one more reader reads all
//! keys.
//!
//! `RACKSCAN_CASES` is the number of runs, `RACKSCAN_SEED` the seed of the first.

mod client;
mod defect;
mod memory;
mod node;
mod planted;
mod world;

use defect::Defect;
use rackscan_fabric::sim::{Random, Seed};
use rackscan_ramp::{algorithm::Algorithm, history::Violation};
use world::{Case, Clocks, Counters, World};

/// Runs unless the environment asks for another number.
const CASES_DEFAULT: u64 = 1000;

/// A run of which all but the defect is drawn.
fn draw(seed: Seed, algorithms: &[Algorithm], defect: Option<Defect>) -> Case {
    let mut random = Random::new(Seed::new(seed.number() ^ 0x5EED));
    Case {
        algorithm: algorithms[random.index(algorithms.len())],
        one_sided: random.below(3) > 0,
        nodes: 2 + random.index(3),
        clients: 2 + random.index(4),
        keys: 2 + u32::try_from(random.below(10)).expect("few keys"),
        transactions: 60,
        budget_bytes: if random.below(4) == 0 { 4_000 } else { 1 << 20 },
        crashes: [0, 500, 5_000][random.index(3)],
        clocks: [Clocks::Close, Clocks::Wrong][random.index(2)],
        defect,
    }
}

fn environment() -> (Seed, u64) {
    let seed = Seed::choose().expect("a seed");
    let cases =
        std::env::var("RACKSCAN_CASES").ok().map(|text| text.parse().expect("RACKSCAN_CASES is a number"));
    let replays = Seed::from_environment().expect("a seed").is_some();
    (seed, cases.unwrap_or(if replays { 1 } else { CASES_DEFAULT }))
}

#[test]
fn transactions_are_seen_wholly_or_not_at_all_whatever_happens() {
    let (first, cases) = environment();
    let algorithms = [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid, Algorithm::Locking];
    let mut sum = Counters::default();
    for number in 0..cases {
        let seed = Seed::new(first.number().wrapping_add(number));
        let _replay = seed.replay_on_panic();
        let case = draw(seed, &algorithms, None);
        let (violations, counters) = World::run(case, seed);
        assert!(violations.is_empty(), "{case:?}: {}", lines(&violations));
        add(&mut sum, counters);
    }
    println!("{cases} runs from seed {first}, no violation: {sum:?}");
    if cases >= CASES_DEFAULT {
        let met = [
            sum.committed,
            sum.aborted,
            sum.unknown,
            sum.reads,
            sum.interrupted,
            sum.second_rounds,
            sum.slots_believed,
        ];
        let met = met.into_iter().chain([
            sum.slots_refused,
            sum.node_crashes,
            sum.client_crashes,
            sum.cut_logs,
            sum.new_logs,
            sum.in_doubt,
            sum.clock_jumps,
            sum.clocks_refused,
            sum.retried,
            sum.conditional,
            sum.conflicts,
        ]);
        assert!(met.min() > Some(0), "the runs did not meet everything: {sum:?}");
    }
}

fn lines(violations: &[Violation<u32>]) -> String {
    violations.iter().map(|violation| format!("\n  {violation}")).collect()
}

fn add(sum: &mut Counters, counters: Counters) {
    sum.committed += counters.committed;
    sum.aborted += counters.aborted;
    sum.unknown += counters.unknown;
    sum.reads += counters.reads;
    sum.interrupted += counters.interrupted;
    sum.second_rounds += counters.second_rounds;
    sum.slots_believed += counters.slots_believed;
    sum.slots_refused += counters.slots_refused;
    sum.node_crashes += counters.node_crashes;
    sum.client_crashes += counters.client_crashes;
    sum.cut_logs += counters.cut_logs;
    sum.new_logs += counters.new_logs;
    sum.in_doubt += counters.in_doubt;
    sum.operations += counters.operations;
    sum.clock_jumps += counters.clock_jumps;
    sum.clocks_refused += counters.clocks_refused;
    sum.retried += counters.retried;
    sum.conditional += counters.conditional;
    sum.conflicts += counters.conflicts;
}

//! Tests that no stripe is wrong and no table is incomplete after a node or the client has lost
//! power at any step.

use std::collections::BTreeMap;

use rackscan_fabric::sim::Seed;
use rackscan_format::schema::Protection;

use super::{
    cluster::{Crash, Setting},
    folder::Image,
    power::{Cut, Moment, Party},
    run::{Ran, Scenario},
    scenarios::{dropped, first_load, first_start, new_version, relayed_load, replaced, setting},
    stripes::Plans,
};

/// The outcomes of the crashes of a scenario.
#[derive(Debug, Default)]
struct Counters {
    runs: u64,
    restarts: u64,
    /// Runs by outcome of their last load.
    outcomes: BTreeMap<String, u64>,
    stripes: u64,
    recovered: u64,
}

impl Counters {
    fn count(&mut self, ran: &Ran) {
        self.runs += 1;
        self.restarts += ran.restarts;
        *self.outcomes.entry(format!("{:?}", ran.outcomes.last())).or_default() += 1;
        self.stripes += ran.found.stripes;
        self.recovered += ran.found.recovered;
    }
}

fn cut(who: Party, when: Moment) -> Cut {
    Cut { who, when }
}

/// The steps to try: each one, or one in so many from a random one on.
#[derive(Clone, Copy)]
struct Stride(u64);

impl Stride {
    fn of(self, steps: u64, random: &mut fastrand::Rng) -> impl Iterator<Item = u64> + use<> {
        let first = random.u64(1..=self.0);
        (first..=steps).step_by(usize::try_from(self.0).unwrap())
    }
}

/// The kinds of crashes, in turn.
const IMAGES: [Image; 6] =
    [Image::OnlySynced, Image::AnyPart, Image::AnyPart, Image::Killed, Image::AnyPart, Image::Everything];

/// Crashes of each node and of the client by itself, before steps of their own.
fn of_one(own: &[u64], stride: Stride, random: &mut fastrand::Rng) -> Vec<Crash> {
    let mut crashes = Vec::new();
    for (who, steps) in own.iter().enumerate() {
        for (at, step) in stride.of(*steps, random).enumerate() {
            let cuts = vec![cut(who, Moment::OfItsOwn(step))];
            crashes.push(Crash { cuts, images: vec![IMAGES[at % IMAGES.len()]], seed: random.u64(..) });
        }
    }
    crashes
}

/// Crashes of all nodes at once; of two nodes at different steps; of all nodes after one party was
/// killed.
fn of_several((all, own): &(u64, Vec<u64>), stride: Stride, random: &mut fastrand::Rng) -> Vec<Crash> {
    let nodes = own.len() - 1;
    let everybody = |step| (0..nodes).map(move |who| cut(who, Moment::OfAll(step)));
    let mut crashes = Vec::new();
    for (at, step) in stride.of(*all, random).enumerate() {
        let cuts = match at % 4 {
            0 | 2 => everybody(step).collect(),
            1 => {
                let one = random.usize(..nodes);
                let other = (one + random.usize(1..nodes)) % nodes;
                let mut at_random = |who| cut(who, Moment::OfItsOwn(random.u64(1..=own[who])));
                vec![at_random(one), at_random(other)]
            }
            _ => {
                let first = cut(random.usize(..=nodes), Moment::OfAll(step));
                let later = step + random.u64(1..60);
                [first].into_iter().chain(everybody(later)).collect()
            }
        };
        let then = IMAGES[random.usize(..IMAGES.len())];
        let images = if at % 4 == 3 { vec![Image::Killed, then] } else { vec![then] };
        crashes.push(Crash { cuts, images, seed: random.u64(..) });
    }
    crashes
}

/// Tries crashes at steps of one, and at steps of several.
fn each(scenario: &dyn Fn(Seed) -> Scenario, of_one_at: Stride, of_several_at: Stride) {
    let cases = std::env::var("RACKSCAN_CASES").ok().map(|text| text.parse().expect("a number of seeds"));
    Seed::each(cases.unwrap_or(1), |seed| {
        let (scenario, mut random) = (scenario(seed), fastrand::Rng::with_seed(seed.number()));
        let (mut plans, mut counters) = (Plans::default(), Counters::default());
        let steps = scenario.steps(&mut plans);
        let mut crashes = of_one(&steps.1, of_one_at, &mut random);
        crashes.extend(of_several(&steps, of_several_at, &mut random));
        for crash in crashes {
            counters.count(&scenario.run(&crash, &mut plans));
        }
        // How many steps there are and what it came to, for who looks.
        eprintln!("{steps:?}: {counters:?}");
        assert!(counters.outcomes.len() >= 2 && counters.restarts > counters.runs, "{counters:?}");
    })
    .unwrap();
}

fn over(
    nodes: usize,
    protection: Protection,
    scenario: fn(&Setting, Seed) -> Scenario,
) -> impl Fn(Seed) -> Scenario {
    move |seed| scenario(&setting(nodes, protection), seed)
}

#[test]
fn a_first_load_over_three_nodes_with_one_parity_is_whole_or_absent() {
    each(&over(3, Protection::Xor, first_load), Stride(1), Stride(1));
}

#[test]
fn a_first_load_over_three_nodes_with_two_parities_is_whole_or_absent() {
    each(&over(3, Protection::TwoD, first_load), Stride(1), Stride(3));
}

#[test]
fn a_load_whose_parity_is_relayed_is_whole_or_absent() {
    each(&over(3, Protection::TwoD, relayed_load), Stride(3), Stride(3));
    each(&over(5, Protection::TwoD, relayed_load), Stride(6), Stride(5));
}

#[test]
fn a_first_load_over_four_and_five_nodes_is_whole_or_absent() {
    each(&over(4, Protection::Xor, first_load), Stride(4), Stride(4));
    each(&over(4, Protection::TwoD, first_load), Stride(5), Stride(4));
    each(&over(5, Protection::TwoD, first_load), Stride(5), Stride(4));
}

#[test]
fn a_new_version_keeps_what_it_shares() {
    each(&over(3, Protection::Xor, new_version), Stride(3), Stride(3));
    each(&over(5, Protection::TwoD, new_version), Stride(6), Stride(5));
}

#[test]
fn room_is_not_used_again_while_a_table_needs_it() {
    each(&over(3, Protection::Xor, replaced), Stride(4), Stride(3));
    each(&over(4, Protection::TwoD, replaced), Stride(8), Stride(6));
    each(&over(3, Protection::Xor, dropped), Stride(2), Stride(2));
}

#[test]
fn a_node_whose_first_start_was_interrupted_starts() {
    each(&over(3, Protection::Xor, first_start), Stride(3), Stride(3));
}

#[test]
fn what_a_node_shows_after_it_was_killed_is_durable() {
    Seed::each(1, |seed| {
        let (scenario, mut plans) = (replaced(&setting(3, Protection::Xor), seed), Plans::default());
        let (_, own) = scenario.steps(&mut plans);
        for step in 1..=own[0] {
            let cuts = vec![cut(0, Moment::OfItsOwn(step))];
            scenario.run(&Crash { cuts, images: vec![Image::Killed], seed: 1 }, &mut plans);
        }
    })
    .unwrap();
}

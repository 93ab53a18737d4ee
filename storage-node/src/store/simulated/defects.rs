//! Tests that the checks of the simulation find defects. Method: plant one defect, in files, in
//! devices or in the client, and crash all nodes at each step until a check fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rackscan_fabric::sim::Seed;
use rackscan_format::schema::Protection;

use super::{
    cluster::{Crash, Setting},
    folder::{Image, StorageDefect},
    load::{Defect, Outcome},
    power::{Cut, Moment},
    run::{Action, Scenario},
    scenarios::{first, first_load, setting},
    stripes::Plans,
};

/// The first finding in a scenario in which all nodes crash at a step, or none does.
fn seen(scenario: &Scenario) -> Option<String> {
    let mut plans = Plans::default();
    let mut run = |crash: &Crash| {
        let ran = catch_unwind(AssertUnwindSafe(|| scenario.run(crash, &mut plans)));
        ran.map_err(|said| said.downcast::<String>().map_or_else(|_| String::new(), |said| *said))
    };
    let steps = match run(&Crash::none()) {
        Ok(ran) => ran.steps,
        Err(said) => return Some(said),
    };
    let nodes = steps.1.len() - 1;
    let crash = |step| {
        let cuts = (0..nodes).map(|who| Cut { who, when: Moment::OfAll(step) }).collect();
        Crash { cuts, images: vec![Image::AnyPart], seed: step }
    };
    (1..=steps.0).find_map(|step| run(&crash(step)).err())
}

fn lying(lies: StorageDefect) -> Setting {
    Setting { lies, ..setting(3, Protection::Xor) }
}

fn wrong(defect: Defect) -> Scenario {
    let setting = setting(3, Protection::Xor);
    Scenario::new(&setting, &[], vec![Action::Load(first(3).wrong(defect))], 7)
}

fn assert_seen(scenario: &Scenario, words: &[&str]) {
    let said = seen(scenario).expect("nothing was seen");
    assert!(words.iter().any(|word| said.contains(word)), "{said}");
}

#[test]
fn without_a_defect_nothing_is_seen() {
    assert_eq!(seen(&first_load(&setting(3, Protection::Xor), Seed::new(7))), None);
}

#[test]
fn devices_that_are_not_flushed_are_seen() {
    let lies = StorageDefect { devices: true, ..StorageDefect::default() };
    assert_seen(&first_load(&lying(lies), Seed::new(7)), &["is not on node"]);
}

#[test]
fn files_that_are_not_synced_are_seen() {
    let lies = StorageDefect { files: true, ..StorageDefect::default() };
    assert_seen(&first_load(&lying(lies), Seed::new(7)), &["does not start", "has lost the map"]);
}

#[test]
fn names_that_are_not_synced_are_seen() {
    let lies = StorageDefect { names: true, ..StorageDefect::default() };
    assert_seen(&first_load(&lying(lies), Seed::new(7)), &["was not durable", "has lost the map"]);
}

#[test]
fn a_commit_before_all_have_prepared_is_seen() {
    assert_seen(&wrong(Defect::CommitsEarly), &["does not have its part", "not of {None}"]);
}

#[test]
fn a_parity_that_leaves_a_node_out_is_seen() {
    assert_seen(&wrong(Defect::SumsLess), &["lies"]);
}

#[test]
fn a_map_that_comes_after_the_table_was_prepared_is_too_late() {
    let ran = wrong(Defect::MapsLate).run(&Crash::none(), &mut Plans::default());
    assert_eq!(ran.outcomes, [Outcome::GivenUp], "nodes do not prepare it without the map");
}

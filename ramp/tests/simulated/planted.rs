//! Tests that each deliberately added defect is reported, as the right violation. The seeds are
//! fixed: if a change of the simulation hides a defect, this test fails.

use crate::{
    defect::Defect,
    world::{Case, Clocks, World},
};
use rackscan_fabric::sim::{Random, Seed};
use rackscan_ramp::{algorithm::Algorithm, history::Violation};
use std::collections::BTreeMap;

/// Runs for each defect.
const SEEDS: u64 = 60;

fn kind(violation: &Violation<u32>) -> &'static str {
    match violation {
        Violation::Fractured { .. } => "fractured",
        Violation::Aborted { .. } => "aborted",
        Violation::Intermediate { .. } => "intermediate",
        Violation::Future { .. } => "future",
        Violation::Lost { .. } => "lost",
        Violation::Session { .. } => "session",
        Violation::Collision { .. } => "collision",
        Violation::Outdated { .. } => "outdated",
        Violation::LostUpdate { .. } => "lost update",
    }
}

/// In how many runs of a case what was noticed.
fn noticed(case: Case) -> BTreeMap<&'static str, u64> {
    let mut kinds = BTreeMap::new();
    for number in 0..SEEDS {
        let seed = Seed::new(0x0BAD_0000 + number);
        let mut random = Random::new(seed);
        let case = Case { keys: 3 + u32::try_from(random.below(6)).expect("few keys"), ..case };
        let (violations, _) = World::run(case, seed);
        let mut seen: Vec<&str> = violations.iter().map(kind).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter().for_each(|kind| *kinds.entry(kind).or_default() += 1);
    }
    println!("{case:?}: {kinds:?} of {SEEDS} runs");
    kinds
}

fn case(defect: Option<Defect>) -> Case {
    let (nodes, clients, keys, transactions, crashes, budget_bytes) = (3, 5, 6, 120, 0, 1 << 20);
    Case {
        algorithm: Algorithm::Fast,
        one_sided: true,
        nodes,
        clients,
        keys,
        transactions,
        budget_bytes,
        crashes,
        clocks: Clocks::Close,
        defect,
    }
}

#[track_caller]
fn assert_noticed(case: Case, kind: &str) {
    let noticed = noticed(case);
    assert!(noticed.contains_key(kind), "expected {kind} in one run at least: {noticed:?}");
}

#[test]
fn without_a_defect_the_same_runs_show_nothing() {
    for algorithm in [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid, Algorithm::Locking] {
        for (crashes, one_sided) in [(0, true), (0, false), (5_000, true), (5_000, false)] {
            assert_eq!(noticed(Case { algorithm, crashes, one_sided, ..case(None) }), BTreeMap::new());
        }
        assert_eq!(noticed(Case { algorithm, clocks: Clocks::Wrong, ..case(None) }), BTreeMap::new());
    }
}

#[test]
fn slots_that_are_not_invalidated_are_noticed() {
    assert_noticed(case(Some(Defect::NoInvalidation)), "lost");
}

#[test]
fn a_commit_before_all_have_prepared_is_noticed() {
    assert_noticed(case(Some(Defect::EarlyCommit)), "fractured");
}

#[test]
fn timestamps_that_collide_are_noticed() {
    assert_noticed(case(Some(Defect::CollidingTimestamps)), "collision");
}

#[test]
fn collection_by_a_timer_under_slow_readers_is_noticed() {
    for one_sided in [true, false] {
        assert_noticed(Case { one_sided, ..case(Some(Defect::TimedCollection)) }, "fractured");
    }
}

#[test]
fn slots_that_are_overwritten_without_version_words_are_noticed() {
    assert_noticed(Case { transactions: 400, ..case(Some(Defect::BlindOverwrite)) }, "intermediate");
}

#[test]
fn memory_of_a_participant_that_is_gone_and_believed_is_noticed() {
    assert_noticed(Case { crashes: 4_000, transactions: 600, ..case(Some(Defect::DeadMemory)) }, "lost");
}

#[test]
fn answers_before_the_log_is_durable_are_noticed() {
    assert_noticed(Case { crashes: 3_000, ..case(Some(Defect::EarlyAnswers)) }, "lost");
}

#[test]
fn without_concurrency_control_reads_are_fractured() {
    assert_noticed(Case { algorithm: Algorithm::None, ..case(None) }, "fractured");
}

#[test]
fn clients_that_hear_only_what_is_a_minute_ahead_are_noticed() {
    for algorithm in [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid, Algorithm::Locking] {
        let case = Case { algorithm, clocks: Clocks::Wrong, ..case(Some(Defect::CappedClocks)) };
        assert_noticed(case, "outdated");
    }
}

#[test]
fn conditions_that_nobody_looks_at_are_noticed() {
    assert_noticed(case(Some(Defect::NoConditions)), "lost update");
}

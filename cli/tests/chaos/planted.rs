//! Tests the history check of these tests: clients get a deliberate defect, between this harness
//! and the real program, and the check must find each defect.

use super::{
    cluster::{Cluster, Stage},
    faults::Plan,
    folder,
    process::{Exit, Ran},
    round,
    world::World,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Defects of clients.
#[derive(Debug)]
pub(crate) enum Defect {
    /// A put is acknowledged but not done.
    Unwritten,
    /// A put is done but reported as refused.
    Unrefused,
    /// A put of several keys omits the last one.
    Half,
    /// A range of keys is answered as it was when it was first read.
    Stale(Mutex<BTreeMap<Vec<String>, Ran>>),
}

impl Defect {
    /// Runs the program like a client with this defect.
    pub(crate) fn run(&self, words: &[String], really: impl Fn(&[String]) -> Ran) -> Ran {
        let is = |first: &str, second: &str| {
            words.first().is_some_and(|word| word == first) && words.get(1).is_some_and(|word| word == second)
        };
        match self {
            Self::Unwritten if is("kv", "put") => {
                Ran { exit: Exit::Code(0), out: String::new(), err: String::new() }
            }
            Self::Unrefused if is("kv", "put") => {
                Ran { exit: Exit::Code(1), err: "error: nothing was done".to_owned(), ..really(words) }
            }
            // Keys and values alternate after `kv put --timeout N`.
            Self::Half if is("kv", "put") && words.len() > 6 => really(&words[..words.len() - 2]),
            Self::Stale(answers) if is("kv", "multi-get") => {
                let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                answers.entry(words.to_vec()).or_insert_with(|| really(words)).clone()
            }
            _ => really(words),
        }
    }
}

/// Runs rounds without any fault, with clients that have the defect. Returns the violations found.
fn found(defect: Defect, seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut cluster = Cluster::new(&folder(seed), 4, Stage::Memory, seed).expect("a cluster starts");
    cluster.defect = Some(Arc::new(defect));
    let world = World::new();
    round::begin(&world, &cluster, &mut random);
    for _ in 0..4 {
        let plan = Plan::draw(&[], 4, &mut random);
        round::round(&world, &mut cluster, &plan, &mut random);
        let problems = std::mem::take(&mut world.state().problems);
        if !problems.is_empty() {
            return problems.join("\n");
        }
    }
    String::new()
}

#[test]
fn a_client_that_acknowledges_what_it_did_not_write_is_found() {
    let found = found(Defect::Unwritten, 0xdefe_c700);
    assert!(found.contains("found nothing") || found.contains("supersede each other"), "{found}");
}

#[test]
fn a_client_that_writes_what_it_said_to_have_refused_is_found() {
    let found = found(Defect::Unrefused, 0xdefe_c701);
    assert!(found.contains("which was refused"), "{found}");
}

#[test]
fn a_client_that_writes_a_part_of_a_transaction_is_found() {
    let found = found(Defect::Half, 0xdefe_c702);
    assert!(
        found.contains("elsewhere write")
            || found.contains("found nothing")
            || found.contains("supersede each other"),
        "{found}"
    );
}

#[test]
fn a_client_that_reads_what_was_there_before_is_found() {
    let found = found(Defect::Stale(Mutex::default()), 0xdefe_c703);
    assert!(
        found.contains("supersede each other")
            || found.contains("found nothing")
            || found.contains("before everything was settled"),
        "{found}"
    );
}

//! Tests that a run follows its options, counts what happens, and detects violations of a store's
//! isolation level.

use super::super::{
    load,
    nearby::Nearby,
    store::{Failure, ReadDone, TransactionStore, WriteFailure},
    workload::{Core, Span, Workload},
};
use super::*;
use rackscan_ramp::{
    algorithm::Algorithm,
    item::{Key, Value},
    timestamp::Timestamp,
};
use std::sync::atomic::AtomicU64;

const KEYS: u32 = 64;

fn loaded(algorithm: Algorithm) -> Nearby {
    let nearby = Nearby::new(algorithm, 3);
    let stop = AtomicBool::new(false);
    let value_bytes = Span { least: 8, most: 64 };
    let (per_transaction, threads, seed, patience) = (3, 2, 1, Duration::ZERO);
    let load = load::Load { keys: KEYS, value_bytes, per_transaction, threads, seed, patience, stop: &stop };
    let mut seen = Vec::new();
    load::load(&load, &|thread| Ok(Box::new(nearby.session(thread))), &mut |done, of| seen.push((done, of)))
        .unwrap();
    assert_eq!(seen.last(), Some(&(u64::from(KEYS), u64::from(KEYS))));
    assert_eq!(seen.len(), 22, "once for each transaction");
    nearby
}

fn a_run(workload: Workload, count: u64, check: bool, stop: &AtomicBool) -> RunOptions<'_> {
    RunOptions {
        workload: Workload { value_bytes: Span { least: 8, most: 64 }, ..workload },
        threads: 3,
        warm_up: Duration::ZERO,
        bounds: Bounds { duration: Duration::from_secs(600), count_max: Some(count) },
        seed: 11,
        check,
        recorded_max: 1 << 20,
        peers: &[],
        patience: Duration::ZERO,
        stop,
    }
}

/// A session that modifies the results of another one.
struct Through<'n, F> {
    inner: Box<dyn TransactionStore + 'n>,
    with: F,
}

impl<F: FnMut(&mut ReadDone)> TransactionStore for Through<'_, F> {
    fn read(&mut self, keys: &[Key]) -> Result<ReadDone, Failure> {
        let mut done = self.inner.read(keys)?;
        (self.with)(&mut done);
        Ok(done)
    }

    fn write(&mut self, items: Vec<(Key, Value)>) -> Result<Timestamp, WriteFailure> {
        self.inner.write(items)
    }
}

#[test]
fn every_session_does_its_count_of_transactions_and_all_of_them_are_checked() {
    for algorithm in [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid, Algorithm::Locking] {
        let (nearby, stop) = (loaded(algorithm), AtomicBool::new(false));
        let of = a_run(Workload::micro(0.5, 4, KEYS), 300, true, &stop);
        let measured = run(&of, &|thread| Ok(Box::new(nearby.session(thread)))).unwrap();
        let (counters, checked) = (&measured.counters, measured.checked.as_ref().unwrap());
        assert_eq!((measured.failure.as_deref(), checked.violated()), (None, 0), "{algorithm}: {checked:?}");
        assert_eq!(counters.transactions + counters.failures.values().sum::<u64>(), 900, "{algorithm}");
        assert_eq!(counters.operations, 4 * counters.transactions);
        assert_eq!(
            checked.operations, counters.operations,
            "{algorithm}: nothing failed: {:?}",
            counters.failures
        );
        assert_eq!((counters.latencies.count(), counters.absent), (counters.transactions, 0));
        assert_eq!(counters.reads.count() + counters.writes.count(), counters.transactions);
        assert!(measured.per_s > 0.0 && (measured.operations_per_s / measured.per_s - 4.0).abs() < 1e-9);
        let rounds = counters.rounds as f64 / counters.reads.count() as f64;
        match algorithm {
            Algorithm::Small => assert!((rounds - 2.0).abs() < 1e-9 && counters.one_round == 0, "{rounds}"),
            // Locking asks one participant after the other for its locks.
            Algorithm::Locking => assert!(rounds > 1.0, "{rounds}"),
            _ => assert!((1.0..1.5).contains(&rounds) && counters.one_round > 0, "{algorithm}: {rounds}"),
        }
    }
}

#[test]
fn without_concurrency_control_the_check_sees_fractured_reads() {
    // Sessions write the same few keys with yields between messages; one of these seeds soon
    // produces an anomaly.
    let fractured = (0..20).any(|seed| {
        let (nearby, stop) = (loaded(Algorithm::None), AtomicBool::new(false));
        let of = RunOptions { seed, ..a_run(Workload::micro(0.5, 8, 16), 500, true, &stop) };
        let measured = run(&of, &|thread| Ok(Box::new(nearby.session(thread)))).unwrap();
        measured.checked.unwrap().violations.contains_key("fractured")
    });
    assert!(fractured);
}

#[test]
fn a_store_that_shows_something_old_once_is_found_out() {
    let (nearby, stop, reads) = (loaded(Algorithm::Fast), AtomicBool::new(false), AtomicU64::new(0));
    let of = RunOptions { threads: 1, ..a_run(Workload::micro(0.5, 1, 2), 400, true, &stop) };
    let open = |thread| {
        let (reads, mut old) = (&reads, None);
        let with = move |done: &mut ReadDone| match reads.fetch_add(1, Ordering::Relaxed) {
            // The survey is one read of both keys.
            10 => old = done.items.first().cloned(),
            number if number > 100 && done.items.len() == 1 => {
                if let Some((key, version)) = old.take_if(|(key, _)| *key == done.items[0].0) {
                    done.items = vec![(key, version)];
                }
            }
            _ => {}
        };
        let inner = Box::new(nearby.session(thread));
        Ok(Box::new(Through { inner, with }) as Box<dyn TransactionStore + '_>)
    };
    let checked = run(&of, &open).unwrap().checked.unwrap();
    assert_eq!(checked.violations.into_iter().collect::<Vec<_>>(), [("session", 1)], "{:?}", checked.first);
}

#[test]
fn an_answer_that_lacks_a_key_is_a_failure_whether_or_not_anybody_checks() {
    for check in [false, true] {
        let (nearby, stop) = (loaded(Algorithm::Fast), AtomicBool::new(false));
        let of = a_run(Workload::micro(1.0, 4, KEYS), 50, check, &stop);
        let open = |thread| {
            let inner = Box::new(nearby.session(thread));
            let with = |done: &mut ReadDone| {
                if done.items.len() == 4 {
                    done.items.pop();
                }
            };
            Ok(Box::new(Through { inner, with }) as Box<dyn TransactionStore + '_>)
        };
        let measured = run(&of, &open).unwrap();
        assert_eq!(
            measured.counters.failures.get("incomplete"),
            Some(&150),
            "{:?}",
            measured.counters.failures
        );
        assert_eq!(measured.counters.transactions, 0);
    }
}

#[test]
fn core_workloads_insert_modify_and_scan() {
    for core in Core::ALL {
        let (nearby, stop) = (loaded(Algorithm::Fast), AtomicBool::new(false));
        let of = a_run(Workload::ycsb(core, 2, KEYS), 300, core != Core::E, &stop);
        let measured = run(&of, &|thread| Ok(Box::new(nearby.session(thread)))).unwrap();
        let counters = &measured.counters;
        assert_eq!((counters.transactions, counters.absent, measured.failure), (900, 0, None), "{core:?}");
        assert_eq!(measured.checked.map_or(0, |checked| checked.violated()), 0);
        let (reads, writes) = (counters.reads.count(), counters.writes.count());
        match core {
            Core::C => assert_eq!((reads, writes), (900, 0)),
            Core::E => {
                assert_eq!(
                    (counters.scans, counters.scans_by_key),
                    (reads, reads),
                    "this store has no scans"
                );
                assert!(counters.keys_read > 10 * reads && writes > 0);
            }
            Core::F => assert!(reads == 900 && (300..600).contains(&writes), "{writes}"),
            _ => assert_eq!(reads + writes, 900),
        }
    }
}

#[test]
fn sessions_that_end_are_opened_again_and_a_cluster_that_stays_unavailable_ends_the_run() {
    let (nearby, stop, opened) = (loaded(Algorithm::Fast), AtomicBool::new(false), AtomicU64::new(0));
    let of = RunOptions { threads: 1, ..a_run(Workload::micro(1.0, 2, KEYS), 100, false, &stop) };
    struct Short<'n>(super::super::nearby::Session<'n>, u32);
    impl TransactionStore for Short<'_> {
        fn read(&mut self, keys: &[Key]) -> Result<ReadDone, Failure> {
            self.1 += 1;
            match self.1 {
                10 => Err(Failure { kind: "lost", why: "it is gone".to_owned(), session_over: true }),
                _ => self.0.read(keys),
            }
        }
        fn write(&mut self, items: Vec<(Key, Value)>) -> Result<Timestamp, WriteFailure> {
            self.0.write(items)
        }
    }
    let open = |sessions: u64| {
        let (nearby, opened) = (&nearby, &opened);
        move |thread| match opened.fetch_add(1, Ordering::Relaxed) < sessions {
            true => Ok(Box::new(Short(nearby.session(thread), 0)) as Box<dyn TransactionStore + '_>),
            false => Err(Failure { kind: "down", why: "no cluster".to_owned(), session_over: true }),
        }
    };
    let measured = run(&of, &open(u64::MAX)).unwrap();
    assert_eq!((measured.counters.transactions, measured.counters.reopened), (90, 10));
    assert_eq!(measured.counters.failures.get("lost"), Some(&10));
    opened.store(0, Ordering::Relaxed);
    let measured = run(&of, &open(3)).unwrap();
    assert_eq!(measured.failure.as_deref(), Some("no cluster"));
    assert_eq!(measured.counters.transactions, 27, "what was done until then is returned");
    let refused = run(&of, &open(0)).unwrap_err();
    assert!(matches!(refused, RunError::Session { thread: 0, .. }), "{refused}");
}

#[test]
fn impossible_runs_are_refused_with_their_numbers() {
    let stop = AtomicBool::new(false);
    let good = a_run(Workload::micro(0.5, 4, KEYS), 1, false, &stop);
    for threads in [0, SESSIONS_MAX + 1] {
        let refused = run(&RunOptions { threads, ..good }, &|_| unreachable!()).unwrap_err();
        assert!(matches!(refused, RunError::Sessions { found } if found == threads));
    }
    let workload = Workload::micro(2.0, 4, KEYS);
    assert!(matches!(run(&RunOptions { workload, ..good }, &|_| unreachable!()), Err(RunError::Workload(_))));
}

#[test]
fn a_history_that_does_not_fit_is_checked_in_parts_and_every_transaction_is_in_one() {
    let (nearby, stop) = (loaded(Algorithm::Fast), AtomicBool::new(false));
    let of = RunOptions { recorded_max: 300, ..a_run(Workload::micro(0.5, 4, 16), 400, true, &stop) };
    let measured = run(&of, &|thread| Ok(Box::new(nearby.session(thread)))).unwrap();
    let (counters, checked) = (&measured.counters, measured.checked.as_ref().unwrap());
    assert_eq!((counters.transactions, checked.violated(), measured.failure), (1200, 0, None), "{checked:?}");
    assert_eq!((checked.transactions, checked.operations), (1200, 4800));
    assert!(checked.legs >= 16, "300 keys each at most: {}", checked.legs);
    let little = RunOptions { recorded_max: 23, ..of };
    let refused = run(&little, &|thread| Ok(Box::new(nearby.session(thread)))).unwrap_err();
    assert!(matches!(refused, RunError::Room { found: 23, least: 24 }), "{refused}");
}

//! Tests many processes that change the same rows of a table, also while another process flushes
//! the table again and again: no acknowledged change is lost, and no flush aborts a transaction.

use super::{shells::OpenShell, support::Data};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

const PROCESSES: i64 = 8;
const UPDATES: i64 = 4;
const BLOCKS: i64 = 8;

/// A running cluster with a table `t` of ten rows `(k, 0)`.
fn cluster(name: &str) -> Data {
    let data = Data::new(name);
    data.run("tables").succeeds();
    data.run("cluster start").succeeds();
    let file = data.path().join("t.csv");
    let rows: String = (0..10).map(|key| format!("{key},0\n")).collect();
    std::fs::write(&file, format!("k,v\n{rows}")).expect("a file");
    let words = ["load", "csv", file.to_str().expect("text"), "--table", "t", "--partition-by", "k"];
    data.run_words(&words, "").succeeds();
    data
}

fn value(data: &Data, key: i64) -> i64 {
    let sql = format!("select cast(v as bigint) as v from t where k = {key}");
    let text = data.run_words(&["sql", &sql, "--format", "csv"], "").succeeds();
    text.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{text:?}"))
}

/// Runs `work` while another process flushes the table in a loop. Returns the number of flushes.
fn beside_flushes(data: &Data, work: impl FnOnce()) -> u32 {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            let mut flushes = 0;
            while !is_over.load(Ordering::Relaxed) {
                data.run("flush t").succeeds();
                flushes += 1;
                thread::sleep(Duration::from_millis(100));
            }
            flushes
        });
        let worked = catch_unwind(AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        let flushes = flusher.join().expect("every flush succeeds");
        worked.map_or_else(|failure| resume_unwind(failure), |()| flushes)
    })
}

#[test]
fn every_acknowledged_update_of_a_row_by_many_processes_counts() {
    let data = cluster("counters");
    let update = |key: i64| {
        let sql = format!("update t set v = v + 1 where k = {key}");
        data.run_words(&["sql", &sql], "").succeeds();
    };
    let by_all = |key: i64| {
        thread::scope(|scope| {
            for _ in 0..PROCESSES {
                scope.spawn(move || (0..UPDATES).for_each(|_| update(key)));
            }
        });
    };
    by_all(3);
    assert_eq!(value(&data, 3), PROCESSES * UPDATES);
    assert!(beside_flushes(&data, || by_all(5)) > 0);
    assert_eq!(value(&data, 5), PROCESSES * UPDATES);
}

#[test]
fn transactions_of_one_process_are_all_committed_beside_flushes_of_another() {
    let data = cluster("flushed-blocks");
    let block = "begin; update t set v = v + 1 where k = 3; delete from t where k = 4; insert into t values (4, 1); commit";
    let flushes = beside_flushes(&data, || {
        for _ in 0..BLOCKS {
            data.run_words(&["sql", block], "").succeeds();
        }
    });
    assert!(flushes > 0);
    assert_eq!((value(&data, 3), value(&data, 4)), (BLOCKS, 1));
}

#[test]
fn transactions_in_conflict_are_refused_with_a_code_unless_they_are_read_atomic() {
    let data = cluster("conflicting-blocks");
    for (isolation, expected) in [("snapshot", Some("40001")), ("read-atomic", None)] {
        let mut open = OpenShell::start(&data, &["--isolation", isolation]);
        open.say("begin");
        open.say("update t set v = v + 1 where k = 7");
        open.say("select 'read' as what");
        open.answers("read");
        data.run_words(&["sql", "update t set v = v + 10 where k = 7"], "").succeeds();
        let before = value(&data, 7);
        open.say("commit");
        match (open.end(), expected) {
            (Some(text), Some(code)) => {
                assert!(text.contains("conflict") && text.contains(code), "{text}");
                assert_eq!(value(&data, 7), before, "nothing of it is written");
            }
            (None, None) => assert_eq!(value(&data, 7), before - 10 + 1, "the later one stays"),
            (ended, _) => panic!("{isolation}: {ended:?}"),
        }
    }
}

//! Tests nodes whose processes are stopped (SIGSTOP), so that the kernel accepts connections for
//! them and nobody answers: the same answers in every placement in bounded time, clear errors where
//! all nodes are needed, and nodes that are used again when they continue.
//!
//! Limits on time are generous, so that a busy machine keeps them; the measured times are printed.

use super::support::{Stopped, pids, protected};
use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const PLACEMENTS: [&str; 4] = ["auto", "local", "remote-fetch", "remote-process"];
/// It used to be 16 s and more for each command.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(10);
/// A node that nothing compensates for is waited for longer.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(30);

/// Runs a command, prints how long it took, and asserts that it was at most `time_max`.
fn timed<T>(what: &str, time_max: Duration, run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = run();
    let took = begun.elapsed();
    println!("{what}: {took:.2?}");
    assert!(took < time_max, "{what} took {took:.2?}, expected less than {time_max:?}");
    result
}

fn answers_without_nodes(name: &str, wire: &str) {
    let data = protected(name);
    let answers = |placement: &str| {
        data.run(&format!("query q01 q03 q06 --format csv --wire {wire} --placement {placement}")).succeeds()
    };
    let expected = answers("auto");
    let pids = pids(&data);
    let mut stopped = Vec::new();
    for lost in [1, 2] {
        stopped.push(Stopped::new(pids[lost]));
        for placement in PLACEMENTS {
            let what = format!("{wire}, {placement}, {lost} stopped");
            assert_eq!(timed(&what, COMMAND_TIME_MAX, || answers(placement)), expected, "{what}");
        }
    }
    let status = timed("cluster status", COMMAND_TIME_MAX, || data.run("cluster status"));
    assert!(
        status.stdout().contains("unresponsive") || status.stderr().contains("unresponsive"),
        "{status:?}"
    );
    drop(stopped);
    assert_eq!(answers("auto"), expected);
    let explained =
        data.run(&format!("explain q01 --analyze --wire {wire} --placement remote-fetch")).succeeds();
    assert!(!explained.contains("degraded"), "they are used again: {explained}");
}

#[test]
fn answers_are_the_same_with_one_and_two_nodes_stopped_over_shm() {
    answers_without_nodes("stopped-shm", "shm");
}

#[test]
fn answers_are_the_same_with_one_and_two_nodes_stopped_over_tcp() {
    answers_without_nodes("stopped-tcp", "tcp");
}

#[test]
fn a_command_goes_on_without_nodes_that_stop_while_it_runs_and_with_them_when_they_continue() {
    let data = protected("stopped-midway");
    for (wire, placement) in [("shm", "remote-process"), ("tcp", "remote-fetch"), ("shm", "auto")] {
        let run = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_rackscan"));
            let words = ["query", "q01", "q06", "q03", "q12", "--repeat", "10", "--format", "csv"];
            command.arg("--data").arg(data.path().join("data")).args(words);
            command
                .args(["--wire", wire, "--placement", placement])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().expect("the program starts")
        };
        let expected = run().wait_with_output().expect("it ends");
        assert_eq!(expected.status.code(), Some(0));
        let pids = pids(&data);
        let child = run();
        std::thread::sleep(Duration::from_millis(700));
        let stopped = [Stopped::new(pids[1]), Stopped::new(pids[3])];
        let watched = std::thread::spawn(move || child.wait_with_output());
        let what = format!("{wire}, {placement}, both stopped midway");
        let output = timed(&what, 6 * COMMAND_TIME_MAX, || watched.join().expect("it is waited for"));
        drop(stopped);
        let output = output.expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == expected.stdout, "{what}: other answers");
    }
}

#[test]
fn what_needs_all_nodes_names_the_one_that_is_unresponsive_and_does_nothing() {
    let data = protected("stopped-needed");
    let count = ["sql", "select count(*) from region", "--format", "csv"];
    let rows = data.run_words(&count, "").succeeds();
    let csv = data.path().join("cities.csv");
    std::fs::write(&csv, "id,name\n1,Ulm\n2,Bonn\n3,Kiel\n").expect("a file");
    let stopped = Stopped::new(pids(&data)[2]);
    let fails = |what: &str, words: &[&str]| {
        timed(what, REFUSAL_TIME_MAX, || data.run_words(words, "")).fails(1, &["unresponsive for"]);
    };
    fails("insert", &["sql", "insert into region values (6, 'LEMURIA', 'far')"]);
    fails("delete", &["sql", "delete from orders where o_orderkey = 5"]);
    let path = csv.to_string_lossy().into_owned();
    fails("load", &["load", "csv", &path, "--table", "cities", "--partition-by", "id"]);
    fails("query that may not do without it", &["query", "q06", "--tolerate-unavailable", "0"]);
    drop(stopped);
    assert_eq!(data.run_words(&count, "").succeeds(), rows, "nothing was inserted");
    data.run_words(&["sql", "insert into region values (6, 'LEMURIA', 'far')"], "").succeeds();
    assert!(data.run_words(&count, "").succeeds() != rows);
    data.run(&format!("load csv {path} --table cities --partition-by id")).succeeds();
}

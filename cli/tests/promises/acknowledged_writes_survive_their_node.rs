//! Tests that acknowledged writes survive the loss of their node, or else that the program says
//! that they may be lost. It never returns an old value without saying so.

use super::support::{Data, kill, pids};
use std::{
    process::Command,
    time::{Duration, Instant},
};

const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status().expect("kill runs");
    assert!(status.success(), "kill {name} {pid}");
}

fn folder(data: &Data, node: usize) -> std::path::PathBuf {
    data.path().join(format!("data/node{node}"))
}

/// Three nodes; every key has the value `old`.
fn started(name: &str) -> (Data, Vec<u32>) {
    let data = Data::new(name);
    data.run("cluster start --nodes 3").succeeds();
    for key in KEYS {
        data.run(&format!("kv put {key} old")).succeeds();
    }
    let pids = pids(&data);
    (data, pids)
}

fn value(data: &Data, key: &str) -> String {
    data.run(&format!("kv get {key}")).succeeds().trim().to_owned()
}

/// Repeats a write until it is acknowledged: while replicas are being excluded a write may be in
/// doubt.
fn put(data: &Data, key: &str, value: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while data.run(&format!("kv put {key} {value}")).code() != Some(0) {
        assert!(Instant::now() < deadline, "{key} is never written");
    }
}

#[test]
fn a_node_without_replicas_refuses_writes_and_its_acknowledged_ones_outlive_it() {
    let (data, pids) = started("without-replicas");
    pids[1..].iter().for_each(|pid| signal(*pid, "-STOP"));
    let outcomes = KEYS.map(|key| (key, data.run(&format!("kv put {key} new --timeout 4"))));
    let refusal = "2 of 2 log replicas of node 0 are unavailable; expected at least 1";
    let refused = outcomes.iter().filter(|(_, ran)| ran.stderr().contains(refusal)).count();
    for (key, ran) in &outcomes {
        assert_ne!(ran.code(), Some(0), "{key} was acknowledged by one disk");
    }
    assert!(refused > 0, "{:?}", outcomes.map(|(_, ran)| ran.stderr()));
    kill(pids[0]);
    std::fs::remove_dir_all(folder(&data, 0)).expect("the folder can be removed");
    pids[1..].iter().for_each(|pid| signal(*pid, "-CONT"));
    data.run("cluster start").succeeds();
    for (key, ran) in &outcomes {
        let is_in_doubt = !ran.stderr().contains(refusal);
        let found = value(&data, key);
        assert!(found == "old" || is_in_doubt && found == "new", "{key} is {found}: {}", ran.stderr());
    }
    KEYS.iter().for_each(|key| put(&data, key, "newer"));
    assert!(KEYS.iter().all(|key| value(&data, key) == "newer"));
    data.run("cluster stop").succeeds();
}

#[test]
fn a_stale_replica_alone_gives_no_old_value_but_an_error_until_a_person_accepts_the_loss() {
    let (data, pids) = started("stale-replica");
    signal(pids[2], "-STOP");
    // Keys of which node 2 has only replicas.
    let written: Vec<&str> = KEYS
        .into_iter()
        .filter(|key| {
            let first = data.run(&format!("kv put {key} new --timeout 6"));
            first.code() == Some(0)
        })
        .collect();
    assert!(!written.is_empty(), "one replica is enough");
    for node in [0, 1] {
        kill(pids[node]);
        std::fs::remove_dir_all(folder(&data, node)).expect("the folder can be removed");
    }
    signal(pids[2], "-CONT");
    data.run("cluster start").succeeds();
    let key = written[0];
    let lost = data.run(&format!("kv get {key}"));
    lost.fails(1, &["no replica of the log of node", "may be missing", "rackscan recover --node"]);
    let status = data.run("cluster status");
    assert!(
        status.stderr().contains("may be missing") && status.stdout().contains("refuses"),
        "{}",
        status.stderr()
    );
    data.run("recover --node 0").fails(2, &["--accept-loss"]);
    data.run("recover --node 2 --accept-loss").fails(1, &["is complete"]);
    for node in [0, 1] {
        data.run(&format!("recover --node {node} --accept-loss")).succeeds();
    }
    assert_eq!(value(&data, key), "old");
    put(&data, key, "newer");
    assert_eq!(value(&data, key), "newer");
    data.run("cluster stop").succeeds();
}

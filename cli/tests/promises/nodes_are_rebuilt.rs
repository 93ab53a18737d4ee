//! Tests that `fsck` reports corrupt bytes and lost devices, `scrub` and `rebuild` repair them, and
//! all answers stay the same meanwhile.

use super::support::{Data, flip, kill, pids, protected, wait_for_log_replicas};
use std::path::{Path, PathBuf};

const FEW: &str = "query q01 q03 q06 --format csv";

fn device(data: &Data, node: usize, device: usize) -> PathBuf {
    data.path().join(format!("data/node{node}/device{device}"))
}

#[test]
fn what_is_corrupt_is_named_by_fsck_and_repaired_by_scrub() {
    let data = protected("corrupt");
    let few = data.run(FEW).succeeds();
    data.run("fsck").succeeds();
    data.run("cluster stop").succeeds();
    let spots = flip(&device(&data, 2, 0), 7) + flip(&device(&data, 1, 1), 7);
    assert!(spots > 2, "{spots} spots");
    data.run("cluster start").succeeds();
    let found = data.run("fsck");
    found.fails_later(1, &["corrupt still", "node 1", "node 2", "rackscan scrub"]);
    // A dry run does not repair.
    data.run("scrub --dry-run").fails_later(1, &["corrupt still"]);
    for placement in ["auto", "local", "remote-fetch", "remote-process"] {
        assert_eq!(data.run(&format!("{FEW} --placement {placement}")).succeeds(), few, "{placement}");
    }
    let repaired = data.run("scrub --format ndjson").succeeds();
    let rows: Vec<serde_json::Value> =
        repaired.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(rows.iter().any(|row| row["table"] == "lineitem"), "{repaired}");
    assert!(rows.iter().all(|row| row["lost for good"] == 0), "{repaired}");
    data.run("fsck").succeeds();
    // Repaired data also answers without the other nodes.
    let pids = pids(&data);
    kill(pids[0]);
    kill(pids[3]);
    assert_eq!(data.run(FEW).succeeds(), few);
    data.run("fsck").fails_later(1, &["node 0, 3 not reached"]);
    // With three lost nodes, data that no node has any more is named, and nothing is invented.
    kill(pids[1]);
    data.run("query q06").fails(1, &["node"]);
    data.run("fsck")
        .fails_later(1, &["lineitem: bytes ", "of device 0 of node 0", "2d-xor does not bear that"]);
    data.run("cluster start").succeeds();
    data.run("fsck nation nowhere").fails(2, &["nowhere", "lineitem"]);
}

#[test]
fn a_node_that_has_lost_everything_is_rebuilt_in_a_new_folder_and_others_may_go_then() {
    let data = protected("rebuilt");
    let changed = ["sql", "select count(*) from orders where o_comment = 'late'", "--format", "csv"];
    let (few, rows) = (data.run(FEW).succeeds(), data.run_words(&changed, "").succeeds());
    let onto = data.path().join("elsewhere/node2");
    let rebuild = format!("rebuild 2 --onto {}", onto.display());
    data.run(&rebuild).fails(1, &["node 2 runs", "cluster stop --node 2"]);
    data.run("cluster stop --node 2").succeeds();
    assert_eq!(data.run(FEW).succeeds(), few);
    std::fs::remove_dir_all(data.path().join("data/node2")).expect("the folder can be removed");
    std::fs::create_dir_all(onto.join("full")).expect("a folder");
    data.run(&rebuild).fails(1, &["is not empty"]);
    std::fs::remove_dir_all(&onto).expect("the folder can be removed");
    data.run("rebuild 9").fails(2, &["no node 9", "0, 1, 2, 3"]);

    let ran = data.run(&format!("{rebuild} --format ndjson"));
    let rebuilt = ran.succeeds();
    assert!(ran.stderr().contains("bytes read from other nodes for each"), "{}", ran.stderr());
    let rows_of: Vec<serde_json::Value> =
        rebuilt.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(rows_of.iter().any(|row| row["table"] == "lineitem" && row["was"] == "lost"), "{rebuilt}");
    assert!(rows_of.iter().all(|row| row["state"] == "whole"), "{rebuilt}");
    assert!(Path::new(&onto.join("device0")).exists());
    data.run("fsck").succeeds();
    assert_eq!(data.run(FEW).succeeds(), few);
    // With nothing left to do it succeeds.
    assert!(data.run("rebuild 2").succeeds().contains("there"));

    wait_for_log_replicas(&data);
    let pids = pids(&data);
    kill(pids[1]);
    kill(pids[3]);
    assert_eq!(data.run(FEW).succeeds(), few);
    assert_eq!(data.run_words(&changed, "").succeeds(), rows);
    data.run("cluster start").succeeds();
    assert_eq!(data.run_words(&changed, "").succeeds(), rows);
}

#[test]
fn nodes_that_do_not_start_any_more_keep_neither_queries_nor_each_other_from_it() {
    let data = protected("unstartable");
    let few = data.run(FEW).succeeds();
    data.run("cluster stop").succeeds();
    std::fs::remove_file(device(&data, 1, 0)).expect("the device can be removed");
    // Of nodes that are started for a command, three are enough.
    let ran = data.run(FEW);
    assert_eq!(ran.succeeds(), few);
    assert!(ran.stderr().contains("node 1 did not start"), "{}", ran.stderr());
    data.run("query q06 --tolerate-unavailable 0").fails(1, &["node 1 did not start", "device0"]);
    // Nodes that should keep running are started, too.
    data.run("cluster start").fails(1, &["node 1 did not start", "rackscan rebuild"]);
    assert_eq!(data.run(FEW).succeeds(), few);
    let onto = data.path().join("elsewhere");
    data.run(&format!("rebuild 1 --onto {}", onto.display())).succeeds();
    data.run("fsck").succeeds();
    data.run("cluster stop").succeeds();
    let ran = data.run("query q06");
    ran.succeeds();
    assert!(!ran.stderr().contains("node 1"), "{}", ran.stderr());
}

//! Tests queries over protected tables while nodes are killed: the same answers in every placement,
//! with their cost; queries that cannot be answered name the reason.

use super::support::{Data, kill, pids, protected, wait_for_log_replicas};
use std::process::{Child, Command, Stdio};

const PLACEMENTS: [&str; 4] = ["auto", "local", "remote-fetch", "remote-process"];

fn answers(data: &Data, which: &str, placement: &str) -> String {
    data.run(&format!("query {which} --format csv --placement {placement}")).succeeds()
}

#[test]
fn all_queries_answer_the_same_with_two_nodes_killed_and_changed_rows_are_there() {
    let data = protected("two-lost");
    let changed = [
        "sql",
        "select count(*) from orders where o_comment = 'late' union all select count(*) from region",
        "--format",
        "csv",
    ];
    let (expected, rows) = (answers(&data, "all", "auto"), data.run_words(&changed, "").succeeds());
    assert!(rows.contains("103") && rows.contains('6'), "{rows}");
    let few = answers(&data, "q01 q03 q06", "auto");
    let pids = pids(&data);
    for lost in [1, 2] {
        kill(pids[lost]);
        for placement in PLACEMENTS {
            assert_eq!(answers(&data, "q01 q03 q06", placement), few, "{placement}, {lost} lost");
        }
    }
    assert_eq!(answers(&data, "all", "auto"), expected);
    assert_eq!(data.run_words(&changed, "").succeeds(), rows);
    // A command that needs all nodes says so.
    data.run("query q06 --tolerate-unavailable 0").fails(1, &["nodes 1, 2", "expected at most 0"]);
    data.run_words(&["sql", "delete from orders where o_orderkey = 1"], "").fails(1, &["node"]);
    assert_eq!(data.run_words(&changed, "").succeeds(), rows);
    // A third one is too many.
    kill(pids[0]);
    data.run("query q06").fails(1, &["node"]);
    data.run("cluster start").succeeds();
    assert_eq!(answers(&data, "q01 q03 q06", "auto"), few);
    assert_eq!(data.run_words(&changed, "").succeeds(), rows);
    data.run("cluster stop").succeeds();
}

#[test]
fn pages_of_a_lost_node_whose_devices_are_gone_are_reconstructed_and_explain_says_what_that_cost() {
    let data = protected("devices-lost");
    let few = answers(&data, "q01 q03 q06", "auto");
    kill(pids(&data)[3]);
    let node = data.path().join("data/node3");
    std::fs::rename(&node, data.path().join("data/elsewhere")).expect("the folder can be moved");
    for placement in PLACEMENTS {
        assert_eq!(answers(&data, "q01 q03 q06", placement), few, "{placement}");
        let explained = data.run(&format!("explain q01 --analyze --placement {placement}")).succeeds();
        assert!(explained.contains("reconstructed"), "{placement}: {explained}");
        assert!(explained.contains("degraded"), "{placement}: {explained}");
    }
    std::fs::rename(data.path().join("data/elsewhere"), &node).expect("the folder can be moved");
    data.run("cluster start").succeeds();
    let explained = data.run("explain q01 --analyze --placement remote-fetch").succeeds();
    assert!(!explained.contains("degraded"), "{explained}");
    data.run("cluster stop").succeeds();
}

#[test]
fn tables_without_parity_are_named_with_their_nodes_and_others_are_answered() {
    let data = Data::new("unprotected");
    let csv = data.path().join("cities.csv");
    let rows: String = (0..100).map(|row| format!("{row},city {row}\n")).collect();
    std::fs::write(&csv, format!("id,name\n{rows}")).expect("a file");
    let load = |table: &str, parity: &str| {
        let csv = csv.display();
        data.run(&format!("load csv {csv} --table {table} --partition-by id --parity {parity}")).succeeds();
    };
    load("kept", "xor");
    load("plain", "none");
    data.run("cluster start").succeeds();
    wait_for_log_replicas(&data);
    let pids = pids(&data);
    kill(pids[0]);
    let count = |table: &str| {
        data.run_words(&["sql", &format!("select count(*) from {table}"), "--format", "csv"], "")
    };
    assert!(count("kept").succeeds().contains("100"));
    count("plain").fails(1, &["plain", "not protected", "0"]);
    // One parity tolerates one lost node.
    kill(pids[1]);
    count("kept").fails(1, &["kept", "xor"]);
    data.run("cluster start").succeeds();
    assert!(count("plain").succeeds().contains("100"));
    data.run("cluster stop").succeeds();
}

/// A program that asks all queries again and again.
fn asking(data: &Data, placement: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_rackscan"))
        .arg("--data")
        .arg(data.path().join("data"))
        .args([
            "query",
            "q01",
            "q06",
            "q03",
            "q12",
            "--repeat",
            "12",
            "--format",
            "csv",
            "--placement",
            placement,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

#[test]
fn a_node_killed_in_mid_query_changes_no_answer() {
    let data = protected("mid-query-protected");
    for placement in ["remote-process", "remote-fetch"] {
        let expected = asking(&data, placement).wait_with_output().expect("it ends");
        assert_eq!(expected.status.code(), Some(0));
        let victim = pids(&data)[1];
        let child = asking(&data, placement);
        std::thread::sleep(std::time::Duration::from_millis(700));
        kill(victim);
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let (found, expected) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&expected.stdout));
        assert_eq!(found, expected);
        data.run("cluster start").succeeds();
    }
    data.run("cluster stop").succeeds();
}

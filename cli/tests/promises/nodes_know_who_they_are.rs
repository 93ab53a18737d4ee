//! Tests that a node's identity is in its data folder, whoever listens at its address: copies,
//! other nodes and old snapshots are detected, and the messages name a way out.

use super::support::{Data, kill, pids, protected, wait_for_log_replicas};
use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Longer than any step takes that succeeds.
const PATIENCE: Duration = Duration::from_secs(100);

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(copied.success(), "cp -a {} {}", from.display(), to.display());
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().expect("kill runs");
    assert!(sent.success(), "kill {name} {pid}");
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The port of a node's first tcp address.
fn port(data: &Data, node: usize) -> u16 {
    let text = fs::read_to_string(data.path().join("data/cluster.toml")).expect("the file");
    let entry = text.split("[[node]]").nth(node + 1).expect("such a node");
    let port = entry.split("\"tcp:127.0.0.1:").nth(1).and_then(|rest| rest.split('"').next());
    port.and_then(|port| port.parse().ok()).expect("a port")
}

/// Keys of which each of the four nodes has some.
fn keys() -> Vec<String> {
    (0..40).map(|key| format!("k{key}")).collect()
}

fn put(data: &Data, value: &str) {
    let items: Vec<String> = keys().iter().map(|key| format!("{key} {value}")).collect();
    data.run(&format!("kv put {}", items.join(" "))).succeeds();
}

fn get(data: &Data) -> String {
    data.run(&format!("kv multi-get {} --format csv", keys().join(" "))).succeeds()
}

#[test]
fn a_node_that_is_restored_from_a_snapshot_is_left_out_and_comes_back_by_a_rebuild() {
    let data = protected("snapshot");
    put(&data, "old");
    data.run("cluster stop").succeeds();
    let (node, snapshot) = (data.path().join("data/node1"), data.path().join("snapshot"));
    copy(&node, &snapshot);
    data.run("cluster start").succeeds();
    put(&data, "new");
    let change = "update orders set o_comment = 'later' where o_orderkey <= 200; delete from nation where n_nationkey = 3";
    data.run_words(&["sql", change], "").succeeds();
    data.run("flush").succeeds();
    let few = "query q01 q03 q06 --format csv";
    let rows = [
        "sql",
        "select o_comment, count(*) from orders where o_orderkey <= 500 group by 1 order by 1 limit 3",
        "--format",
        "csv",
    ];
    let (answer, found) = (data.run(few).succeeds(), data.run_words(&rows, "").succeeds());
    data.run("cluster stop").succeeds();
    fs::remove_dir_all(&node).expect("the folder can be removed");
    copy(&snapshot, &node);

    // A client that asks first, before the node itself has noticed, gets no old answer.
    data.run("cluster start");
    let ran = data.run(few);
    assert_eq!(ran.succeeds(), answer);
    assert_eq!(data.run_words(&rows, "").succeeds(), found);
    // The node's keys are not answered from its old data.
    let read = data.run(&format!("kv multi-get {} --format csv", keys().join(" ")));
    assert_ne!(read.code(), Some(0), "{}", read.stdout());
    assert!(!read.stdout().contains("old"), "{}", read.stdout());
    wait_until("node 1 has stopped", || {
        let status = data.run("cluster status");
        status.stdout().lines().any(|line| line.contains(" down ") && line.trim_start().starts_with('1'))
    });
    for words in [&rows[..], &["kv", "get", "k1"]] {
        let told = data.run_words(words, "");
        assert!(
            told.stderr().contains("is outdated") && told.stderr().contains("`rackscan rebuild 1`"),
            "{told:?}"
        );
    }
    data.run("cluster start").fails(1, &["node 1 did not start", "outdated", "rackscan rebuild 1"]);
    data.run("query q06 --tolerate-unavailable 0").fails(1, &["node 1"]);

    data.run("rebuild 1").succeeds();
    data.run("fsck").succeeds();
    assert_eq!(data.run(&format!("{few} --tolerate-unavailable 0")).succeeds(), answer);
    assert_eq!(data.run_words(&rows, "").succeeds(), found);
    let values = get(&data);
    assert_eq!(values.matches("new").count(), 40, "{values}");
    // It tolerates what it tolerated before.
    wait_for_log_replicas(&data);
    let pids = pids(&data);
    kill(pids[0]);
    kill(pids[2]);
    assert_eq!(data.run(few).succeeds(), answer);
}

#[test]
fn commands_in_a_copied_data_folder_neither_start_nor_reach_nodes_of_the_original() {
    let data = Data::new("copied");
    data.run("cluster start").succeeds();
    put(&data, "original");
    let beside = Data::new("copied-beside");
    copy(&data.path().join("data"), &beside.path().join("data"));
    let original = data.path().join("data/node0").display().to_string();
    for wire in ["shm", "tcp"] {
        for line in ["kv put k1 copied", "kv get k1", "tables", "cluster start"] {
            beside.run(&format!("--wire {wire} {line}")).fails(1, &["is a copy of", &original, "away"]);
        }
    }
    assert_eq!(get(&data).matches("original").count(), 40);
    data.run("cluster stop").succeeds();
    beside.run("kv get k1").fails(1, &["is a copy of", &original]);
    // Once the original is removed, the copy is the node.
    fs::rename(data.path().join("data"), data.path().join("gone")).expect("it moves");
    let ids = |data: &Path| fs::read_to_string(data.join("node0/identity.toml")).expect("an identity");
    assert_eq!(get(&beside).matches("original").count(), 40);
    assert_ne!(ids(&beside.path().join("data")), ids(&data.path().join("gone")));
}

#[test]
fn commands_that_start_a_new_cluster_at_the_same_time_make_one() {
    let data = Data::new("at-once");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rackscan"));
        command.arg("--data").arg(data.path().join("data")).args(["cluster", "start"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let started: Vec<_> = (0..3).map(|_| start()).collect();
    let mut all = 0;
    for child in started {
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        all += said.matches("started 4 nodes").count();
    }
    assert_eq!(all, 1, "one of them has started the nodes");
    assert_eq!(pids(&data).len(), 4);
    put(&data, "once");
    data.run("cluster stop").succeeds();
    // A start that was interrupted between the key and the file is continued.
    let interrupted = Data::new("interrupted-start");
    let folder = interrupted.path().join("data");
    fs::create_dir(&folder).expect("a folder");
    fs::copy(data.path().join("data/cluster.key"), folder.join("cluster.key")).expect("a key");
    put(&interrupted, "twice");
}

#[test]
fn a_stranger_at_a_nodes_address_is_not_taken_for_the_node() {
    let data = Data::new("stranger");
    put(&data, "mine");
    let stranger = TcpListener::bind(("127.0.0.1", port(&data, 1))).expect("the port is free");
    let address = format!("127.0.0.1:{}", port(&data, 1));
    for line in ["kv get k1", "kv put k1 w", "cluster start"] {
        data.run(line).fails(1, &["node 1 did not start", &address]);
    }
    drop(stranger);
    data.run("cluster start").succeeds();
    assert_eq!(get(&data).matches("mine").count(), 40);
    // A node of another cluster is refused, even with the same key.
    let other = Data::new("foreigner");
    other.run("cluster start --nodes 4").succeeds();
    other.run("cluster stop").succeeds();
    fs::copy(data.path().join("data/cluster.key"), other.path().join("data/cluster.key")).expect("a key");
    let file = other.path().join("data/cluster.toml");
    let text = fs::read_to_string(&file).expect("the file").replace("[[node]]", "[[node]]\nhost = \"none\"");
    let text =
        text.replace(&format!("127.0.0.1:{}", port(&other, 0)), &format!("127.0.0.1:{}", port(&data, 0)));
    fs::write(&file, text).expect("the file");
    other
        .run("--wire tcp cluster status")
        .fails_later(1, &["is node 0 of cluster", "expected node 0 of cluster"]);
    // Two nodes of one cluster are told apart.
    let file = data.path().join("data/cluster.toml");
    let (zero, one) = (port(&data, 0), port(&data, 1));
    let before = fs::read_to_string(&file).expect("the file");
    fs::write(&file, before.replace(&format!("127.0.0.1:{zero}"), &format!("127.0.0.1:{one}")))
        .expect("the file");
    let all = format!("--wire tcp kv multi-get {}", keys().join(" "));
    data.run(&all).fails(1, &["node 1 of cluster", "expected node 0 of cluster"]);
    fs::write(&file, before).expect("the file");
}

#[test]
fn stopping_a_cluster_goes_on_past_a_node_that_does_not_answer() {
    let data = Data::new("hung-stop");
    data.run("cluster start").succeeds();
    let pids = pids(&data);
    signal(pids[0], "-STOP");
    let stop = data.run("cluster stop");
    signal(pids[0], "-CONT");
    stop.fails(1, &["stopped 3 of 4", "node 0 was not stopped", &format!("kill {}", pids[0])]);
    for pid in &pids[1..] {
        assert!(!Path::new(&format!("/proc/{pid}/fd/0")).exists(), "process {pid} runs still");
    }
    data.run("cluster stop").succeeds();
    assert!(data.run("cluster stop").stderr().contains("stopped 0 of 4"));
}

#[test]
fn nodes_hold_no_descriptor_of_whoever_started_them() {
    let data = Data::new("descriptors");
    fs::create_dir_all(data.path().join("data")).expect("a folder");
    let held = data.path().join("held");
    fs::write(&held, "").expect("a file");
    let line = format!(
        "exec 7<'{}' 250<&7; exec '{}' --data '{}' cluster start",
        held.display(),
        env!("CARGO_BIN_EXE_rackscan"),
        data.path().join("data").display()
    );
    let started = Command::new("bash").args(["-c", &line]).output().expect("bash runs");
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let held = fs::canonicalize(held).expect("a file");
    for pid in pids(&data) {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").filter_map(Result::ok);
        let kept: Vec<_> = open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == held)).collect();
        assert!(kept.is_empty(), "process {pid} holds {kept:?}");
    }
}

#[test]
fn a_data_folder_has_one_node() {
    let data = Data::new("one-node");
    data.run("cluster start").succeeds();
    let file = data.path().join("data/cluster.toml").display().to_string();
    let owner = pids(&data)[2].to_string();
    data.run(&format!("node --config {file} --id 2"))
        .fails(1, &["one node", &format!("process {owner}"), "node2"]);
}

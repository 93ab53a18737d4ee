//! Tests killed nodes, stopped nodes, interrupted loads and flipped bytes: each leads to a clear
//! error, without a hang or a loss of data.

use super::{
    shells::OpenShell,
    support::{Data, kill},
};
use std::{
    os::unix::fs::FileExt,
    process::{Command, Stdio},
    time::Duration,
};

fn pids(data: &Data) -> Vec<u32> {
    let status = data.run("cluster status --format ndjson").succeeds();
    let rows = status.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    rows.map(|row| row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")).collect()
}

#[test]
fn a_killed_node_is_named_and_comes_back_with_its_data() {
    let data = Data::new("killed");
    data.run("load tpch --scale 0.01").succeeds();
    data.run("cluster start").succeeds();
    let pids = pids(&data);
    assert_eq!(pids.len(), 4);
    kill(pids[2]);
    data.run("query q06 --tolerate-unavailable 0").fails(1, &["node 2"]);
    let status = data.run("cluster status");
    assert!(status.stdout().contains("down") && status.stderr().contains("node 2"), "{}", status.stderr());
    data.run("cluster start").succeeds();
    assert!(data.run("query q06").succeeds().contains("1193053.2253"));
    data.run("cluster stop").succeeds();
}

#[test]
fn nodes_that_end_with_a_shell_are_not_taken_for_nodes_that_stay() {
    let data = Data::new("embedded");
    let mut shell = OpenShell::start(&data, &[]);
    shell.say("SELECT 40 + 2 AS answer");
    shell.answers("42");
    let started_by = ["were started by another command and end with it", "shell --format csv"];
    data.run("cluster start").fails(1, &started_by);
    shell.say("SELECT 40 + 3 AS answer");
    shell.answers("43");
    assert_eq!(shell.end(), None);
    data.run("cluster start").succeeds();
    assert_eq!(pids(&data).len(), 4);
    data.run("cluster stop").succeeds();
}

#[test]
fn a_node_killed_in_mid_query_ends_the_query_with_its_name() {
    let data = Data::new("mid-query");
    data.run("load tpch --scale 0.01 --segment-rows 1024 --page-size 4KiB").succeeds();
    data.run("cluster start").succeeds();
    let victim = pids(&data)[1];
    let mut child = Command::new(env!("CARGO_BIN_EXE_rackscan"))
        .arg("--data")
        .arg(data.path().join("data"))
        .args([
            "query",
            "all",
            "--repeat",
            "50",
            "--placement",
            "remote-process",
            "--tolerate-unavailable",
            "0",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().expect("a child").is_none(), "the queries were over before the node was killed");
    kill(victim);
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error")).collect();
    assert!(errors.len() == 1 && errors[0].contains("node 1"), "{stderr}");
}

#[test]
fn an_interrupted_load_leaves_no_table_and_a_new_load_succeeds() {
    let data = Data::new("interrupted");
    data.run("load tpch --scale 0.01").succeeds();
    data.run("cluster start").succeeds();
    let mut child = Command::new(env!("CARGO_BIN_EXE_rackscan"))
        .arg("--data")
        .arg(data.path().join("data"))
        .args(["load", "tpch", "--scale", "1"])
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().expect("a child").is_none(), "the load was over before it was killed");
    kill(child.id());
    child.wait().expect("it ends");
    let old = data.run("query q06").succeeds();
    assert!(old.contains("1193053.2253"), "the tables that were there still are: {old}");
    data.run("load tpch --scale 0.01 --segment-rows 4096").succeeds();
    assert!(data.run("query q06").succeeds().contains("1193053.2253"));
}

#[test]
fn a_flipped_byte_on_a_device_is_reported_with_its_page_and_never_answered() {
    let data = Data::new("flipped");
    // With parity it would be reconstructed from other nodes.
    data.run("load tpch --scale 0.01 --parity none").succeeds();
    let sum = "select sum(l_extendedprice) from lineitem";
    let good = data.run_words(&["sql", sum], "").succeeds();
    let path = data.path().join("data/node1/device0");
    let device = std::fs::File::options().read(true).write(true).open(&path).expect("the device file");
    // Every page of the device, so that every read of the query there is corrupt.
    let bytes = std::os::unix::fs::MetadataExt::blocks(&device.metadata().expect("metadata")) * 512;
    let mut sector = [0_u8; 4096];
    let mut flipped = Vec::new();
    for offset in (64 * 1024..64 * 1024 + bytes).step_by(4096) {
        if device.read_exact_at(&mut sector, offset).is_ok() && sector.iter().any(|byte| *byte != 0) {
            device.write_all_at(&[sector[300] ^ 1], offset + 300).expect("a byte");
            flipped.push((offset + 300, sector[300]));
        }
    }
    device.sync_all().expect("sync");
    for placement in ["local", "remote-fetch", "remote-process"] {
        let ran = data.run_words(&["sql", sum, "--placement", placement], "");
        ran.fails(1, &["checksum", "node 1"]);
    }
    for (offset, byte) in flipped {
        device.write_all_at(&[byte], offset).expect("a byte");
    }
    device.sync_all().expect("sync");
    assert_eq!(data.run_words(&["sql", sum], "").succeeds(), good);
}

#[test]
fn a_log_that_cannot_be_written_stops_no_node() {
    let data = Data::new("full-log");
    data.run("load tpch --scale 0.01").succeeds();
    for node in 0..4 {
        let log = data.path().join(format!("data/node{node}/node.log"));
        std::fs::remove_file(&log).expect("the node logged");
        std::os::unix::fs::symlink("/dev/full", &log).expect("a link");
    }
    assert!(data.run("query q06").succeeds().contains("1193053.2253"));
}

#[test]
fn what_a_replaced_table_took_is_given_back_to_the_filesystem() {
    let data = Data::new("given-back");
    let taken_bytes = || -> u64 {
        let paths = (0..8).map(|n| data.path().join(format!("data/node{}/device{}", n / 2, n % 2)));
        let files = paths.map(|path| std::fs::metadata(path).expect("a device file"));
        files.map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).sum()
    };
    data.run("load tpch --scale 0.01").succeeds();
    let once = taken_bytes();
    data.run("load tpch --scale 0.01").succeeds();
    assert!(data.run("query q06").succeeds().contains("1193053.2253"));
    assert!(taken_bytes() < once + once / 2, "{} bytes taken by one table of {once}", taken_bytes());
    assert!(data.run("query q06 --placement local").succeeds().contains("1193053.2253"));
}

#[test]
fn a_node_that_is_configured_to_keep_no_keys_refuses_to_hide_the_ones_that_were_written() {
    let data = Data::new("no-memory-for-keys");
    data.run("kv put k1 v1").succeeds();
    let file = data.path().join("data/cluster.toml");
    let whole = std::fs::read_to_string(&file).expect("the file is there");
    let without = whole.replace("transactions = \"64MiB\"", "transactions = \"0\"");
    assert_ne!(without, whole);
    std::fs::write(&file, without).expect("the file can be written");
    data.run("kv get k1").fails(1, &["transactions.log", "with written keys and rows", "`transactions`"]);
    std::fs::write(&file, whole).expect("the file can be written");
    assert_eq!(data.run("kv get k1").succeeds().trim(), "v1");
}

//! Tests that a node with its maximum number of connections says so, with numbers, and does not
//! count as unavailable.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::support::Data;

/// Ten times longer than anything here takes, on a slow and busy machine.
const TIME_MAX: Duration = Duration::from_secs(60);

#[test]
fn a_client_beyond_the_maximum_is_told_so_and_never_that_its_node_is_unavailable() {
    let data = Data::new("full");
    data.run("kv put color blue").succeeds();
    let path = data.path().join("data/cluster.toml");
    let text = std::fs::read_to_string(&path).expect("a cluster file");
    // Three of them are from the other nodes.
    std::fs::write(&path, text.replace("\ntransactions = ", "\nconnections = 9\ntransactions = "))
        .expect("write");
    data.run("cluster start").succeeds();
    let shell = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rackscan"));
        command.arg("--data").arg(data.path().join("data")).arg("shell");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the program starts")
    };
    let mut shells = Vec::new();
    let refused = loop {
        let ran = data.run("kv get color");
        if ran.code() != Some(0) {
            break ran;
        }
        assert!(shells.len() < 12, "nobody was refused");
        shells.push(shell());
        std::thread::sleep(Duration::from_millis(300));
    };
    refused.fails(1, &["node ", "has 9 connections", "at most 9", "`connections`"]);
    assert!(!refused.stderr().contains("unavailable"), "{}", refused.stderr());
    for mut shell in shells {
        drop(shell.stdin.take());
        shell.wait().expect("it ends");
    }
    let deadline = Instant::now() + TIME_MAX;
    while data.run("kv get color").code() != Some(0) {
        assert!(Instant::now() < deadline, "no room, though all shells have ended");
    }
}

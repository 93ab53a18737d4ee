//! Tests that a full disk refuses writes with the node's name and advice, leaves nothing in doubt,
//! and accepts writes again once there is space.

use super::{
    disk::Disk,
    support::{Data, kill, pids},
};
use std::time::{Duration, Instant};

/// Ten times longer than anything here takes, on a slow and busy machine.
const TIME_MAX: Duration = Duration::from_secs(60);
const DISK_BYTES: u64 = 1 << 30;

#[test]
fn writes_on_a_full_disk_are_refused_with_its_node_and_go_on_when_there_is_space() {
    // Declared first, so that its folder is removed after the filesystem in it is unmounted.
    let folder = Data::new("full-disk");
    let at = folder.path().join("data");
    let disk = Disk::new(folder.path().join("image"), at, DISK_BYTES).expect("a filesystem of its own");
    let stopped = Stopped(&folder);
    let data = stopped.0;
    data.run("kv put before 1").succeeds();
    data.run("cluster start").succeeds();
    let file = folder.path().join("t.csv");
    let rows: String = (0..4000).map(|key| format!("{key},x\n")).collect();
    std::fs::write(&file, format!("k,v\n{rows}")).expect("a file");
    let words = ["load", "csv", file.to_str().expect("text"), "--table", "t", "--partition-by", "k"];
    data.run_words(&words, "").succeeds();
    disk.fill(0);
    // The space that logs have allocated ahead is used up first: each of these is about 4 MB.
    let update = |turn: u32| {
        let value = format!("{turn:03}").repeat(300);
        data.run_words(&["sql", &format!("update t set v = '{value}'")], "")
    };
    let refused = (0..60).map(update).find(|ran| ran.code() != Some(0)).expect("it fits 60 times");
    assert!(refused.stderr().contains("the disk of node "), "{}", refused.stderr());
    assert!(refused.stderr().contains("free some space"), "{}", refused.stderr());
    assert!(refused.stderr().contains("SQLSTATE 53100"), "{}", refused.stderr());
    assert!(!refused.stderr().contains("not known whether"), "{}", refused.stderr());
    data.run("flush t").fails(1, &["SQLSTATE 53100"]);
    data.run_words(&words, "").fails(1, &["SQLSTATE 53100"]);
    // Acknowledged writes exist, and each transaction is complete.
    assert_eq!(data.run("kv get before").succeeds().trim(), "1");
    let one = ["sql", "select count(distinct v) as n, count(*) as m from t", "--format", "csv"];
    assert_eq!(data.run_words(&one, "").succeeds().lines().nth(1), Some("1,4000"));
    // A node that is killed starts on the full disk.
    kill(pids(data)[1]);
    data.run("cluster start").succeeds();
    assert_eq!(data.run_words(&one, "").succeeds().lines().nth(1), Some("1,4000"));
    disk.empty();
    let deadline = Instant::now() + TIME_MAX;
    while update(61).code() != Some(0) {
        assert!(Instant::now() < deadline, "writes do not go on, though there is space");
    }
    data.run("cluster stop").succeeds();
}

/// Nodes that run keep their filesystem busy: they are stopped before it is unmounted.
struct Stopped<'data>(&'data Data);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // Stops again, in case the test has failed.
        self.0.run("cluster stop");
    }
}

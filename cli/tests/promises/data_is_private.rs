//! Tests that only its owner can read a cluster's data, and that nodes' logs are kept and bounded.

use super::support::Data;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Everything in a folder, and the folder.
fn all_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).expect("a folder").filter_map(Result::ok) {
        if entry.file_type().expect("a type").is_dir() {
            found.extend(all_in(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn nothing_in_a_data_folder_can_be_read_by_others() {
    let data = Data::new("private");
    data.run("load tpch --scale 0.01").succeeds();
    data.run("cluster start").succeeds();
    data.run("kv put k1 v1").succeeds();
    data.run_words(&["sql", "delete from region where r_regionkey = 1"], "").succeeds();
    data.run("flush").succeeds();
    let folder = data.path().join("data");
    let seen = all_in(&folder);
    for name in
        ["transactions.log", "catalog", "device0", "node.log", "cluster.toml", "identity.toml", "1.log"]
    {
        assert!(seen.iter().any(|path| path.ends_with(name)), "{name} is not there: {seen:?}");
    }
    for path in &seen {
        assert_eq!(mode(path) & 0o077, 0, "{} has mode {:o}", path.display(), mode(path));
    }
    data.run("cluster stop").succeeds();
    // As an earlier version left them.
    let earlier = ["node0", "node0/transactions.log", "node0/catalog", "node0/device0"];
    earlier.iter().for_each(|name| set_mode(&folder.join(name), 0o755));
    assert!(data.run("query q06").succeeds().contains("1193053.2253"));
    for name in earlier {
        assert_eq!(mode(&folder.join(name)) & 0o077, 0, "{name}");
    }
}

#[test]
fn a_key_file_that_others_can_read_is_refused_with_the_command_that_repairs_it() {
    let data = Data::new("readable-key");
    data.run("kv put k1 v1").succeeds();
    let key = data.path().join("data/cluster.key");
    for wrong in [0o644, 0o640, 0o602] {
        set_mode(&key, wrong);
        let command = format!("chmod 600 {}", fs::canonicalize(&key).expect("a key").display());
        for line in ["kv get k1", "cluster start", "cluster status"] {
            data.run(line).fails(1, &[&format!("mode {wrong:04o}"), "expected 0600", &command]);
        }
        let file = data.path().join("data/cluster.toml").display().to_string();
        data.run(&format!("node --config {file} --id 0")).fails(1, &[&command]);
    }
    set_mode(&key, 0o600);
    assert!(data.run("kv get k1").succeeds().contains("v1"));
}

#[test]
fn what_nodes_say_is_appended_and_bounded() {
    let data = Data::new("node-logs");
    data.run("kv put k1 v1").succeeds();
    data.run("kv get k1").succeeds();
    let log = data.path().join("data/node0/node.log");
    let text = fs::read_to_string(&log).expect("a log");
    assert_eq!(text.lines().filter(|line| line.starts_with("-- rackscan")).count(), 2, "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("the node is ready")).count(), 2, "{text}");
    // A log that has grown becomes the earlier one, and a new one begins.
    let grown = "long ago\n".repeat(1 << 20);
    fs::write(&log, &grown).expect("a log");
    data.run("kv get k1").succeeds();
    let before = fs::read_to_string(data.path().join("data/node0/node.log.1")).expect("the log of before");
    assert!(before.starts_with("long ago") && before.len() < grown.len() + 4096, "{} bytes", before.len());
    let text = fs::read_to_string(&log).expect("a log");
    assert!(text.contains("the node is ready") && text.len() < 64 << 10, "{} bytes", text.len());
    assert_eq!(mode(&log), 0o600);
}

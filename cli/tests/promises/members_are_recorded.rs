//! Tests that a cluster's data records the list of its nodes: a changed list is refused, and no
//! query is answered from fewer or more nodes.

use super::support::Data;
use std::{fs, path::PathBuf};

const KEYS: usize = 40;

fn file(data: &Data) -> PathBuf {
    data.path().join("data/cluster.toml")
}

/// A cluster with keys and a table, whose nodes do not run.
fn filled(name: &str, nodes: u16) -> Data {
    let data = Data::new(name);
    data.run(&format!("cluster start --nodes {nodes} --devices 1 --device-size 1GiB")).succeeds();
    let puts: Vec<String> = (0..KEYS).map(|key| format!("k{key} v{key}")).collect();
    data.run(&format!("kv put {}", puts.join(" "))).succeeds();
    data.run("cluster stop").succeeds();
    data
}

fn finds_all(data: &Data) {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let found = data.run(&format!("kv multi-get {} --format csv", keys.join(" "))).succeeds();
    let all = (0..KEYS).all(|key| found.contains(&format!("v{key}")));
    assert!(all, "{found}");
}

/// The file with one more node, as a person would add it.
fn with_another_node(text: &str, node: u16) -> String {
    let first = text.find("[[node]]").expect("it has nodes");
    let rest = &text[first + 8..];
    let entry = &rest[..rest.find("[[node]]").unwrap_or(rest.len())];
    // Ports of no other node: 0 is any.
    let ports: String = entry
        .split("tcp:127.0.0.1:")
        .enumerate()
        .map(|(place, part)| {
            if place == 0 {
                return part.to_owned();
            }
            format!("tcp:127.0.0.1:0{}", part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
        })
        .collect();
    let entry =
        ports.replace("node = 0", &format!("node = {node}")).replace("node0/", &format!("node{node}/"));
    let entry = entry.replace("\"node0\"", &format!("\"node{node}\""));
    format!("{text}\n[[node]]{entry}")
}

/// The file without its last node.
fn without_the_last(text: &str) -> String {
    text[..text.rfind("[[node]]").expect("it has nodes")].to_owned()
}

const REFUSED: [&[&str]; 6] = [
    &["kv", "get", "k1"],
    &["kv", "multi-get", "k1", "k2"],
    &["kv", "put", "k1", "other"],
    &["sql", "select 1 from nowhere"],
    &["tables"],
    &["cluster", "start"],
];

/// Commands that running nodes refuse.
const OF_RUNNING: [&[&str]; 2] = [&["cluster", "status"], &["cluster", "stop"]];

#[test]
fn a_node_that_is_added_to_the_file_is_refused_with_both_lists() {
    let data = filled("node-added", 4);
    let before = fs::read_to_string(file(&data)).expect("the file");
    fs::write(file(&data), with_another_node(&before, 4)).expect("the file");
    for words in REFUSED {
        data.run_words(words, "").fails(1, &["nodes 0, 1, 2, 3, 4", "nodes 0, 1, 2, 3 as", "identity.toml"]);
    }
    assert!(!data.path().join("data/node4").exists(), "it was not started");
    fs::write(file(&data), &before).expect("the file");
    finds_all(&data);
    // Nodes that are already running make no difference, whatever this host's folders say.
    data.run("cluster start").succeeds();
    fs::write(file(&data), with_another_node(&before, 4)).expect("the file");
    for words in REFUSED.into_iter().chain(OF_RUNNING) {
        data.run_words(words, "").fails(1, &["nodes 0, 1, 2, 3, 4", "nodes 0, 1, 2, 3"]);
    }
    // A client of another host has no folders of nodes.
    let elsewhere = data.path().join("elsewhere.toml");
    let folder = data.path().join("data").display().to_string();
    let text = fs::read_to_string(file(&data)).expect("the file");
    let text =
        text.replace("[[node]]", "[[node]]\nhost = \"none\"").replace("\"node", &format!("\"{folder}/node"));
    let text = text.replace("shm:node", &format!("shm:{folder}/node"));
    let text = text.replace("\"cluster.key\"", &format!("\"{folder}/cluster.key\""));
    fs::write(&elsewhere, text).expect("a file");
    let cluster = elsewhere.display().to_string();
    data.run_words(&["--cluster", &cluster, "kv", "get", "k1"], "")
        .fails(1, &["nodes 0, 1, 2, 3, 4", "expected nodes 0, 1, 2, 3", "records as the members"]);
    data.run_words(
        &["--cluster", &cluster, "--tolerate-unavailable", "2", "sql", "select 1 from nowhere"],
        "",
    )
    .fails(1, &["nodes 0, 1, 2, 3, 4", "expected nodes 0, 1, 2, 3"]);
    fs::write(file(&data), before).expect("the file");
    finds_all(&data);
}

#[test]
fn a_node_that_is_taken_out_of_the_file_is_refused_with_both_lists() {
    let data = filled("node-taken", 5);
    let before = fs::read_to_string(file(&data)).expect("the file");
    for is_running in [false, true] {
        if is_running {
            data.run("cluster start").succeeds();
        }
        fs::write(file(&data), without_the_last(&before)).expect("the file");
        let of_running = OF_RUNNING.into_iter().filter(|_| is_running);
        for words in REFUSED.into_iter().chain(of_running) {
            data.run_words(words, "").fails(1, &["nodes 0, 1, 2, 3, expected nodes 0, 1, 2, 3, 4"]);
        }
        fs::write(file(&data), &before).expect("the file");
    }
    finds_all(&data);
}

#[test]
fn ports_and_folders_of_nodes_may_change() {
    let data = filled("ports-change", 3);
    let text = fs::read_to_string(file(&data)).expect("the file");
    let port = text.split("tcp:127.0.0.1:").nth(1).and_then(|rest| rest.split('"').next()).expect("a port");
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let text = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{free}"));
    fs::rename(data.path().join("data/node1"), data.path().join("data/other")).expect("it moves");
    let text = text.replace("\"node1", "\"other").replace("shm:node1", "shm:other");
    fs::write(file(&data), text).expect("the file");
    finds_all(&data);
    finds_all(&data);
}

#[test]
fn folders_of_an_earlier_version_are_adopted_and_not_together_with_an_empty_one() {
    let data = filled("adopted", 4);
    let before = fs::read_to_string(file(&data)).expect("the file");
    let forget = |nodes: u16| {
        for node in 0..nodes {
            let file = data.path().join(format!("data/node{node}/identity.toml"));
            fs::remove_file(file).expect("the node has recorded itself");
        }
    };
    forget(4);
    fs::write(file(&data), with_another_node(&before, 4)).expect("the file");
    for words in REFUSED {
        data.run_words(words, "")
            .fails(1, &["lists nodes 0, 1, 2, 3, 4", "only nodes 0, 1, 2, 3 have data", "node 4"]);
    }
    fs::write(file(&data), before).expect("the file");
    finds_all(&data);
    for node in 0..4 {
        let file = data.path().join(format!("data/node{node}/identity.toml"));
        let text = fs::read_to_string(file).expect("it is recorded");
        assert!(text.contains("members = [0, 1, 2, 3]"), "{text}");
    }
}

#[test]
fn a_client_on_another_host_with_empty_node_folders_finds_the_nodes_and_starts_none() {
    let data = filled("another-host", 3);
    data.run("cluster start").succeeds();
    let (folder, other) = (data.path().join("data"), data.path().join("other-host"));
    for node in 0..3 {
        fs::create_dir_all(other.join(format!("node{node}"))).expect("a folder");
    }
    let text = fs::read_to_string(file(&data)).expect("the file");
    let mut table: toml::Table = toml::from_str(&text).expect("a configuration");
    table.insert("key_file".to_owned(), folder.join("cluster.key").display().to_string().into());
    for node in table["node"].as_array_mut().expect("nodes") {
        // Shared memory does not reach another host.
        let listen = node["listen"].as_array_mut().expect("addresses");
        listen.retain(|address| address.as_str().is_some_and(|address| address.starts_with("tcp:")));
        assert_eq!(listen.len(), 1, "one address over tcp");
    }
    let text = toml::to_string(&table).expect("a configuration");
    fs::write(other.join("cluster.toml"), text).expect("the file");
    let cluster = other.join("cluster.toml").display().to_string();
    let found = data.run_words(&["--cluster", &cluster, "kv", "get", "k1"], "").succeeds();
    assert!(found.contains("v1"), "{found}");
    for node in 0..3 {
        let written = fs::read_dir(other.join(format!("node{node}"))).expect("the folder").count();
        assert_eq!(written, 0, "node {node} was started over the empty folder");
    }
}
